"""A sender's reaction to a broken plane (`saps.ofm.stateless.sending`): writes another plane into the addresses, and
sends again what may be lost."""

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
    """The failover of one broker's data path, whose `counts` it shares."""

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
        """`serial` returns the serial of the last datagram. `fly` sends a datagram, and `ask` sends one without
        publications."""
        self._port = port
        self._packing = packing
        self._repeats = repeats
        self._counts = counts
        self._serial = serial
        self._fly = fly
        self._ask = ask

    def silent(self, path: Path) -> bool:
        """Change the plane, because nothing comes back any more, and repeat what is under way. Returns False if there
        is no other plane: then the path must be left."""
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
        """Check that all members report what they get; repeat late publications, and change a plane that fails. Returns
        the time of the next check, infinite if no answer is awaited."""
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
