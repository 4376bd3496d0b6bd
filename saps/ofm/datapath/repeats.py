"""What a tree may not have delivered, or cannot take, goes by ALM."""

from __future__ import annotations

from collections.abc import Iterable

from saps.ofm.datapath.flights import Flight
from saps.ofm.datapath.loads import Unacknowledged
from saps.ofm.datapath.path import Path
from saps.overlay.delivery.multicast import Multicast
from saps.overlay.frames.delivery import Publish
from saps.overlay.ring.keys import BrokerRef


class Repeats:
    """Of one broker's data path, whose `counts` and `mine` (what may come back, by its mark) it shares."""

    def __init__(self, multicast: Multicast, counts: dict[str, int], mine: dict[bytes, tuple[Path, int]]) -> None:
        self._multicast = multicast
        self._counts = counts
        self._mine = mine

    def publications(self, body: Publish, members: tuple[BrokerRef, ...], origin: BrokerRef | None) -> None:
        """Those with QoS 0, for these members."""
        self._counts["repeated"] += len(members) * len(body.which)
        self._multicast.repeat(body, members, origin)

    def hand_over(self, each: Unacknowledged) -> None:
        """Those with QoS 1 or 2, for members that have not acknowledged them."""
        self._counts["repeated"] += len(each.waiting) * len(each.pending.body.which)
        self._multicast.acknowledgements.answered(each.pending, tuple(each.waiting))

    def answer(self, acknowledged: Iterable[Unacknowledged]) -> None:
        """Nothing is to be repeated of these: all have them."""
        for each in acknowledged:
            self._multicast.acknowledgements.answered(each.pending, ())

    def what_waits(self, path: Path) -> None:
        """All that has not left yet."""
        for load in path.waiting.clear():
            if load.unacknowledged is not None:
                if path.unanswered.remove(load.unacknowledged, load.origin):
                    self.hand_over(load.unacknowledged)
            elif not load.body.qos:
                self.publications(load.body, load.members, load.origin)

    def everything(self, path: Path) -> None:
        """All that waits, is under way, or is not acknowledged."""
        flights, forgotten = path.flights.give_up()
        self.expect_no_more(forgotten)
        for flight in flights:
            if flight.body is not None and not flight.body.qos:
                self.publications(flight.body, flight.members, flight.origin)
        self.what_waits(path)
        for each in path.unanswered.clear():
            self.hand_over(each)

    def expect_no_more(self, flights: Iterable[Flight]) -> None:
        """These may come back, but it is of no interest any more."""
        for flight in flights:
            self._mine.pop(flight.mark, None)
