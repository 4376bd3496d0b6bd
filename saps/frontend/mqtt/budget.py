"""Counts bytes against a limit that all clients share."""

from __future__ import annotations

ENTRY_COST = 128
"""Bytes of memory that a queued message takes beside its payload."""


class Budget:
    """A limit of bytes for all clients together, and the bytes used. The users themselves change `used`."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
