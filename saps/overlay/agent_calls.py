"""Calls agents by attribute, through range calls: the overlay's side of the agent API (`saps.agents.api.Caller`)."""

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
"""Runs a call at the broker's agents with the attribute, or (True) at the user agent of that name. Returns their
answers."""


class AgentCalls:
    """The agent calls that one broker makes, and those that reach it."""

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
        """Insert a key for an agent with the attribute at this broker. `done` runs when calls reach the agent."""
        self._graph.insert(attribute_key(attribute, self._port.me, self._port.order), done)

    def unregister_attribute(self, attribute: str) -> None:
        """Remove the key of an agent that this broker no longer hosts."""
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
        """Call a method of agents. `done` gets the outcome, with an `Answer` from each agent.

        Without `broker` the call goes to all agents with the attribute. With it, to the agent of that name at this
        broker, or at each broker if `broker` is empty. `args` are any values that MessagePack can hold.
        """
        self._serial += 1
        wanted = holders(attribute) if broker is None else one_broker(broker) if broker else ALL_BROKERS
        self._calls.call(wanted, AgentCall(attribute, method, args, self._serial, self._port.me), done, ATTEMPTS)
