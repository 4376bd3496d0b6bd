"""High-water marks: tell members the number of the last publication, because its datagram may have been lost.

In the pause after a burst one datagram tells all members. After a longer time each member is told by itself, over a
reliable link. The marks of all topics are due at the same moments, so that a member gets them together. With QoS 1 and
2 only members that have not acknowledged are told. They get what they miss again anyway, but that may take longer.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from saps.ofm.datapath.congestion import SMALL
from saps.ofm.datapath.settings import DatapathSettings
from saps.overlay.frames.delivery import HighWater, Publish
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef


class Marks:
    """The high-water marks of one topic's publications along a tree."""

    def __init__(
        self, port: Port, topic: str, settings: DatapathSettings, silent: Callable[[], Container[BrokerRef]]
    ) -> None:
        """`silent` returns the members that have not acknowledged own publications with QoS 1 or 2."""
        self._port = port
        self._silent = silent
        self._topic = topic
        self._settings = settings
        self._last: Publish | None = None
        """The last own publications; they left at `_last_at`."""
        self._last_at = 0.0
        self._members: tuple[BrokerRef, ...] = ()
        """The members that these publications were for."""
        self._burst = 0
        """Datagrams since the last pause. Up to `SMALL` of them do not fill a buffer, so a loss is rare. A high-water
        mark for each single publication would double the cost of a quiet topic."""
        self._waiting = False
        self._relayed: dict[BrokerRef, tuple[int, tuple[BrokerRef, ...]]] = {}
        """Origin in another domain -> number of its last publication that has left along the tree, and the members that
        it was for."""

    def sent(self, body: Publish, members: tuple[BrokerRef, ...], datagrams: int) -> None:
        """Note that own publications have left for these members, in `datagrams` datagrams."""
        now = self._port.now
        self._burst = datagrams if now - self._last_at > self._settings.quiet else self._burst + datagrams
        self._last, self._last_at, self._members = body, now, members
        if members and not self._waiting:
            self._waiting = True
            self._port.after(self._until_due, self._tell)

    def relayed(self, origin: BrokerRef, seq: int, members: tuple[BrokerRef, ...]) -> None:
        """Note that publications of an origin in another domain have left, up to the number `seq`."""
        last = self._relayed.get(origin)
        if last is None:
            self._port.after(self._until_due, lambda: self._tell_for(origin))
        if last is None or seq >= last[0]:
            self._relayed[origin] = seq, members

    def in_pause(self, tell: Callable[[], object]) -> float:
        """Call `tell` in the pause after a burst. Returns the time of the next look, infinite if nothing is to be
        told."""
        if self._burst <= SMALL or self._last is None or self._last.qos or not self._members:
            return float("inf")
        due = self._last_at + self._settings.quiet
        if self._port.now < due - 1e-9:
            return due
        self._burst = 0
        tell()
        return float("inf")

    @property
    def _until_due(self) -> float:
        """Seconds to the next moment at which this broker tells its high-water marks. It lies between half of the
        allowed time and all of it, because a member may first have to learn that it misses something. Each broker has
        moments of its own."""
        most = self._settings.mark
        return most - (self._port.now + self._port.me.incarnation / 1000) % (most / 2)

    def _tell(self) -> None:
        self._waiting = False
        if self._last is not None:
            members = self._members
            if self._last.qos:
                silent = self._silent()
                members = tuple(member for member in members if member in silent)
            self._send(members, HighWater(self._topic, self._last.seqs[-1]))

    def _tell_for(self, origin: BrokerRef) -> None:
        seq, members = self._relayed.pop(origin)
        self._send(members, HighWater(self._topic, seq, origin))

    def _send(self, members: tuple[BrokerRef, ...], mark: HighWater) -> None:
        for member in members:
            if self._port.reachable(member):
                self._port.send(member, mark)
