"""The base class of all frames, their error and their limits."""

from __future__ import annotations

import msgspec

LARGEST_SLICE = 1 << 16
"""Most brokers in a slice."""

MOST_ANNOUNCED = 1024
"""Most filters in one range call."""


class ProtocolError(ValueError):
    """A peer violated the protocol. The caller must close its link; the text says what was wrong."""


class Frame(msgspec.Struct, array_like=True):
    """Base of all frames. On the wire a frame is the array ``[tag, field, field, ...]``."""
