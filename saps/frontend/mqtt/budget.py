"""A quota of bytes that all clients share."""

from __future__ import annotations

ENTRY_COST = 128
"""Bytes it takes to keep a message in a queue, beside its payload."""


class Budget:
    """What all clients together may keep in their queues, in bytes."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
