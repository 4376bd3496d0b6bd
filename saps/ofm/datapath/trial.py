"""Whether a topic's tree is to be used: left when nothing comes back or too much comes in, tried again later.

A tree is used again when a probe has come back, every member has what ALM brought before the probe, and no more is
published than the tree has been found to carry. The second keeps the order: datagrams would overtake what waits in the
links, and members hold only so much behind a gap (`saps.overlay.delivery.order.HELD`).
"""

from __future__ import annotations

from collections.abc import Iterable

from saps.overlay.ring.keys import BrokerRef

PROVEN = 5.0
"""Seconds after which a tree that had failed is good again: if it fails then, it is tried again soon."""
BEHIND = 1024
"""Publications that ALM may be behind. More has the tree used again sooner while links are congested; it must be well
below `saps.overlay.delivery.order.HELD`."""
RAISED = 1.25
"""By how much the ceiling is raised whenever it has kept the topic off the tree: it follows a network that gets
better."""


class Ceiling:
    """What a tree has been found to carry."""

    def __init__(self) -> None:
        self.rate = float("inf")
        """Publications a second."""

    def exceeded(self, carried: float) -> None:
        """More came in; so many a second were carried."""
        self.rate = carried

    def allows(self, offered: float) -> bool:
        """May so many a second be given to the tree? If not, more may be next time."""
        if offered <= self.rate:
            return True
        self.rate *= RAISED
        return False


class Trial:
    """Of one tree, at one sender. Times in seconds, counts of publications to the topic."""

    def __init__(self, retry: float, at_most: float) -> None:
        """`retry`: the time after which a tree that was left is tried again; doubles each time up to `at_most`."""
        self._retry, self._at_most = retry, at_most
        self._delay = retry
        self.ceiling = Ceiling()
        self.left_at: float | None = None
        """When the tree was left for ALM; None while it is in use."""
        self._left_with = 0
        """Publications until then."""
        self._used_since = 0.0
        """When it came into use again after it was left, if it was."""
        self.serial = 0
        """Of the probe under way, 0 if none is."""
        self.attempt = 0
        """Counts the times that it was put off."""
        self._seq = self._probed_with = 0
        self._back = False
        self._behind: set[BrokerRef] = set()
        """Members that do not have all that came before the probe."""
        self._silent: set[BrokerRef] = set()
        """Those of them that have not answered."""

    def leave(self, now: float, published: int) -> None:
        """Go by ALM."""
        self.left_at, self._left_with, self.serial = now, published, 0

    def postpone(self) -> float:
        """Seconds until it is to be tried again."""
        self.serial = 0
        self.attempt += 1
        delay, self._delay = self._delay, min(2 * self._delay, self._at_most)
        return delay

    def may_try(self, now: float, published: int) -> bool:
        """Is as little published as the tree carries?"""
        assert self.left_at is not None
        elapsed = now - self.left_at
        offered = (published - self._left_with) / elapsed if elapsed > 0 else 0.0
        if self.ceiling.allows(offered):
            return True
        self.left_at, self._left_with = now, published
        return False

    def probe(self, serial: int, seq: int, published: int, members: Iterable[BrokerRef]) -> None:
        """A probe leaves: it asks the members whether they have everything up to `seq`."""
        self.serial, self._seq, self._probed_with, self._back = serial, seq, published, False
        self._behind = set(members)
        self._silent = set(self._behind)

    def returned(self, serial: int) -> None:
        """A datagram has come back."""
        self._back |= serial == self.serial

    def acknowledged(self, member: BrokerRef, seq: int) -> None:
        """A member has everything up to a number."""
        self._silent.discard(member)
        if seq >= self._seq:
            self._behind.discard(member)

    def forget(self, member: BrokerRef) -> None:
        """Nothing is expected of it any more."""
        self._silent.discard(member)
        self._behind.discard(member)

    def passed(self, published: int) -> bool:
        """Has the tree proven itself with all members?"""
        return bool(self.serial and self._back and not self._behind and published - self._probed_with <= BEHIND)

    def end(self, published: int) -> list[BrokerRef] | None:
        """The time for answers is over. Gives the members for whom ALM goes on, as they have not answered; None if the
        tree is not to be used: it does not return the probe, or some who have answered are behind."""
        if not self._back or self._behind - self._silent or published - self._probed_with > BEHIND:
            return None
        return list(self._silent)

    def use(self, now: float) -> None:
        """The tree is in use again."""
        self.left_at, self._used_since, self.serial = None, now, 0

    def carried(self, sent: float) -> None:
        """A datagram with publications has come back that left then: after `PROVEN` all is as at the beginning."""
        if sent - self._used_since > PROVEN:
            self._delay = self._retry
