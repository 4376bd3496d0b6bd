"""Several OpenFlow domains: one message to each, one datagram in each, exactly once, whoever dies."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from research.simulated_ofm import OfmFaults
from saps.agents.switchover import Mode
from saps.overlay.delivery.tree import divide
from saps.overlay.rendezvous.domains import Domains, representative
from saps.overlay.ring.keys import BrokerRef, KeyOrder
from tests.agents.domain_scenes import DOMAINS, TOPIC, TwoDomains
from tests.drawn import schedules

pytestmark = pytest.mark.simulation

MODES = [Mode.EITHER, Mode.BOTH]
SEEDS = st.integers(0, 2**32 - 1)
SCHEDULES = schedules(2)
QUIET = 6.0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("qos", [0, 1])
def test_a_publication_is_one_datagram_in_each_domain_and_one_message_between_them(mode: Mode, qos: int) -> None:
    scene = TwoDomains(1, mode, OfmFaults(), largest=1472)
    scene.subscribe()
    rest = len(scene.of("c2"))
    datagrams, messages = scene.ofm.sent, scene.simulation.counters.data
    scene.publish(50, qos)
    assert (scene.ofm.sent - datagrams, scene.simulation.counters.data - messages) == (2 * 50, (1 + rest) * 50)
    assert scene.ofm.datapaths[scene.representative.name].counts["relayed"] >= 50
    scene.simulation.run(QUIET)
    scene.recorder.judge()
    assert scene.ofm.ring_split == 0


@pytest.mark.parametrize("mode", MODES)
@SCHEDULES
@given(seed=SEEDS)
@example(seed=7439)  # a member left the tree and published on as if it were a sender
def test_while_members_and_trees_come_and_go_nothing_is_lost_doubled_or_disordered(mode: Mode, seed: int) -> None:
    latency = (0.0002, random.Random(seed).choice([0.001, 0.02]))
    scene = TwoDomains(seed, mode, OfmFaults(latency=latency))
    scene.subscribe()
    for _ in range(6):
        act = scene.rng.choice(["leave", "representative", "release", "construct", "nothing"])
        candidates = [b for b in scene.brokers[4:] if any(i.ended is None for i in scene.recorder.intervals[b])]
        if act == "representative" and scene.subscribers(DOMAINS[1]):
            scene.recorder.unsubscribe(scene.representative, "a/#")
        elif act == "leave" and candidates:
            scene.recorder.unsubscribe(scene.rng.choice(candidates), "a/#")
        elif act in ("release", "construct"):
            broker = scene.of(scene.rng.choice(DOMAINS))[2]
            order = getattr(scene.ofm.agents[broker.name], act)
            broker.act(lambda order=order: order(TOPIC))  # type: ignore[misc]
        for _ in range(20):
            publisher = scene.rng.choice([scene.publisher, scene.brokers[1], scene.brokers[2]])
            scene.publish(1, scene.rng.choice([0, 0, 1, 2]), publisher)
        scene.simulation.run(scene.rng.choice([0.0, 0.3, 2.0]))
    scene.simulation.run(QUIET)
    scene.recorder.judge()
    assert scene.ofm.ring_split == 0, f"the tree was changed under its users (seed {seed})"


@pytest.mark.parametrize("mode", MODES)
@SCHEDULES
@given(seed=SEEDS)
def test_when_the_representative_dies_another_takes_its_place_and_no_message_with_qos_1_or_2_is_lost(
    mode: Mode, seed: int
) -> None:
    scene = TwoDomains(seed, mode, OfmFaults(loss=random.Random(seed).choice([0, 0.05])), largest=1472)
    scene.subscribe()
    scene.publish(10, 1)
    first = scene.representative
    scene.simulation.crash(first.name)
    for qos in (1, 2, 0, 1):
        scene.publish(15, qos)
        scene.simulation.run(scene.rng.choice([0.0, 1.0]))
    second = scene.representative
    assert second is not first
    for _ in range(60):
        if scene.ofm.datapaths[second.name].counts["relayed"]:
            break
        scene.publish(5, 1)
        scene.simulation.run(0.3)
    assert scene.ofm.datapaths[second.name].counts["relayed"], "the next one stands for the domain"
    scene.simulation.run(2 * QUIET)
    scene.recorder.judge(faulty=True)


@pytest.mark.parametrize("mode", MODES)
@SCHEDULES
@given(seed=SEEDS)
def test_datagrams_that_are_lost_doubled_and_overtaken_cost_no_message_with_qos_1_or_2(mode: Mode, seed: int) -> None:
    rng = random.Random(seed)
    scene = TwoDomains(seed, mode, OfmFaults(loss=rng.choice([0.02, 0.3]), duplicate=0.05, latency=(0.0002, 0.02)))
    for broker in scene.brokers[1:]:
        scene.recorder.subscribe(broker, "a/#")
    scene.simulation.run(2)
    for domain in DOMAINS:
        broker = scene.of(domain)[2]
        broker.act(lambda broker=broker: scene.ofm.agents[broker.name].construct(TOPIC))  # type: ignore[misc]
    for _ in range(60):
        scene.publish(3, scene.rng.choice([0, 1, 2]))
        scene.simulation.run(0.05)
    scene.simulation.run(3 * QUIET)
    scene.recorder.judge(faulty=True)


clusters = st.sampled_from(["tokyo/w1", "tokyo/w2", "osaka", "osaka/x", "kyoto", "tokyo2", ""])


@given(members=st.lists(clusters, max_size=12), order=st.sampled_from(KeyOrder), topic=st.text(max_size=4))
def test_each_member_is_in_one_branch_and_each_foreign_domain_is_one(
    members: list[str], order: KeyOrder, topic: str
) -> None:
    me = BrokerRef("me", 1, "", "tokyo/w1")
    refs = [BrokerRef(f"b{number}", 1, "", cluster) for number, cluster in enumerate(members)]
    domains = Domains(["tokyo", "osaka/", "tokyo/w2"])
    branches = domains.divide(me, topic, refs, order)
    assert sorted(ref.name for child, rest in branches for ref in (child, *rest)) == sorted(ref.name for ref in refs)
    for name in ("osaka", "tokyo/w2"):
        there = [ref for ref in refs if domains.of(ref) == name]
        own = [branch for branch in branches if branch.child in there]
        assert len(own) == bool(there)
        assert all(branch.child == representative(topic, there) for branch in own)
        assert all({branch.child, *branch.slice} == set(there) for branch in own)
    near = [ref for ref in refs if not domains.foreign(me, ref)]
    assert {ref.cluster for ref in near} <= {"tokyo/w1", "kyoto", "tokyo2", ""}
    assert branches[: len(divide(me, near, order))] == divide(me, near, order)


def test_only_for_another_domain_may_anybody_speak() -> None:
    scene = TwoDomains(3, Mode.EITHER, OfmFaults(), brokers=6)
    here, there = scene.of("c0"), scene.of("c1")
    represents = scene.ofm.datapaths[there[0].name].receiver.represents
    assert represents(there[1].node.port.me, here[0].node.port.me)
    assert not represents(there[1].node.port.me, there[0].node.port.me)
