"""What a sender does about a plane that is broken (`saps.ofm.stateless.sending`): it writes another one into addresses,
and sends what may be lost once more."""

from __future__ import annotations

from collections.abc import Callable

from saps.ofm.datapath.datagram import PROBE
from saps.ofm.datapath.flights import Flight
from saps.ofm.datapath.loads import split, weights
from saps.ofm.datapath.packing import Packing
from saps.ofm.datapath.path import Path
from saps.ofm.datapath.repeats import Repeats
from saps.ofm.keys.sealing import mark_of
from saps.overlay.frames.delivery import Publish
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef


class Failover:
    """Of one broker's data path, whose `counts` it shares."""

    def __init__(
        self,
        port: Port,
        packing: Packing,
        repeats: Repeats,
        counts: dict[str, int],
        serial: Callable[[], int],
        fly: Callable[[Path, bytes, Flight], None],
        ask: Callable[[Path, int], bool],
    ) -> None:
        """`serial`: of the last datagram; `fly` sends one, `ask` one without publications."""
        self._port = port
        self._packing = packing
        self._repeats = repeats
        self._counts = counts
        self._serial = serial
        self._fly = fly
        self._ask = ask

    def silent(self, path: Path) -> bool:
        """Nothing comes back any more. False: the path is to be left; there is no other plane."""
        if path.sending is None or not path.sending.change(self._port.now):
            return False
        self._counts["planes_changed"] += 1
        flights, forgotten = path.flights.give_up()
        self._repeats.expect_no_more(forgotten)
        for flight in flights:
            if flight.body is not None:
                self.again(path, flight.body, flight.members, flight.origin)
        return True

    def look(self, path: Path) -> float:
        """Do all members say that they get what is sent? Returns when to look again, infinite if nothing is awaited."""
        sending = path.sending
        if sending is None or not path.in_use:
            return float("inf")
        now, timeout = self._port.now, path.unanswered.time.timeout
        late = path.unanswered.second_try(now)
        fails = any([sent >= sending.since for _, _, sent in late]) or sending.unheard(now - timeout)
        if fails and sending.change(now):
            self._counts["planes_changed"] += 1
        for each, origin, _ in late:
            body, found = each.pending.body, weights(each.pending.body)
            for part in split(body, found, self._packing.room(path, origin)):
                self.again(path, part, tuple(each.waiting), origin)
        if sending.curious(now) and self._ask(path, PROBE):
            sending.asked(path.members, now)
        return sending.asked_at + timeout if sending.awaits else float("inf")

    def again(self, path: Path, body: Publish, members: tuple[BrokerRef, ...], origin: BrokerRef | None) -> None:
        """Send a datagram once more, if there is a key."""
        raw = self._packing.publications(path, self._serial() + 1, body, origin)
        if raw is not None:
            self._fly(path, raw, Flight(self._port.now, mark_of(raw), body, members, origin, again=True))
