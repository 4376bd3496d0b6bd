"""The account of one subscriber: what it was owed and what came, to the single message.

Pure, and cheap enough for 100,000 messages a second: what comes in order is compared as a list, in C.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Tally(msgspec.Struct, kw_only=True):
    """What was wrong, over one or more subscribers."""

    delivered: int = 0
    """Messages that came, without those that came twice."""
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0

    def add(self, other: Tally) -> None:
        """Count what `other` has counted."""
        self.delivered += other.delivered
        self.lost += other.lost
        self.duplicated += other.duplicated
        self.out_of_order += other.out_of_order

    @property
    def wrong(self) -> int:
        """0 if everything came once and in order."""
        return self.lost + self.duplicated + self.out_of_order


class Flow:
    """One publisher's messages, numbered from 1, at one subscriber."""

    __slots__ = ("arrived", "delivered", "duplicated", "gap", "gap_end", "last", "missing", "out_of_order", "owed")

    def __init__(self, owed: int) -> None:
        """`owed`: the first number that must come; those before may, in their order."""
        self.owed = owed
        self.last = 0
        """The highest number that has come, 0 before the first."""
        self.missing: set[int] = set()
        """Numbers below `last` that have not come."""
        self.delivered = self.duplicated = self.out_of_order = 0
        self.arrived = 0.0
        """Time of the last arrival, in seconds."""
        self.gap = 0.0
        """Longest time without an arrival, in seconds, since `since` was called."""
        self.gap_end = 0.0

    def take(self, numbers: Sequence[int], now: float) -> None:
        """These have come, in this order."""
        if self.arrived and now - self.arrived > self.gap:
            self.gap, self.gap_end = now - self.arrived, now
        self.arrived = now
        first, count = numbers[0], len(numbers)
        if first == self.last + 1 and (count == 1 or numbers == list(range(first, first + count))):
            self.last += count
            self.delivered += count
            return
        for number in numbers:
            self._take(number)

    def _take(self, number: int) -> None:
        if number > self.last:
            self.missing.update(range(max(self.owed, self.last + 1), number))
            self.last = number
            self.delivered += 1
        elif number in self.missing:
            self.missing.discard(number)
            self.delivered += 1
            self.out_of_order += 1
        else:
            self.duplicated += 1

    def since(self, now: float) -> None:
        """Look for the longest gap from now on."""
        self.gap, self.gap_end = 0.0, now
        self.arrived = now

    def tally(self, published: int | None) -> Tally:
        """What is wrong now, if `published` is the last number there is; None: nothing is owed after the last that
        came."""
        last = max(self.last, self.owed - 1)
        tail = max(0, published - last) if published is not None else 0
        return Tally(
            delivered=self.delivered,
            lost=len(self.missing) + tail,
            duplicated=self.duplicated,
            out_of_order=self.out_of_order,
        )
