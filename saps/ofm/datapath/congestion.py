"""How many datagrams may be under way on one tree: slow start, then one more a round trip, half after a loss.

TCP's congestion control (Jacobson 1988; RFC 5681, section 3.1), with the loopback packet (SAPS 2016, 3.1.2) as the
acknowledgement; and Nagle's rule (RFC 896): with some datagrams under way, the next one waits until it is full.

The loopback packet says nothing about how far members are: they may be busy while datagrams pile up in their sockets'
buffers. So they tell every `FEEDBACK` datagrams, whatever the QoS, and nobody is left more than `BEHIND` behind.
"""

from __future__ import annotations

from bisect import bisect_right

from saps.overlay.ring.keys import BrokerRef

SMALL = 4
"""Datagrams under way beyond which only full ones leave. More lowers the delay under load, and costs a datagram, its
seal and its way through all switches for fewer publications."""
LEAST, FIRST, MOST = 4.0, 16.0, 256.0
"""Datagrams under way that are always allowed, at first, and at most. What is in the buffers of switches and sockets is
bounded by this."""

FEEDBACK = 32
"""Datagrams of a sender after which a member says how far it has come. Less costs a small frame by ALM more often."""
BEHIND = 128
"""Datagrams that the slowest member may be behind. More lets a tree of long ways carry more; but what goes by ALM when
the tree is left must wait for them at that member (`saps.overlay.delivery.order.HELD`)."""


class Window:
    """Of one tree."""

    __slots__ = ("_recover", "_threshold", "allowed")

    def __init__(self) -> None:
        self.allowed = FIRST
        """Datagrams under way."""
        self._threshold = MOST
        self._recover = 0

    def admits(self, under_way: int, *, full: bool) -> bool:
        """May one more leave?"""
        return under_way < (self.allowed if full else SMALL)

    def returned(self, count: int, under_way: int) -> None:
        """So many have come back, with so many under way before: those allowed have been made use of, or not."""
        if under_way >= self.allowed / 2:
            more = count if self.allowed < self._threshold else count / self.allowed
            self.allowed = min(MOST, self.allowed + more)

    def lost(self, serial: int, latest: int) -> None:
        """The datagram of this serial is lost, the latest sent is `latest`. Losses of one round trip count once."""
        if serial > self._recover:
            self._recover = latest
            self.allowed = self._threshold = max(LEAST, self.allowed / 2)


class Progress:
    """How far each member of one tree has come, in datagrams of own publications."""

    def __init__(self) -> None:
        self._seqs: list[int] = []
        """The last numbers of the latest datagrams."""
        self._forgotten = 0
        """How many there were before."""
        self._at: dict[BrokerRef, int] = {}
        """How many each member has."""
        self._members: tuple[BrokerRef, ...] | None = None
        """Those of the last datagram, if nobody has been forgotten since."""
        self._least = 0
        """Nobody has fewer."""

    def sent(self, members: tuple[BrokerRef, ...], seq: int) -> None:
        """A datagram whose last number is `seq` leaves for these members. They are all that count from now on."""
        total = self._forgotten + len(self._seqs)
        if members is not self._members:  # they are the same for nearly all datagrams
            self._members = members
            self._at = {member: self._at.get(member, total) for member in members}
        self._seqs.append(seq)
        if len(self._seqs) > 4 * BEHIND:
            past = min(self._at.values(), default=total) - self._forgotten
            del self._seqs[:past]
            self._forgotten += past

    def acknowledged(self, member: BrokerRef, seq: int) -> None:
        """A member has everything up to this number."""
        if member in self._at:
            self._at[member] = max(self._at[member], self._forgotten + bisect_right(self._seqs, seq))

    def left_behind(self) -> list[BrokerRef]:
        """The members that are too far behind for another datagram."""
        total = self._forgotten + len(self._seqs)
        if self._least >= total - BEHIND:
            return []
        self._least = min(self._at.values(), default=total)
        return [member for member, at in self._at.items() if at < total - BEHIND]

    def forget(self, member: BrokerRef) -> None:
        """Nothing is expected of it any more."""
        self._at.pop(member, None)
        self._members = None
