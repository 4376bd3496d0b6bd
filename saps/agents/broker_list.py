"""BOTH: the broker list of a topic, as the overlay knows it, and whether its tree has been outgrown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saps.agents.api import AgentRegistry, Answers
from saps.agents.switchover import OFM, Member
from saps.overlay.port import Port
from saps.overlay.rendezvous.publisher_registry import PublisherRegistry
from saps.overlay.ring.keys import BrokerRef

LOOK = 1.0
"""Seconds between two looks at whether a topic has subscribers outside its tree. Less puts them into it sooner, and may
take those for outside who are about to join it (`saps.agents.both.LONGEST_WAIT`)."""


def gather(registry: AgentRegistry, topic: str, done: Callable[[list[Any], list[Any]], None]) -> None:
    """Collect the broker list of a topic, and the brokers that publish to it (as `Member.plain`)."""

    def gathered(answers: Answers) -> None:
        parties = [answer.value for answer in answers if answer.error is None and answer.value is not None]
        members = [plain for plain, subscribes, _ in parties if subscribes]
        senders = [plain for plain, _, publishes in parties if publishes]
        done(members, senders)

    registry.discovery_call(OFM, "party", (topic,), gathered)


class Outgrown:
    """The topics published here that have a tree, and subscribers outside it: they have come since.

    Each newcomer is told to OFGate once, by the first of the topic's publishers in its domain, by name and incarnation;
    what gets lost, OFGate's own rounds find (`OFGate._sweep`)."""

    def __init__(
        self,
        port: Port,
        registry: AgentRegistry,
        me: Member,
        publishers: PublisherRegistry,
        gate: str,
        near: Callable[[BrokerRef], bool],
        inside: Callable[[str], frozenset[tuple[str, int]] | None],
    ) -> None:
        """`gate`: the attribute of the OFGates; `near`: may this broker be in the same tree; `inside`: name and
        incarnation of those in the tree of a topic published here, None if it has none."""
        self._port = port
        self._registry = registry
        self._me = me
        self._publishers = publishers
        self._gate = gate
        self._near = near
        self._inside = inside
        self._told: dict[str, frozenset[BrokerRef]] = {}
        """Topics that are looked at, and who of their subscribers has been told."""

    def watch(self, topic: str) -> None:
        """Look at a topic published here for as long as it has a tree."""
        if topic not in self._told and self._inside(topic) is not None:
            self._told[topic] = frozenset()
            self._port.after(LOOK, lambda: self._look(topic))

    def outside(self, topic: str) -> frozenset[BrokerRef]:
        """The subscribers outside the tree; none if there is no tree."""
        inside = self._inside(topic)
        if inside is None:
            return frozenset()
        stream = self._publishers.stream(topic)
        self._publishers.route(stream)
        members = stream.members or ()
        return frozenset(ref for ref in members if self._near(ref) and (ref.name, ref.incarnation) not in inside)

    def _look(self, topic: str) -> None:
        told = self._told.pop(topic)
        if self._inside(topic) is None:
            return
        outside = self._told[topic] = self.outside(topic)
        if not outside <= told:
            gather(self._registry, topic, lambda members, senders: self._tell(topic, members, senders))
        self._port.after(LOOK, lambda: self._look(topic))

    def _tell(self, topic: str, members: list[Any], senders: list[Any]) -> None:
        publishing = [
            (ref.name, ref.incarnation) for ref in (Member.of(plain).ref for plain in senders) if self._near(ref)
        ]
        if min(publishing, default=None) != (self._me.ref.name, self._me.ref.incarnation):
            return

        def answered(answers: Answers) -> None:
            if topic in self._told and not any(answer.error is None and answer.value is not None for answer in answers):
                self._told[topic] = frozenset()

        self._registry.discovery_call(self._gate, "construct", (topic, members, senders, False), answered)
