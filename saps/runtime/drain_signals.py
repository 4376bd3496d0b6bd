"""The signals that start and cancel a drain: whoever may signal the process may drain the broker."""

from __future__ import annotations

import signal

from saps.drain.values import Order

DRAINING = {signal.SIGUSR1: Order(), signal.SIGUSR2: Order(cancel=True)}
"""The order that each signal gives a broker."""
