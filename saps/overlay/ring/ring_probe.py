"""Ring probes find out whether this broker is in the same ring as other brokers that it knows.

Crashes of several brokers at once can cut the ring in two parts that are each intact, and so can that of one with
several keys. So periodically a broker has a known broker search for one of its keys, and several after every death of a
neighbour. If a search ends elsewhere, its keys are inserted in the other part as well, which merges the two parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import islice

from saps.overlay.frames.ring import Found, Ping
from saps.overlay.membership.failure_detector import Detector
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.ring.skip_graph import SkipGraph
from saps.overlay.ring.unanswered import RETRY

RING_PROBE = 10
"""Heartbeats between two ring probes."""
ASKED = 4
"""Most known brokers asked after a death: one may be in the same part of the ring."""
ACQUAINTANCES = 64
"""Most brokers remembered for ring probes."""


class RingProbe:
    """The ring probes of one broker. `rejoin` inserts own keys again, starting at the given broker."""

    def __init__(self, port: Port, graph: SkipGraph, detector: Detector, rejoin: Callable[[BrokerRef], None]) -> None:
        self._port = port
        self._graph = graph
        self._detector = detector
        self._rejoin = rejoin
        self.known: dict[str, BrokerRef] = {}
        """Known brokers by name, the next one to ask first."""
        self._repaired_at = -math.inf
        """When all neighbours of the last dead neighbour have noticed its death."""
        self._deaths = 0
        self._checked = 0
        """Number of deaths at the start of the last ring probe that found a single ring."""
        self._cursor = 0
        self._stopped = False

    @property
    def pending(self) -> bool:
        """Whether no ring probe has ended well since the last death."""
        return self._checked < self._deaths and not self._stopped

    def calm(self) -> bool:
        """Whether no crash is being detected or repaired. Otherwise the result of a range call may be incomplete."""
        if self._port.now < self._repaired_at or self.pending or not self._graph.settled:
            return False
        suspects = self._detector.suspects
        return not suspects or self._graph.neighbours().keys().isdisjoint(suspects)

    @property
    def acquaintances(self) -> list[BrokerRef]:
        """The known brokers, at most `ACQUAINTANCES`."""
        return list(self.known.values())

    def know(self, broker: BrokerRef) -> None:
        """Remember a broker for later probes."""
        known = self.known
        if broker.name == self._port.me.name:
            return
        if broker.name not in known and len(known) >= ACQUAINTANCES:
            del known[next(iter(known))]
        known[broker.name] = broker

    def neighbour_died(self) -> None:
        """Schedule a probe after a neighbour's death, when its other neighbours have noticed it too."""
        self._repaired_at = self._port.now + self._port.grace
        self._deaths += 1
        self._port.after(self._port.grace, self.call)

    def stop(self) -> None:
        """Stop probing: this broker leaves."""
        self._stopped = True

    def call(self) -> None:
        """Have a known broker search for one own key, or several brokers if a neighbour has died since. They need not
        all answer."""
        if self._stopped or not self._graph.order:
            return
        asked, deaths = self._whom_to_ask(ASKED if self.pending else 1), self._deaths
        silent, apart = {broker.name for broker in asked}, False

        def found(name: str) -> None:
            silent.discard(name)
            if not silent and not apart:
                self._checked = max(self._checked, deaths)

        def elsewhere(broker: BrokerRef) -> None:
            nonlocal apart
            apart = True
            self._rejoin(broker)

        def again() -> None:
            if len(silent) < len(asked) and not apart:
                self._checked = max(self._checked, deaths)
            if self.pending:
                self.call()

        if not asked:
            self._checked = deaths
        for broker in asked:
            self.known.pop(broker.name, None)
            self.know(broker)
            self.look(broker, elsewhere, partial(found, broker.name))
        if self.pending:
            self._port.after(RETRY, again)

    def look(
        self, asked: BrokerRef, apart: Callable[[BrokerRef], None], together: Callable[[], None] = lambda: None
    ) -> None:
        """Have a broker search for an own key, a different one each time. Calls `together` if it is in the same ring
        and `apart` if not; neither without an answer."""
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

    def _whom_to_ask(self, most: int) -> list[BrokerRef]:
        """Return the next known brokers to ask, or a neighbour of the upper levels if none is left."""
        known = list(islice((broker for broker in self.known.values() if self._port.reachable(broker)), most))
        return known or list(islice(filter(self._port.reachable, self._graph.linked_brokers()), 1))
