"""The simulator at scale: a thousand brokers, exact message counts, logarithmic searches, replay."""

from __future__ import annotations

import math

import pytest

from saps.messages import Reached
from saps.overlay.frames.ring import Found
from saps.overlay.membership.failure_detector import DetectorSettings
from saps.overlay.ring.keys import KeyOrder, broker_key
from saps.simulator import Network, SimBroker, Simulation
from tests.drawn import TIMES

pytestmark = [pytest.mark.simulation, pytest.mark.xdist_group("test_simulation")]
"""On one worker, which builds the thousand once."""

CALM = DetectorSettings(heartbeat=5.0, suspect_after=15.0)
"""For large meshes without faults: pings would only cost time."""


@pytest.fixture(scope="module")
def thousand() -> Simulation:
    simulation = Simulation(7, detector=CALM)
    simulation.check = TIMES > 1  # at each event: half of the time; smaller meshes have it in `make test`
    simulation.build(1000, 10)
    simulation.run(2)
    simulation.check = False  # now the counts matter
    return simulation


def subscribe_all(simulation: Simulation, wanted: list[tuple[SimBroker, str]]) -> None:
    ready: list[str] = []
    for broker, topic_filter in wanted:
        broker.subscribe(topic_filter, lambda topic_filter=topic_filter: ready.append(topic_filter))  # type: ignore[misc]
    simulation.run_until(lambda: len(ready) == len(wanted))


def test_the_ring_of_a_thousand_brokers_is_whole(thousand: Simulation) -> None:
    thousand.check_ring()


def test_a_search_takes_logarithmic_hops(thousand: Simulation) -> None:
    hops: list[int] = []

    def found(answer: Found) -> None:
        hops.append(answer.hops)

    brokers = list(thousand.brokers.values())
    for i in range(200):
        target = broker_key(brokers[thousand.rng.randrange(1000)].name)
        brokers[i].act(lambda i=i, target=target: brokers[i].node.graph.find(target, found))  # type: ignore[misc]
    thousand.run_until(lambda: len(hops) == 200)
    assert sum(hops) / 200 < 2 * math.log2(1000)
    assert max(hops) < 5 * math.log2(1000)


@pytest.mark.parametrize(
    ("members", "qos"), [(0, 0), (1, 1), (2, 0), (30, 1), pytest.param(100, 1, marks=pytest.mark.soak)]
)
def test_k_subscribing_brokers_cost_exactly_k_messages(thousand: Simulation, members: int, qos: int) -> None:
    topic = f"city/{members}/{qos}"
    brokers = list(thousand.brokers.values())
    publisher, others = brokers[500], brokers[:500] + brokers[501:]
    chosen = thousand.rng.sample(others, members)
    kinds = [topic, f"city/{members}/+", f"city/+/{qos}", f"+/{members}/{qos}"]
    wanted = [(broker, kinds[i % 4]) for i, broker in enumerate(chosen)]
    wanted += [(broker, topic) for broker in chosen[::3]]  # overlapping filters must not cost a second message
    subscribe_all(thousand, wanted)
    reached: list[Reached] = []
    publisher.publish(topic, b"first", qos, reached.append)  # the rendezvous
    thousand.run(0.5)
    before = thousand.counters.data
    received = {broker.name: len(broker.delivered) for broker in brokers}
    for _ in range(5):
        publisher.publish(topic, b"steady", qos, reached.append)
        thousand.run(0.2)
    assert thousand.counters.data - before == 5 * members
    for broker in others:
        assert len(broker.delivered) - received[broker.name] == (5 if broker in chosen else 0)
    if qos:
        assert reached == [Reached(members, members)] * 6
    for broker, topic_filter in wanted:
        broker.unsubscribe(topic_filter)
    thousand.run(0.5)


def test_a_subscription_costs_messages_only_near_its_topic(thousand: Simulation) -> None:
    kinds = ("Insert", "Inserted", "SetLeft", "Locate", "Broadcast", "Gathered")

    def cost() -> int:
        return sum(thousand.counters.by_kind.get(kind, 0) for kind in kinds)

    thousand.run(10)  # until what earlier tests withdrew is gone
    before = cost()
    subscribe_all(thousand, [(thousand.brokers["b17"], "nobody/publishes/this")])
    assert cost() - before < 25 * math.log2(1000)


def run_once(seed: int) -> str:
    simulation = Simulation(seed, network=Network(latency=(0.001, 0.02), reset=0.001), order=KeyOrder.ALM, trace=True)
    brokers = simulation.build(12, 3)
    for i, broker in enumerate(brokers):
        broker.subscribe("a/+" if i % 2 else "a/b")
        broker.publish("a/b", b"x", i % 3)
        simulation.run(0.01)
    simulation.crash("b5")
    simulation.run(5)
    return simulation.counters.digest


def test_a_run_can_be_repeated_exactly() -> None:
    assert run_once(3) == run_once(3)
    assert run_once(3) != run_once(4)
