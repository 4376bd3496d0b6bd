"""Ring probes: is this broker still in the same ring as those it has heard of?

Crashes of several brokers at once can cut the ring in two, each part whole in itself. So now and then, and after every
death of a neighbour, a broker lets one it has heard of search for one of its keys. If that search ends elsewhere, the
keys are inserted in the other part as well, which makes the two parts one again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from saps.overlay.frames.ring import Found, Ping
from saps.overlay.membership.failure_detector import Detector
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.ring.skip_graph import SkipGraph
from saps.overlay.ring.unanswered import RETRY

RING_PROBE = 10
"""Heartbeats between two ring probes."""
ACQUAINTANCES = 64
"""Brokers remembered for ring probes."""


class RingProbe:
    """The ring probes of one broker. `rejoin` inserts all own keys once more, beginning at the broker given."""

    def __init__(self, port: Port, graph: SkipGraph, detector: Detector, rejoin: Callable[[BrokerRef], None]) -> None:
        self._port = port
        self._graph = graph
        self._detector = detector
        self._rejoin = rejoin
        self.known: dict[str, BrokerRef] = {}
        """Brokers heard of, the one to be asked next first."""
        self._repaired_at = -math.inf
        """When every neighbour of the last neighbour that died has noticed."""
        self._deaths = 0
        self._checked = 0
        """Deaths there had been when the last ring probe began that ended well."""
        self._cursor = 0
        self._stopped = False

    @property
    def pending(self) -> bool:
        """Since the last death it has not been found out yet whether this broker is cut off."""
        return self._checked < self._deaths and not self._stopped

    def calm(self) -> bool:
        """False while a crash is being found out or repaired: what a range call brings may not be complete."""
        if self._port.now < self._repaired_at or self.pending or not self._graph.settled:
            return False
        suspects = self._detector.suspects
        return not suspects or self._graph.neighbours().keys().isdisjoint(suspects)

    @property
    def acquaintances(self) -> list[BrokerRef]:
        """The brokers heard of, at most `ACQUAINTANCES`."""
        return list(self.known.values())

    def know(self, broker: BrokerRef) -> None:
        """A broker to be asked some time."""
        known = self.known
        if broker.name == self._port.me.name:
            return
        if broker.name not in known and len(known) >= ACQUAINTANCES:
            del known[next(iter(known))]
        known[broker.name] = broker

    def neighbour_died(self) -> None:
        """A neighbour was given up: call when the others beside it have noticed too."""
        self._repaired_at = self._port.now + self._port.grace
        self._deaths += 1
        self._port.after(self._port.grace, self.call)

    def stop(self) -> None:
        """This broker leaves."""
        self._stopped = True

    def call(self) -> None:
        """Let one acquaintance search for one own key."""
        asked = self._whom_to_ask()
        deaths = self._deaths
        if self._stopped or not self._graph.order:
            return
        if asked is None:
            self._checked = deaths
            return
        self.known.pop(asked.name, None)
        self.know(asked)

        def together() -> None:
            self._checked = max(self._checked, deaths)

        self.look(asked, self._rejoin, together)
        if self.pending:
            self._port.after(RETRY, self._call_again)

    def look(
        self, asked: BrokerRef, apart: Callable[[BrokerRef], None], together: Callable[[], None] = lambda: None
    ) -> None:
        """Let a broker search for one own key, each time another: is it in the same ring? Neither is called if it does
        not answer."""
        order = self._graph.order
        if self._stopped or not order:
            return
        self._cursor = (self._cursor + 1) % len(order)
        key = order[self._cursor]

        def found(answer: Found) -> None:
            right = answer.right
            if self._stopped or right is None or key not in self._graph.nodes:
                return
            if right.key == key:
                together()
            elif self._port.lost(right.broker):
                self._port.send(right.broker, Ping())  # is that a ring beyond a cut, or one with a gap?
            else:
                apart(asked)

        self._graph.find(key, found, asked)

    def _whom_to_ask(self) -> BrokerRef | None:
        """The acquaintance whose turn it is; a neighbour of the levels above if none is left."""
        for known in (self.known.values(), self._graph.linked_brokers()):
            for broker in known:
                if self._port.reachable(broker):
                    return broker
        return None

    def _call_again(self) -> None:
        if self.pending:
            self.call()
