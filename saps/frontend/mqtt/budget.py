"""Shared quotas: bytes kept for all slow clients together, and events a second."""

from __future__ import annotations

ENTRY_COST = 128
"""Bytes it takes to keep a message in a queue, beside its payload."""


class Budget:
    """What all clients together may keep in their queues, in bytes."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @property
    def exceeded(self) -> bool:
        return self.used > self.limit


class Rate:
    """A token bucket that holds one second's worth of events, at least one: what may come at once after a pause."""

    __slots__ = ("_full_at", "per_second")

    def __init__(self, per_second: float) -> None:
        """`per_second`: above 0."""
        self.per_second = per_second
        self._full_at = 0.0
        """When the bucket will be full again, if nothing is taken from it until then."""

    def take(self, count: int, now: float) -> None:
        """Take `count` events, whether they are there or not."""
        self._full_at = max(self._full_at, now) + count / self.per_second

    def wait(self, now: float) -> float:
        """Seconds until one event more may come; 0: now."""
        event = 1 / self.per_second
        return max(0.0, self._full_at + event - now - max(1.0, event))
