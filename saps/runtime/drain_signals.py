"""The signals by which a broker's own machine orders a drain: as safe as the right to signal the process."""

from __future__ import annotations

import signal

from saps.drain.values import Order

DRAINING = {signal.SIGUSR1: Order(), signal.SIGUSR2: Order(cancel=True)}
"""What these signals mean to a broker."""
