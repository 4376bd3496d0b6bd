"""What all frames share: their base, errors and limits."""

from __future__ import annotations

import msgspec

LARGEST_SLICE = 1 << 16
"""Brokers."""

MOST_ANNOUNCED = 1024
"""Filters in one call."""


class ProtocolError(ValueError):
    """A peer broke the protocol; its link must be closed."""


class Frame(msgspec.Struct, array_like=True):
    """Base of all frames."""
