"""High-water marks: members are told the number of the last publication, as its datagram may have been lost.

After a short pause by one datagram, and after a longer time each member by itself, by a way that does not lose it.
"""

from __future__ import annotations

from collections.abc import Callable

from saps.ofm.datapath.settings import DatapathSettings
from saps.overlay.frames.delivery import HighWater, Publish
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef


class Marks:
    """Of one topic's publications along a tree."""

    def __init__(self, port: Port, topic: str, settings: DatapathSettings) -> None:
        self._port = port
        self._topic = topic
        self._settings = settings
        self._last: Publish | None = None
        """The last own publications, and when they left."""
        self._last_at = 0.0
        self._members: tuple[BrokerRef, ...] = ()
        """Those they were for."""
        self._told = False
        """A datagram has told the last number in the present pause."""
        self._waiting = False
        self._relayed: dict[BrokerRef, int] = {}
        """Origin in another domain -> number of its last publication that has left along the tree."""

    def sent(self, body: Publish, members: tuple[BrokerRef, ...]) -> None:
        """Own publications have left."""
        self._last, self._last_at, self._told, self._members = body, self._port.now, False, members
        if members and not self._waiting:
            self._waiting = True
            self._port.after(self._settings.mark, self._tell)

    def relayed(self, origin: BrokerRef, seq: int, members: tuple[BrokerRef, ...]) -> None:
        """Those of an origin in another domain have left, up to this number."""
        if self._relayed.setdefault(origin, 0) == 0:
            self._port.after(self._settings.mark, lambda: self._tell_for(origin, members))
        self._relayed[origin] = max(self._relayed[origin], seq)

    def in_pause(self, tell: Callable[[], object]) -> float:
        """After a pause `tell` the members. Returns when to look again, infinite if nothing is to be told."""
        if self._told or self._last is None or self._last.qos or not self._members:
            return float("inf")
        due = self._last_at + self._settings.quiet
        if self._port.now < due - 1e-9:
            return due
        self._told = True
        tell()
        return float("inf")

    def _tell(self) -> None:
        self._waiting = False
        if self._last is not None:
            self._send(self._members, HighWater(self._topic, self._last.seqs[-1]))

    def _tell_for(self, origin: BrokerRef, members: tuple[BrokerRef, ...]) -> None:
        if seq := self._relayed.pop(origin, 0):
            self._send(members, HighWater(self._topic, seq, origin))

    def _send(self, members: tuple[BrokerRef, ...], mark: HighWater) -> None:
        for member in members:
            if self._port.reachable(member):
                self._port.send(member, mark)
