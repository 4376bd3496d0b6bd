"""The controller moves trees to other links, and addresses, while topics are in use: OFGate and the brokers follow."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.simulated_ofm import OfmFaults
from saps.agents.switchover import Mode
from saps.ofm.northbound.schema import Status
from tests.agents.switchovers import QUIET, TOPICS, Scene
from tests.drawn import schedules

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
@schedules(2)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_tree_that_moves_costs_nothing_and_is_followed(mode: Mode, seed: int) -> None:
    """No message of any QoS is lost, doubled or disordered, nobody sends to a tree that is not as it was told, and
    publishers have left the former tree when it goes."""
    latency = (0.0002, random.Random(seed).choice([0.001, 0.02]))
    scene = Scene(seed, mode, OfmFaults(latency=latency), lease=5.0)
    scene.begin()
    for topic in TOPICS:
        scene.construct(topic)
    scene.traffic(2.0)
    for _ in range(2):
        for topic, state in list(scene.controller.ofms.items()):
            if state.status is Status.CONSTRUCTED and state.former is None:
                scene.controller.move(topic, overlap=6.0)
        scene.traffic(1.0)
        scene.simulation.run(1)
        scene.traffic(0.3, churn=False)
    scene.simulation.run(QUIET)
    for _ in range(20):
        for publisher in scene.brokers[:2]:
            scene.recorder.publish(publisher, TOPICS[0], 0)
        scene.simulation.run(0.01)
    scene.simulation.run(QUIET)
    scene.recorder.judge()
    assert scene.ofm.ring_split == 0, f"the tree was changed under its users (seed {seed})"
    if TOPICS[0] in scene.controller.ofms:
        tree = next(topic.tree for topic in scene.gate._terms.construction.topics.values() if topic.name == TOPICS[0])  # type: ignore[union-attr]
        assert tree is not None
        assert tree.address == scene.controller.ofms[TOPICS[0]].address
