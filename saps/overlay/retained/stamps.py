"""Stamps by which all brokers agree what was the last: of a hybrid logical clock (Kulkarni et al. 2014)."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from saps.local.batch import Batch

AHEAD = 86_400.0
"""Seconds by which a stamp may be ahead of this broker's clock, if that is to follow it. Less keeps brokers with wrong
clocks from agreeing what was the last."""
_LOGICAL, _NAME = 6, 16
"""Bits of a stamp below the milliseconds: for 1/64 ms and the logical part, and for the name of the broker."""


class StampClock:
    """A hybrid logical clock: close to the wall clock, and later than every stamp this broker has seen."""

    def __init__(self, name: str, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._name = int.from_bytes(blake2b(name.encode(), digest_size=_NAME // 8).digest())
        self._last = 0

    def stamp(self) -> int:
        """A new stamp. Those of different brokers differ, but for a chance of 1 in 65,536 at the same moment."""
        self._last = max(int(self._wall() * (1000 << _LOGICAL)), self._last + 1)
        return self._last << _NAME | self._name

    def seen(self, stamp: int) -> None:
        """A stamp of another broker; it is not followed beyond `AHEAD`: nobody can have this clock run out."""
        stamp >>= _NAME
        if (stamp >> _LOGICAL) - self._wall() * 1000 <= AHEAD * 1000:
            self._last = max(self._last, stamp)

    def later(self, stamp: int) -> int:
        """A new stamp, later than one of another broker's, too."""
        self.seen(stamp)
        return self.stamp()

    def observed(self, batch: Batch) -> None:
        """Retained publications of another broker have come."""
        for properties in batch.properties or ():
            if properties is not None and properties.stamp is not None:
                self.seen(properties.stamp)


def seconds(stamp: int) -> float:
    """When it was given, in seconds since the epoch."""
    return (stamp >> _LOGICAL + _NAME) / 1000
