"""Compares what OFGate has had built with what the controller has: on each news from the controller, and now and
then."""

from __future__ import annotations

import math

from saps.agents.ofgate.construction import Construction
from saps.agents.ofgate.record import UNSURE, Intent
from saps.agents.switchover import Controller
from saps.ofm.northbound.schema import OfmState, Status
from saps.ofm.stateless.address import EVERY_TOPIC
from saps.overlay.delivery.ofm_members import Tree
from saps.overlay.port import Port

LOOK = 0.01
"""Delay in seconds between news from the controller and the comparison: several pieces of news come together."""


class Audit:
    """The audit of one term, from when OFGate leads to `close`. Some trees the network has broken, another OFGate
    has changed, or the controller has forgotten. The audit takes each of them back from its users, and asks for it
    again."""

    def __init__(self, port: Port, controller: Controller, term: Construction) -> None:
        self._port = port
        self._controller = controller
        self._term = term
        self._look_at = math.inf
        """The time of the next comparison, infinite if none is due."""
        self._closed = False
        self._unwatch = controller.watch(self._news)

    def close(self) -> None:
        """Stop listening and comparing."""
        self._closed = True
        self._unwatch()

    def look(self) -> None:
        """Compare what was built with what the controller has now."""
        self._look_at = math.inf
        built = {topic.name: (topic.tree, topic.built) for topic in self._term.topics.values() if not topic.busy}
        self._controller.list(lambda states: self._compare(built, states))

    def _news(self, state: OfmState) -> None:
        """Handle a state that the controller reports. It may be out of date already: if it is not as expected, compare
        again."""
        if state.topic == EVERY_TOPIC and not self._closed:
            self._term.planes.take(state)
        topic = self._term.topics.get(state.topic)
        if self._closed or topic is None:
            return
        if topic.reconsidered(state):
            self._term.again(topic)
        elif topic.moved(state) or not topic.stands(state, self._port.now):
            self._look_in(LOOK)
        elif state.status is Status.UPDATING:
            self._look_in(UNSURE)

    def _look_in(self, delay: float) -> None:
        when = self._port.now + delay

        def due() -> None:
            if self._look_at == when and not self._closed:
                self.look()

        if when < self._look_at:
            self._look_at = when
            self._port.after(delay, due)

    def _compare(self, built: dict[str, tuple[Tree | None, Intent | None]], states: list[OfmState] | None) -> None:
        if self._closed or states is None:
            return
        found = {state.topic: state for state in states}
        self._term.planes.compare(found.get(EVERY_TOPIC))
        for topic in list(self._term.topics.values()):
            same = not topic.busy and built.get(topic.name) == (topic.tree, topic.built)
            state = found.get(topic.name)
            if topic.reconsidered(state):
                self._term.again(topic)
            elif same and state is not None and topic.moved(state):
                self._term.follow(topic, state)
            elif same and not topic.stands(state, self._port.now):
                self._term.doubt(topic)
