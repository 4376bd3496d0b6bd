"""Calls of agents by attribute, as range calls: what an agent API asks of the overlay (`saps.agents.api.Caller`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saps.overlay.frames.calls import AgentCall, Answer
from saps.overlay.port import Bodies, Port
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.ring.keys import ALL_BROKERS, Key, attribute_key, broker_key, holders, one_broker
from saps.overlay.ring.skip_graph import SkipGraph

ATTEMPTS = 4

Run = Callable[[AgentCall, bool], list[Answer]]
"""Runs a call at the broker's agents; True: at its user agent of that name."""


class AgentCalls:
    """Those that one broker makes, and those that reach it."""

    def __init__(self, port: Port, graph: SkipGraph, calls: RangeCalls, run: Run) -> None:
        self._port = port
        self._graph = graph
        self._calls = calls
        self._run = run
        self._serial = 0

    @property
    def bodies(self) -> Bodies:
        return {AgentCall: self._answer}

    def _answer(self, call: AgentCall, keys: list[Key]) -> list[Answer]:
        return self._run(call, broker_key(self._port.me.name) in keys)

    def register_attribute(self, attribute: str, done: Callable[[], None]) -> None:
        """This broker now hosts an agent with the attribute."""
        self._graph.insert(attribute_key(attribute, self._port.me, self._port.order), done)

    def unregister_attribute(self, attribute: str) -> None:
        self._graph.remove(attribute_key(attribute, self._port.me, self._port.order), lambda: None)

    def call_agents(
        self,
        attribute: str,
        method: str,
        args: tuple[Any, ...],
        done: Callable[[Outcome], None],
        *,
        broker: str | None = None,
    ) -> None:
        """Call a method of all agents with an attribute, or of the agent of that name at one broker; empty: at each."""
        self._serial += 1
        wanted = holders(attribute) if broker is None else one_broker(broker) if broker else ALL_BROKERS
        self._calls.call(wanted, AgentCall(attribute, method, args, self._serial, self._port.me), done, ATTEMPTS)
