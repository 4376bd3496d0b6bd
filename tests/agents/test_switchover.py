"""Topics move between ALM and OFM while they are live, on the simulator, with random schedules.

A seed that fails is to be kept, as an `example`.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saps.agents.switchover import Mode
from saps.ofm.simulated import OfmFaults

from .switchovers import Scene, failures, losses, moves

pytestmark = pytest.mark.simulation

MODES = [Mode.EITHER, Mode.BOTH, None]
SEEDS = st.integers(0, 2**32 - 1)
SCHEDULES = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("mode", MODES)
@SCHEDULES
@given(seed=SEEDS)
def test_moves_lose_double_and_disorder_nothing(mode: Mode | None, seed: int) -> None:
    """Every QoS; and no datagram ever goes to a tree that is not as its sender was told."""
    moves(seed, mode)


@pytest.mark.parametrize("mode", MODES)
@SCHEDULES
@given(seed=SEEDS)
def test_lost_datagrams_cost_no_message_with_qos_1_or_2(mode: Mode | None, seed: int) -> None:
    losses(seed, mode)


@pytest.mark.parametrize("mode", MODES)
@SCHEDULES
@given(seed=SEEDS)
def test_failures_of_switches_controller_and_ofgate_cost_no_message_with_qos_1_or_2(
    mode: Mode | None, seed: int
) -> None:
    failures(seed, mode)


def steady(mode: Mode, *, brokers: int = 8) -> Scene:
    """b0 publishes a/b, b2 and all behind subscribe; the tree is there and in use."""
    scene = Scene(1, mode, OfmFaults(), brokers=brokers)
    for broker in scene.brokers[2:]:
        scene.recorder.subscribe(broker, "a/b")
    scene.simulation.run(2)
    publish(scene, 1)
    scene.simulation.run(0.5)
    scene.ofm.agents["b0"].construct("a/b")
    publish(scene, 200)
    scene.simulation.run(3)
    return scene


def publish(scene: Scene, count: int, qos: int = 0) -> None:
    for _ in range(count):
        scene.recorder.publish(scene.brokers[0], "a/b", qos)
        scene.simulation.run(0.01)


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_publication_by_ofm_is_one_datagram_and_no_message_by_alm(mode: Mode, qos: int) -> None:
    scene = steady(mode)
    datagrams, messages = scene.ofm.sent, scene.simulation.counters.data
    publish(scene, 50, qos)
    assert (scene.ofm.sent - datagrams, scene.simulation.counters.data - messages) == (50, 0)
    scene.simulation.run(5)
    scene.recorder.judge()


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_acknowledgements_are_gathered(mode: Mode) -> None:
    scene = steady(mode)
    before = scene.simulation.counters.by_kind.get("OfmAck", 0)
    for _ in range(100):
        scene.recorder.publish(scene.brokers[0], "a/b", 1)
    scene.simulation.run(1)
    assert len(scene.recorder.confirmed) >= 100
    assert scene.simulation.counters.by_kind["OfmAck"] - before <= 2 * 6


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_a_vanished_tree_costs_no_message_of_any_qos_and_is_used_again_when_it_is_back(mode: Mode) -> None:
    """The loopback packets stay away: what was outstanding goes by ALM."""
    scene = steady(mode)
    trees = dict(scene.ofm.trees)
    scene.ofm.trees.clear()
    for qos in (0, 1, 2):
        publish(scene, 20, qos)
    assert scene.ofm.datapaths["b0"].counts["failed"] == 1
    scene.ofm.trees.update(trees)
    scene.simulation.run(20)
    before = scene.simulation.counters.data
    publish(scene, 20)
    assert scene.simulation.counters.data == before
    scene.simulation.run(5)
    scene.recorder.judge()


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_a_lost_end_of_a_burst_is_found_by_its_high_water_mark(mode: Mode) -> None:
    scene = steady(mode)
    publish(scene, 5)
    scene.ofm.faults.loss = 1.0
    scene.recorder.publish(scene.brokers[0], "a/b", 0)
    scene.ofm.faults.loss = 0.0
    scene.simulation.run(5)
    scene.recorder.judge()


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_a_message_too_large_for_a_datagram_goes_by_alm_in_its_place(mode: Mode) -> None:
    scene = steady(mode)
    before = scene.ofm.sent
    payloads = [b"%06d" % i + bytes(2000 * (i % 2)) for i in range(20)]
    for payload in payloads:
        scene.brokers[0].publish("a/b", payload)
    assert scene.ofm.sent - before == 10
    scene.simulation.run(3)
    for broker in scene.brokers[2:]:
        assert [message.payload for _, message in broker.delivered][-20:] == payloads


def test_the_last_leave_deletes_the_tree() -> None:
    for mode in (Mode.EITHER, Mode.BOTH):
        scene = steady(mode)
        assert scene.ofm.trees
        for broker in scene.brokers[2:]:
            scene.recorder.unsubscribe(broker, "a/b")
        scene.simulation.run(5)
        assert not scene.ofm.trees
        assert not scene.controller.ofms


def test_queries_to_ofgate_are_those_of_the_equations_less_what_leases_save() -> None:
    """Eq. (1): EITHER asks at each publication, join and leave; Eq. (2): BOTH at each leave of the tree. Leases replace
    the questions at each publication by two for each lease time."""
    seconds, rate = 20.0, 50
    counted = {}
    for mode in (Mode.EITHER, Mode.BOTH):
        scene = steady(mode)
        scene.gate.queries.clear()
        for broker in scene.brokers[5:]:
            scene.recorder.unsubscribe(broker, "a/b")
        scene.simulation.run(2)
        for broker in scene.brokers[5:7]:
            scene.recorder.subscribe(broker, "a/b")
        for _ in range(int(seconds * rate)):
            scene.recorder.publish(scene.brokers[0], "a/b", 0)
            scene.simulation.run(1 / rate)
        scene.recorder.judge()
        counted[mode] = dict(scene.gate.queries)
    leaves, joins, publications = 3, 2, int(seconds * rate)
    either, both = counted[Mode.EITHER], counted[Mode.BOTH]
    assert (either["joined"], either["left"]) == (joins, leaves)
    changes = 2  # of the tree: after the leaves and after the joins, each two questions by each publisher
    assert either["status"] <= 2 * (seconds / 10.0 + 1) + 4 * changes < publications
    assert both == {"left_tree": leaves}
