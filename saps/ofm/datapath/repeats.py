"""Repeats by ALM what a tree may not have delivered, or cannot take."""

from __future__ import annotations

from collections.abc import Iterable

from saps.ofm.datapath.flights import Flight
from saps.ofm.datapath.loads import Unacknowledged
from saps.ofm.datapath.path import Path
from saps.overlay.delivery.multicast import Multicast
from saps.overlay.frames.delivery import Publish
from saps.overlay.ring.keys import BrokerRef


class Repeats:
    """The repeats of one broker's data path, whose `counts` and `mine` (loopback packets expected, by mark) it
    shares."""

    def __init__(self, multicast: Multicast, counts: dict[str, int], mine: dict[bytes, tuple[Path, int]]) -> None:
        self._multicast = multicast
        self._counts = counts
        self._mine = mine

    def publications(self, body: Publish, members: tuple[BrokerRef, ...], origin: BrokerRef | None) -> None:
        """Send publications with QoS 0 to these members by ALM."""
        self._counts["repeated"] += len(members) * len(body.which)
        self._multicast.repeat(body, members, origin)

    def hand_over(self, each: Unacknowledged) -> None:
        """Send publications with QoS 1 or 2 by ALM to the members that have not acknowledged them."""
        self._counts["repeated"] += len(each.waiting) * len(each.pending.body.which)
        self._multicast.acknowledgements.answered(each.pending, tuple(each.waiting))

    def answer(self, acknowledged: Iterable[Unacknowledged]) -> None:
        """End the wait for publications that all members have."""
        for each in acknowledged:
            self._multicast.acknowledgements.answered(each.pending, ())

    def what_waits(self, path: Path) -> None:
        """Send by ALM everything that has not left yet."""
        for load in path.waiting.clear():
            if load.unacknowledged is not None:
                if path.unanswered.remove(load.unacknowledged, load.origin):
                    self.hand_over(load.unacknowledged)
            elif not load.body.qos:
                self.publications(load.body, load.members, load.origin)

    def everything(self, path: Path) -> None:
        """Send by ALM everything that waits, is under way, or is not acknowledged."""
        flights, forgotten = path.flights.give_up()
        self.expect_no_more(forgotten)
        for flight in flights:
            if flight.body is not None and not flight.body.qos:
                self.publications(flight.body, flight.members, flight.origin)
        self.what_waits(path)
        for each in path.unanswered.clear():
            self.hand_over(each)

    def expect_no_more(self, flights: Iterable[Flight]) -> None:
        """Forget the loopback packets of these datagrams."""
        for flight in flights:
            self._mine.pop(flight.mark, None)
