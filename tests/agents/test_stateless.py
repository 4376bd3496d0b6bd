"""Topics leave by the address of those who subscribe, on the simulator, with random schedules.

A seed that fails is to be kept.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.simulated_ofm import OfmFaults
from saps.agents.stateless import Choice
from saps.agents.switchover import Mode
from saps.ofm.datapath.settings import DatapathSettings
from saps.ofm.stateless.address import EVERY_TOPIC
from saps.policy.model import Policy, Verdict
from tests.agents.switchovers import QUIET, TOPICS, Scene
from tests.drawn import schedules

pytestmark = pytest.mark.simulation

SEEDS = st.integers(0, 2**32 - 1)
SCHEDULES = schedules(2)
STATELESS = Choice("stateless")
AUTO = Choice("auto")
MOST = DatapathSettings(largest=1472)


def scene(
    seed: int = 1, faults: OfmFaults | None = None, choice: Choice = STATELESS, settings: DatapathSettings | None = None
) -> Scene:
    """Seven brokers that have their bits, and OFGates that lead."""
    made = Scene(seed, Mode.EITHER, faults or OfmFaults(latency=(0.0002, 0.001)), settings=settings, choice=choice)
    made.simulation.run(4)
    return made


def counted(made: Scene, what: str) -> int:
    return sum(datapath.counts[what] for datapath in made.ofm.datapaths.values())


@pytest.mark.parametrize("choice", [STATELESS, AUTO])
@SCHEDULES
@given(seed=SEEDS)
def test_brokers_come_and_go_and_planes_change_and_nothing_is_lost_doubled_or_disordered(
    choice: Choice, seed: int
) -> None:
    """Every QoS. Topics may get trees of their own meanwhile."""
    made = scene(seed, choice=choice)
    made.begin()
    for _ in range(6):
        if made.rng.random() < 0.5:
            made.construct(made.rng.choice(TOPICS))
        made.traffic(made.rng.choice([0.05, 0.3, 1.5]))
        made.controller.relay(sorted(made.rng.sample(range(4), made.rng.randrange(1, 4))))
        made.traffic(made.rng.choice([0.05, 0.3]))
        if made.rng.random() < 0.5:
            made.release(made.rng.choice(TOPICS))
    made.simulation.run(QUIET)
    made.recorder.judge()
    assert counted(made, "carried") > 0


@SCHEDULES
@given(seed=SEEDS)
def test_lost_datagrams_and_broken_planes_cost_no_message_with_qos_1_or_2(seed: int) -> None:
    dice = random.Random(seed)
    faults = OfmFaults(loss=dice.choice([0, 0.01, 0.2]), duplicate=0.05, latency=(0.0002, dice.choice([0.002, 0.03])))
    made = scene(seed, faults)
    made.begin()
    names = [broker.name for broker in made.brokers]
    for _ in range(6):
        made.traffic(dice.choice([0.1, 0.5, 1.0]), churn=dice.random() < 0.5)
        act = dice.choice(["break", "break", "mend", "switches", "controller", "all"])
        if act == "break":
            faults.broken[dice.randrange(3)] = set(dice.sample(names, dice.randrange(1, 4)))
        elif act == "mend":
            faults.broken.clear()
        elif act == "all":
            faults.broken.update((plane, set(dice.sample(names, 2))) for plane in range(3))
        elif act == "controller":
            made.controller.crash()
            later = made.simulation.now + dice.choice([0.1, 2.0])
            made.simulation.at(later, lambda: made.controller.restart(dice.random() < 0.5))
        else:
            made.ofm.switches.sets = ()
            made.controller.reset_switches()
    faults.broken.clear()
    made.simulation.run(3 * QUIET)
    made.recorder.judge(faulty=True)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_first_publication_is_one_datagram_and_asks_nobody(qos: int) -> None:
    made = scene(settings=MOST)
    recorder, publisher = made.recorder, made.brokers[2]
    for broker in made.brokers[3:]:
        recorder.subscribe(broker, "a/+")
    made.simulation.run(2)
    asked, told = dict(made.gate.queries), made.controller.ofms[EVERY_TOPIC]
    for number in range(20):
        recorder.publish(publisher, f"a/{number}", qos)
    made.simulation.run(1)
    recorder.judge()
    datapath = made.ofm.datapaths[publisher.name]
    assert (datapath.counts["carried"], datapath.counts["repeated"]) == (20, 0)
    assert publisher.node.delivery.multicast.sent == 0
    assert made.gate.queries == asked
    assert made.controller.ofms == {EVERY_TOPIC: told}


def test_topics_with_known_loads_are_spread_over_the_planes_and_what_they_carry_is_told() -> None:
    """All brokers are told, one that has started again too. Nothing is lost as topics change their planes."""
    made = scene(settings=MOST)
    made.begin()
    made.traffic(0.5, churn=False)
    loads = dict.fromkeys(TOPICS, 1000.0)
    made.gate.spread(loads)
    made.traffic(0.5, churn=False)
    planes = [each["plane"] for each in made.gate.describe()["planes"]]
    spread = {topic: planes[number % len(planes)] for number, topic in enumerate(sorted(TOPICS))}
    made.simulation.crash("b6")
    made.simulation.run(4)
    made.simulation.add("b6", "c0", "b0")
    made.simulation.run(12)
    agents = [made.ofm.agents[broker.name] for broker in made.simulation.alive()]
    for agent in agents:
        assert agent.directory is not None
        assert {topic: agent.directory.first(topic) for topic in TOPICS} == spread
    carried = [each["carried"] for each in made.gate.describe()["planes"]]
    assert sum(carried) == sum(loads.values())
    assert max(carried) <= min(carried) + 1000.0
    made.gate.spread({})
    made.traffic(0.5, churn=False)
    assert all(agent.directory is not None and not agent.directory.spread for agent in agents)
    made.simulation.run(QUIET)
    made.recorder.judge(faulty=True)


def test_who_subscribes_gets_it_with_its_suback_and_no_word_to_the_controller() -> None:
    made = scene(settings=MOST)
    recorder, publisher = made.recorder, made.brokers[2]
    recorder.subscribe(made.brokers[3], "a/b")
    made.simulation.run(1)
    recorder.publish(publisher, "a/b", 1)
    made.simulation.run(1)
    before = made.controller.ofms[EVERY_TOPIC]
    recorder.subscribe(made.brokers[4], "a/b")
    made.simulation.run(1)
    recorder.publish(publisher, "a/b", 1)
    recorder.unsubscribe(made.brokers[3], "a/b")
    made.simulation.run(1)
    recorder.publish(publisher, "a/b", 1)
    made.simulation.run(1)
    recorder.judge()
    assert publisher.node.delivery.multicast.sent == 0
    assert made.controller.ofms == {EVERY_TOPIC: before}
    received = [made.ofm.datapaths[broker.name].counts["received"] for broker in made.brokers]
    assert [received[3], received[4]] == [2, 2]
    assert sum(received) == 4, "nobody else gets a copy"


@pytest.mark.parametrize("qos", [0, 1])
def test_a_plane_that_does_not_reach_a_member_is_changed_by_the_sender_itself(qos: int) -> None:
    faults = OfmFaults(latency=(0.0002, 0.001))
    made = scene(faults=faults, settings=MOST)
    recorder, publisher = made.recorder, made.brokers[2]
    for broker in made.brokers[3:]:
        recorder.subscribe(broker, "a/b")
    made.simulation.run(1)
    recorder.publish(publisher, "a/b", qos)
    made.simulation.run(1)
    datapath = made.ofm.datapaths[publisher.name]
    (path,) = datapath._paths.values()
    assert path.sending is not None
    used = path.sending.plane
    faults.broken[used] = {made.brokers[4].name}
    for _ in range(200):
        recorder.publish(publisher, "a/b", qos)
        made.simulation.run(0.005)
    made.simulation.run(1)
    recorder.judge()
    assert path.sending.plane != used
    assert datapath.counts["planes_changed"] == 1
    assert datapath.counts["failed"] == 0
    assert path.in_use


@pytest.mark.parametrize("qos", [0, 1])
def test_a_plane_that_takes_nothing_from_the_sender_is_changed_and_without_any_alm_carries_on(qos: int) -> None:
    faults = OfmFaults(latency=(0.0002, 0.001))
    made = scene(faults=faults, settings=MOST)
    recorder, publisher = made.recorder, made.brokers[2]
    recorder.subscribe(made.brokers[4], "a/b")
    made.simulation.run(1)
    recorder.publish(publisher, "a/b", qos)
    made.simulation.run(1)
    datapath = made.ofm.datapaths[publisher.name]
    (path,) = datapath._paths.values()
    assert path.sending is not None
    faults.broken[path.sending.plane] = {publisher.name}
    for _ in range(20):
        recorder.publish(publisher, "a/b", qos)
        made.simulation.run(0.01)
    assert (datapath.counts["planes_changed"], datapath.counts["failed"]) == (1, 0)
    for plane in range(3):
        faults.broken[plane] = {publisher.name}
    for _ in range(20):
        recorder.publish(publisher, "a/b", qos)
        made.simulation.run(0.01)
    assert datapath.counts["failed"] == 1, "ALM takes over when all planes are broken"
    made.simulation.run(3)
    recorder.judge(faulty=not qos)
    faults.broken.clear()


def test_a_member_without_a_bit_is_served_by_alm() -> None:
    made = scene(settings=MOST)
    recorder, publisher = made.recorder, made.brokers[2]
    late = made.simulation.add("late", "c0", "b0")
    made.simulation.run_until(lambda: late.joined)
    for broker in (made.brokers[3], late):
        recorder.subscribe(broker, "a/b")
    made.ofm.switches.sets = tuple(
        tuple(None if host == made.ofm.host_of("late") else host for host in members)
        for members in made.ofm.switches.sets
    )
    for _ in range(10):
        recorder.publish(publisher, "a/b", 2)
        made.simulation.run(0.1)
    made.simulation.run(1)
    recorder.judge()


def test_a_broker_keeps_its_bit_when_others_come_and_go() -> None:
    made = scene()
    before = {host: at for members in made.ofm.switches.sets for at, host in enumerate(members)}
    made.simulation.crash("b5")
    made.simulation.run(25)
    made.simulation.add("new", "c0", "b0")
    made.simulation.run(15)
    after = {host: at for members in made.ofm.switches.sets for at, host in enumerate(members)}
    gone, new = made.ofm.host_of("b5"), made.ofm.host_of("new")
    assert gone not in after
    assert after.pop(new) == before.pop(gone), "the free bit"
    assert after == before


@pytest.mark.parametrize("qos", [0, 2])
def test_members_of_several_sets_get_a_datagram_for_each_set(monkeypatch: pytest.MonkeyPatch, qos: int) -> None:
    monkeypatch.setattr("saps.ofm.stateless.tables.BITS", 3)
    made = scene(settings=MOST)
    assert [len(members) for members in made.ofm.switches.sets] == [3, 3, 1]
    recorder, publisher = made.recorder, made.brokers[2]
    for broker in made.brokers:
        recorder.subscribe(broker, "a/b")
    made.simulation.run(1)
    before = made.ofm.sent
    recorder.publish(publisher, "a/b", qos)
    made.simulation.run(0.02)
    assert made.ofm.sent - before == 3
    made.simulation.run(1)
    recorder.judge()
    assert made.ofm.datapaths[publisher.name].counts["returned"] > 0
    assert publisher.node.delivery.multicast.sent == 0


@pytest.mark.parametrize("choice", [STATELESS, AUTO])
def test_without_planes_topics_go_by_their_trees_and_with_auto_also_beside_them(choice: Choice) -> None:
    made = scene(choice=choice, settings=MOST)
    recorder, publisher = made.recorder, made.brokers[2]
    recorder.subscribe(made.brokers[4], "a/b")
    made.simulation.run(1)

    def group() -> str:
        recorder.publish(publisher, "a/b", 1)
        made.simulation.run(12)  # OFGate's sweep, and a lease
        paths = made.ofm.datapaths[publisher.name]._paths
        return paths["a/b"].group if "a/b" in paths else "by ALM"

    assert group() == EVERY_TOPIC
    publisher.act(lambda: made.ofm.agents[publisher.name].construct("a/b"))
    assert group() == ("a/b" if choice is AUTO else EVERY_TOPIC)
    made.controller.relay([])
    assert group() == "a/b"
    publisher.act(lambda: made.ofm.agents[publisher.name].release("a/b"))
    assert group() == "by ALM"
    made.controller.relay([1])
    assert group() == EVERY_TOPIC
    recorder.judge()


def test_who_got_it_by_alm_meanwhile_acknowledges_the_copy() -> None:
    """Else the publisher would wait until that is repeated by ALM, too."""
    faults = OfmFaults(latency=(0.0002, 0.001))
    made = scene(faults=faults, settings=DatapathSettings(loopback=3.0, mark=1.0))
    recorder, publisher = made.recorder, made.brokers[2]
    recorder.subscribe(made.brokers[4], "a/b")
    made.simulation.run(1)
    recorder.publish(publisher, "a/b", 1)
    made.simulation.run(0.5)
    datapath = made.ofm.datapaths[publisher.name]
    (path,) = datapath._paths.values()
    assert path.sending is not None
    faults.broken[path.sending.plane] = {publisher.name}
    recorder.publish(publisher, "a/b", 1)
    made.simulation.run(3.1)
    assert made.ofm.datapaths["b4"].counts["duplicates"] > 0
    assert datapath.counts["repeated"] == 0
    assert len(recorder.confirmed) == 2
    recorder.judge()


def test_a_topic_that_a_policy_restricts_from_now_on_goes_by_alm() -> None:
    """All brokers hold the key."""
    made = scene(settings=MOST)
    recorder, publisher = made.recorder, made.brokers[2]
    recorder.subscribe(made.brokers[4], "#")
    made.simulation.run(1)
    recorder.publish(publisher, "a/b", 1)
    recorder.publish(publisher, "x/y", 1)
    made.simulation.run(1)
    paths = made.ofm.datapaths[publisher.name]._paths
    assert set(paths) == {"a/b", "x/y"}
    policy = Policy(1, {"a": Verdict(brokers=frozenset({"b6"}))})
    publisher.act(lambda: publisher.node.mesh.obey(policy))
    assert set(paths) == {"x/y"}
    publisher.act(lambda: publisher.node.mesh.obey(Policy(2)))
    assert set(paths) == {"a/b", "x/y"}
