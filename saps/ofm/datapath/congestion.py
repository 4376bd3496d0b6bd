"""Congestion control of one tree: slow start, then one more datagram each round trip, half of them after a loss.

This is TCP's congestion control (Jacobson 1988; RFC 5681, section 3.1), with the loopback packet (SAPS 2016, 3.1.2) as
the acknowledgement. Nagle's rule applies too (RFC 896): with some datagrams under way, the next one waits until it is
full.

The loopback packet says nothing about the members' progress: datagrams may pile up in the socket buffers of busy
members. So each member reports its progress every `FEEDBACK` datagrams, whatever the QoS. No member is left more than
`BEHIND` datagrams behind.
"""

from __future__ import annotations

from bisect import bisect_right

from saps.overlay.ring.keys import BrokerRef

SMALL = 4
"""Datagrams under way beyond which only full ones leave. A larger number lowers the delay under load. It costs a
datagram, its seal and its way through all switches for fewer publications."""
LEAST, FIRST, MOST = 4.0, 16.0, 256.0
"""Datagrams under way that are always allowed, at first, and at most. The last bounds what is in the buffers of
switches and sockets."""

FEEDBACK = 32
"""Datagrams of a sender after which a member reports its progress. A smaller number costs a small frame by ALM more
often."""
BEHIND = 128
"""Most datagrams that the slowest member may be behind. A larger number lets a tree with long paths carry more. But
what leaves by ALM after the tree is left must wait for these datagrams at that member
(`saps.overlay.delivery.order.HELD`)."""


class Window:
    """The congestion window of one tree."""

    __slots__ = ("_recover", "_threshold", "allowed")

    def __init__(self) -> None:
        self.allowed = FIRST
        """Datagrams that may be under way."""
        self._threshold = MOST
        self._recover = 0

    def admits(self, under_way: int, *, full: bool) -> bool:
        """Return whether one more datagram may leave. A datagram that is not `full` leaves only if few are under
        way."""
        return under_way < (self.allowed if full else SMALL)

    def returned(self, count: int, under_way: int) -> None:
        """Note that `count` datagrams have come back, with `under_way` of them before. The window grows only if it was
        used."""
        if under_way >= self.allowed / 2:
            more = count if self.allowed < self._threshold else count / self.allowed
            self.allowed = min(MOST, self.allowed + more)

    def lost(self, serial: int, latest: int) -> None:
        """Halve the window: the datagram `serial` is lost, and `latest` is the last one sent. Losses of one round trip
        count once."""
        if serial > self._recover:
            self._recover = latest
            self.allowed = self._threshold = max(LEAST, self.allowed / 2)


class Progress:
    """The progress of each member of one tree, in datagrams of this broker's own publications."""

    def __init__(self) -> None:
        self._seqs: list[int] = []
        """Last sequence number of each of the latest datagrams, ascending."""
        self._forgotten = 0
        """Count of earlier datagrams, which are no longer in `_seqs`."""
        self._at: dict[BrokerRef, int] = {}
        """Member -> count of datagrams that the member has."""
        self._members: tuple[BrokerRef, ...] | None = None
        """The members of the last datagram. None if one has been forgotten since."""
        self._least = 0
        """A lower bound of all counts in `_at`."""

    def sent(self, members: tuple[BrokerRef, ...], seq: int) -> None:
        """Note that a datagram with last sequence number `seq` leaves for these members. Only these members count from
        now on."""
        total = self._forgotten + len(self._seqs)
        if members is not self._members:  # nearly all datagrams have the same members
            self._members = members
            self._at = {member: self._at.get(member, total) for member in members}
        self._seqs.append(seq)
        if len(self._seqs) > 4 * BEHIND:
            past = min(self._at.values(), default=total) - self._forgotten
            del self._seqs[:past]
            self._forgotten += past

    def acknowledged(self, member: BrokerRef, seq: int) -> bool:
        """Note that a member has everything up to this sequence number. Return whether it had less before."""
        before, now = self._at.get(member), self._forgotten + bisect_right(self._seqs, seq)
        if before is None or before >= now:
            return False
        self._at[member] = now
        return True

    def left_behind(self) -> list[BrokerRef]:
        """Return the members that are too far behind for another datagram."""
        total = self._forgotten + len(self._seqs)
        if self._least >= total - BEHIND:
            return []
        self._least = min(self._at.values(), default=total)
        return [member for member, at in self._at.items() if at < total - BEHIND]

    def forget(self, member: BrokerRef) -> None:
        """Expect nothing more of a member."""
        self._at.pop(member, None)
        self._members = None
