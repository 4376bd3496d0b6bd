"""Stamps of a hybrid logical clock (Kulkarni et al. 2014), by which all brokers agree which message is the last."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from saps.routing.batch import Batch

AHEAD = 3 * 86_400.0
"""Most seconds by which a stamp may be ahead of this broker's clock for the clock to follow it. With less, brokers with
wrong clocks would disagree which message is the last: one a day ahead, and one a day behind."""
MOST = (1 << 63) - 1
"""Greatest stamp that is given."""
_LOGICAL, _NAME = 6, 16
"""Bits of a stamp below the milliseconds: for 1/64 ms with the logical part, and for a hash of the broker's name."""


class StampClock:
    """A hybrid logical clock: close to the wall clock, and later than every stamp this broker has seen."""

    def __init__(self, name: str, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._name = int.from_bytes(blake2b(name.encode(), digest_size=_NAME // 8).digest())
        self._last = 0

    def stamp(self) -> int:
        """Return a new stamp. Stamps of two brokers are equal only at the same moment and with a chance of 1 in
        65,536."""
        self._last = max(int(self._wall() * (1000 << _LOGICAL)), self._last + 1)
        return self._last << _NAME | self._name

    def seen(self, stamp: int) -> None:
        """Follow the stamp of another broker, but not beyond `AHEAD`, so that no broker can exhaust this clock."""
        stamp >>= _NAME
        if (stamp >> _LOGICAL) - self._wall() * 1000 <= AHEAD * 1000:
            self._last = max(self._last, stamp)

    def later(self, stamp: int) -> int:
        """Return a new stamp that is also later than one of another broker, even if the clock does not follow that."""
        self.seen(stamp)
        return max(self.stamp(), min(MOST, ((stamp >> _NAME) + 1) << _NAME | self._name))

    def observed(self, batch: Batch) -> None:
        """Follow the stamps of another broker's retained publications."""
        for properties in batch.properties or ():
            if properties is not None and properties.stamp is not None:
                self.seen(properties.stamp)


def seconds(stamp: int) -> float:
    """Return the time of a stamp in seconds since the epoch."""
    return (stamp >> _LOGICAL + _NAME) / 1000
