"""An orderly leave takes as long as its messages do where everybody is healthy: nobody waits for what cannot come."""

from __future__ import annotations

import random
from collections.abc import Iterable, Set
from functools import partial

import pytest

from saps.overlay.ring.keys import BrokerRef, Key
from saps.overlay.ring.skip_graph import SkipGraph
from saps.simulator import Network, Simulation
from tests.overlay.scenes import FILTERS, Recorder, random_step

pytestmark = pytest.mark.simulation

SOON = 2.0
"""Virtual seconds: many round trips, and a range call that is repeated as it met a broker that has just gone."""
AT_ONCE = 0.5
"""The same without anybody that has just gone."""


def mesh(seed: int, count: int) -> tuple[random.Random, Recorder]:
    """Brokers with subscribers, and streams open, under traffic of QoS 0, 1 and 2."""
    rng = random.Random(seed)
    recorder = Recorder(Simulation(seed, network=Network(latency=(0.001, 0.002))))
    recorder.simulation.build(count, 3)
    for broker in recorder.simulation.alive():
        for topic_filter in rng.sample(FILTERS, 3):
            recorder.subscribe(broker, topic_filter)
    traffic(rng, recorder, 30)
    return rng, recorder


def traffic(rng: random.Random, recorder: Recorder, steps: int) -> None:
    for _ in range(steps):
        random_step(rng, recorder, False)
        recorder.simulation.run(rng.choice([0, 0, 0.001, 0.01]))


@pytest.mark.parametrize("leavers", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_brokers_that_leave_under_traffic_are_soon_gone_and_cost_nothing(seed: int, leavers: int) -> None:
    rng, recorder = mesh(seed, 6)
    leaving = rng.sample(recorder.simulation.alive(), leavers)
    for broker in leaving:
        recorder.leave(broker)
        traffic(rng, recorder, rng.choice([0, 5]))
    until = recorder.simulation.now + SOON
    while any(broker.alive for broker in leaving):
        traffic(rng, recorder, 1)
        assert recorder.simulation.now < until, [broker.name for broker in leaving if broker.alive]
    recorder.simulation.run(4)
    recorder.simulation.check_ring()
    recorder.judge()


@pytest.mark.parametrize("seed", range(2))
def test_one_after_the_other_leaves_and_the_last_waits_for_nobody(seed: int) -> None:
    rng, recorder = mesh(seed, 4)
    recorder.simulation.run(1)
    for broker in rng.sample(recorder.simulation.alive(), 4):
        recorder.leave(broker)
        recorder.simulation.run_until(lambda broker=broker: not broker.alive, AT_ONCE)  # type: ignore[misc]


def test_a_publisher_to_many_topics_is_as_soon_gone() -> None:
    """Keys side by side that went at once each waited a round trip for the one before."""
    simulation = Simulation(1, network=Network(latency=(0.001, 0.002)), check=False)
    publisher, *_ = simulation.build(3, 1)
    for number in range(1500):
        publisher.publish(f"t{number}", b"x")
    simulation.run(2)
    publisher.leave()
    simulation.run_until(lambda: not publisher.alive, AT_ONCE)
    simulation.run(2)
    simulation.check_ring()


def test_many_keys_of_a_broker_that_go_together_do_not_each_look_through_all_that_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client with many subscriptions disconnects: they stand side by side, and frames meet keys that have gone."""
    looked: list[int] = []
    drop_links = SkipGraph._drop_links

    def counting(graph: SkipGraph, keys: Iterable[Key], broker: BrokerRef, gone: Set[Key]) -> None:
        looked.append(len(gone))
        drop_links(graph, keys, broker, gone)

    monkeypatch.setattr(SkipGraph, "_drop_links", counting)
    simulation = Simulation(1, network=Network(latency=(0.001, 0.002)))
    simulation.build(2, 1)
    broker = simulation.alive()[1]
    filters = [f"site/{number:03}/#" for number in range(200)]
    ready: list[str] = []
    for topic_filter in filters:
        broker.subscribe(topic_filter, partial(ready.append, topic_filter))
    simulation.run_until(lambda: len(ready) == len(filters), 60)
    looked.clear()
    for topic_filter in filters[50:150]:
        broker.act(partial(broker.node.rendezvous.subscriptions.unsubscribe, topic_filter, ready.clear))
    simulation.run(5)
    simulation.check_ring()
    assert len(looked) < 10
