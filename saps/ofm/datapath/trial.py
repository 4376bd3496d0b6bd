"""Decides whether a topic's tree is used: leaves it when nothing comes back or too much comes in, and tries it again
later.

A tree is used again under three conditions:

1. A probe has come back.
2. Every member has what ALM brought before the probe.
3. No more is published than the tree has been found to carry.

The second keeps the order: datagrams would overtake what waits in the links, and members hold only so much behind a gap
(`saps.overlay.delivery.order.HELD`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from saps.overlay.ring.keys import BrokerRef

PROVEN = 5.0
"""Time in seconds after which a tree that had failed is trusted again. If it fails later, it is tried again soon."""
BEHIND = 1024
"""Most publications that ALM may be behind. A larger number uses the tree again sooner while links are congested. It
must be well below `saps.overlay.delivery.order.HELD`."""
RAISED = 1.25
"""Factor that raises the ceiling whenever it has kept the topic off the tree, to follow a network that improves."""


class Ceiling:
    """The load that a tree has been found to carry."""

    def __init__(self) -> None:
        self.rate = math.inf
        """Publications a second."""

    def exceeded(self, carried: float) -> None:
        """Set the ceiling to the publications a second that the tree carried when more came in."""
        self.rate = carried

    def allows(self, offered: float) -> bool:
        """Return whether the tree may get this many publications a second. If not, raise the ceiling for the next
        time."""
        if offered <= self.rate:
            return True
        self.rate *= RAISED
        return False


class Trial:
    """The trial of one tree at one sender. Times in seconds, counts of publications to the topic."""

    def __init__(self, retry: float, at_most: float) -> None:
        """`retry` is the delay after which a tree that was left is tried again. It doubles each time up to
        `at_most`."""
        self._retry, self._at_most = retry, at_most
        self._delay = retry
        self.ceiling = Ceiling()
        self.left_at: float | None = None
        """Time at which the tree was left for ALM. None while the tree is in use."""
        self._left_with = 0
        """Publications until `left_at`."""
        self._used_since = 0.0
        """Time at which the tree came into use again, 0 if it was never left."""
        self.serial = 0
        """Serial of the probe under way, 0 if none is."""
        self.attempt = 0
        """Count of postponements."""
        self._seq = self._probed_with = 0
        self._back = False
        self._behind: set[BrokerRef] = set()
        """Members that do not have all that came before the probe."""
        self._silent: set[BrokerRef] = set()
        """Members that have not answered the probe, a part of `_behind`."""

    def leave(self, now: float, published: int) -> None:
        """Note that the tree is left for ALM, after `published` publications."""
        self.left_at, self._left_with, self.serial = now, published, 0

    def postpone(self) -> float:
        """Postpone the next try, and return the seconds until then."""
        self.serial = 0
        self.attempt += 1
        delay, self._delay = self._delay, min(2 * self._delay, self._at_most)
        return delay

    def may_try(self, now: float, published: int) -> bool:
        """Return whether no more is published than the tree carries."""
        assert self.left_at is not None
        if math.isinf(self.ceiling.rate):
            return True
        elapsed = now - self.left_at
        if elapsed < self._retry - 1e-9:  # too short to tell
            return False
        if self.ceiling.allows((published - self._left_with) / elapsed):
            return True
        self.left_at, self._left_with = now, published
        return False

    def probe(self, serial: int, seq: int, published: int, members: Iterable[BrokerRef]) -> None:
        """Note that a probe leaves. The probe asks the members whether they have everything up to `seq`."""
        self.serial, self._seq, self._probed_with, self._back = serial, seq, published, False
        self._behind = set(members)
        self._silent = set(self._behind)

    def returned(self, serial: int) -> None:
        """Note that a datagram has come back."""
        self._back |= serial == self.serial

    def acknowledged(self, member: BrokerRef, seq: int) -> None:
        """Note that a member has everything up to a number."""
        self._silent.discard(member)
        if seq >= self._seq:
            self._behind.discard(member)

    def forget(self, member: BrokerRef) -> None:
        """Expect nothing more of a member."""
        self._silent.discard(member)
        self._behind.discard(member)

    def passed(self, published: int) -> bool:
        """Return whether the tree has proven itself with all members."""
        return bool(self.serial and self._back and not self._behind and published - self._probed_with <= BEHIND)

    def end(self, published: int) -> list[BrokerRef] | None:
        """End the time for answers. Returns the members that ALM goes on to serve, because they have not answered.
        Returns None if the tree must not be used: the probe is not back, members that have answered are behind, or too
        much was published meanwhile."""
        if not self._back or self._behind - self._silent or published - self._probed_with > BEHIND:
            return None
        return list(self._silent)

    def use(self, now: float) -> None:
        """Note that the tree is in use again."""
        self.left_at, self._used_since, self.serial = None, now, 0

    def carried(self, sent: float) -> None:
        """Note that a datagram with publications, sent at `sent`, has come back. The retry delay is reset if the tree
        has worked for `PROVEN` seconds."""
        if sent - self._used_since > PROVEN:
            self._delay = self._retry
