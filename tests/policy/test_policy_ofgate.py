"""OFGate asks for no tree with a broker that may not have the topic."""

from __future__ import annotations

import pytest

from research.simulated_ofm import OfmFaults
from saps.agents.switchover import Member, Mode
from saps.ofm.northbound.schema import Status
from tests.agents.switchovers import Scene

pytestmark = pytest.mark.simulation


def test_a_tree_is_made_without_those_who_may_not_have_the_topic() -> None:
    scene = Scene(1, Mode.EITHER, OfmFaults())
    publisher, *others = scene.brokers[2:]
    barred = others[0].name

    def permitted(topic: str, member: Member) -> bool:
        return (topic, member.ref.name) != ("a/b", barred)

    for broker in (*others, publisher):
        broker.subscribe("a/b")
        broker.subscribe("x/y")
    scene.simulation.run(2)
    for gate in scene.gates:
        gate.obey(permitted)
    for topic in ("a/b", "x/y"):
        publisher.act(lambda topic=topic: scene.ofm.agents[publisher.name].construct(topic))  # type: ignore[misc]
    scene.simulation.run(5)
    construction = scene.gate._terms.construction
    assert construction is not None
    asked = {name: {m.ref.name for m in scene.gate._roster.at(t.built[0] | t.built[1])}
             for name, t in construction.topics.items() if t.built is not None}  # fmt: skip
    everyone = {broker.name for broker in (*others, publisher)}
    assert asked == {"a/b": everyone - {barred}, "x/y": everyone}
    assert {t.status for t in construction.topics.values()} == {Status.CONSTRUCTED}
