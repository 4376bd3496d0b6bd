"""BOTH: collects the broker list of a topic from the overlay, and finds the topics that have outgrown their tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saps.agents.api import AgentRegistry, Answers
from saps.agents.switchover import OFM, Member, Party, TopicStatus
from saps.overlay.port import Port
from saps.overlay.rendezvous.publisher_registry import PublisherRegistry
from saps.overlay.ring.keys import BrokerRef

LOOK = 1.0
"""Interval in seconds between two checks for subscribers outside a topic's tree. A shorter interval adds them sooner,
but mistakes members that are about to join for outsiders (`saps.agents.both.LONGEST_WAIT`)."""


def gather(registry: AgentRegistry, topic: str, done: Callable[[list[Any], list[Any]], None]) -> None:
    """Collect the broker list of a topic and the brokers that publish to it. `done(members, senders)` gets both as
    lists of `Member.plain`."""

    def gathered(answers: Answers) -> None:
        parties = [party for _, party in answers.of(Party)]
        members = [party.member for party in parties if party.subscribes]
        senders = [party.member for party in parties if party.publishes]
        done(members, senders)

    registry.discovery_call(OFM, "party", (topic,), gathered)


class Outgrown:
    """The topics published here that have a tree and subscribers outside it, who came after its construction.

    The first of the topic's publishers in its domain, by name and incarnation, tells OFGate once of each newcomer.
    OFGate's own sweeps (`OFGate._sweep`) find what gets lost.
    """

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
        """`gate` is the attribute of the OFGates. `near` returns whether a broker may be in the same tree as this
        broker. `inside` returns name and incarnation of each broker in the tree of a topic published here, or None if
        the topic has no tree."""
        self._port = port
        self._registry = registry
        self._me = me
        self._publishers = publishers
        self._gate = gate
        self._near = near
        self._inside = inside
        self._told: dict[str, frozenset[BrokerRef]] = {}
        """Topics under watch, each with its outside subscribers that OFGate has been told of."""

    def watch(self, topic: str) -> None:
        """Watch a topic published here for as long as it has a tree."""
        if topic not in self._told and self._inside(topic) is not None:
            self._told[topic] = frozenset()
            self._port.after(LOOK, lambda: self._look(topic))

    def outside(self, topic: str) -> frozenset[BrokerRef]:
        """Return the subscribers outside the topic's tree: none if the topic has no tree."""
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
            if topic in self._told and not answers.of(TopicStatus):
                self._told[topic] = frozenset()

        self._registry.discovery_call(self._gate, "construct", (topic, members, senders, False), answered)
