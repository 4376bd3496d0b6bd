"""A mesh that runs its ALM on a designed overlay: the same guarantees, few hops, few links."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.overlay.rendezvous.designer import DesignSettings
from saps.overlay.ring.keys import KeyOrder
from saps.simulator import Network, Simulation
from tests.drawn import schedules
from tests.overlay.designs import designer_of, mesh, publish_all, settled, subscribe
from tests.overlay.scenes import Recorder, random_step, split_and_heal

pytestmark = pytest.mark.simulation

SEEDS = st.integers(0, 2**32 - 1)
SCHEDULES = schedules(2)
LEVELS = {1: 2, 2: 4}
"""Levels of the trees -> hops of a publication at most."""


def scene(seed: int, steps: int, churn: bool) -> tuple[random.Random, Recorder]:
    """As in the guarantees of a mesh without design; here it designs several times meanwhile."""
    rng = random.Random(seed)
    network = Network(latency=(0.001, rng.choice([0.002, 0.02, 0.08])))
    design = DesignSettings(rng.choice([1, 2]), rng.choice([0.3, 0.7]), rng.choice([0.0, 0.2, 1.0]))
    simulation = Simulation(seed, network=network, order=rng.choice(list(KeyOrder)), design=design)
    simulation.build(6, 3)
    recorder = Recorder(simulation)
    for _ in range(steps):
        random_step(rng, recorder, churn)
        simulation.run(rng.choice([0, 0, 0, 0.001, 0.01, 0.05, 0.2]))
    return rng, recorder


@SCHEDULES
@given(SEEDS)
def test_after_suback_everything_arrives_once_and_in_order(seed: int) -> None:
    _, recorder = scene(seed, 120, churn=True)
    recorder.simulation.run(8)
    recorder.simulation.check_ring()
    recorder.judge()
    assert settled(recorder.simulation)


@SCHEDULES
@given(SEEDS)
def test_qos_1_between_survivors_of_crashes_all_arrives(seed: int) -> None:
    """The designer crashes as well as another one."""
    rng, recorder = scene(seed, 40, churn=False)
    simulation = recorder.simulation
    for _ in range(2):
        simulation.crash(rng.choice([simulation.alive()[0], rng.choice(simulation.alive())]).name)
        for _ in range(40):
            random_step(rng, recorder, False)
            simulation.run(rng.choice([0, 0.001, 0.01, 0.05]))
    simulation.run(12)
    simulation.check_ring()
    recorder.judge(faulty=True)


@SCHEDULES
@given(SEEDS)
def test_a_partition_with_two_designers_heals(seed: int) -> None:
    rng, recorder = scene(seed, 40, churn=False)
    simulation = recorder.simulation
    split_and_heal(rng, recorder)
    assert settled(simulation)


@pytest.mark.parametrize(("levels", "hops"), LEVELS.items())
def test_in_the_steady_state_k_members_cost_k_messages_within_the_diameter(levels: int, hops: int) -> None:
    simulation = mesh(7, 30, DesignSettings(levels, 1.0))
    wanting = subscribe(simulation, 20, 6)
    simulation.run(3)
    assert settled(simulation)
    expected = publish_all(simulation, wanting)
    assert {payload: copies for payload, copies in expected.items() if copies} == simulation.copies
    assert simulation.depth() == hops


@pytest.mark.parametrize(("levels", "hops"), LEVELS.items())
def test_a_publisher_outside_the_topic_enters_at_the_root(levels: int, hops: int) -> None:
    simulation = mesh(8, 30, DesignSettings(levels, 1.0))
    wanting = subscribe(simulation, 20, 6)
    simulation.run(3)
    for topic, names in wanting.items():
        outsider = next(broker for broker in simulation.alive() if broker.name not in names)
        outsider.publish(topic, topic.encode(), 1)
        simulation.run(0.5)
        assert simulation.copies[topic.encode()] == len(names)
        assert set(simulation.hops[topic.encode()]) == set(names)
    assert simulation.depth() <= levels + 1


def test_brokers_talk_to_fewer_others_than_by_any_order_of_the_keys() -> None:
    degrees = {}
    for name, order, design in (
        ("plain", KeyOrder.ALM, None),
        ("la", KeyOrder.ALM_LA, None),
        ("cluster", KeyOrder.CLUSTER, None),
        ("stars", KeyOrder.CLUSTER, DesignSettings(1, 1.0)),
        ("trees", KeyOrder.CLUSTER, DesignSettings(2, 1.0)),
    ):
        simulation = mesh(9, 24, design, order)
        wanting = subscribe(simulation, 24, 6)
        simulation.run(4)
        publish_all(simulation, wanting)
        degrees[name] = simulation.degree()
    assert degrees["trees"] < degrees["stars"] < min(degrees["plain"], degrees["la"], degrees["cluster"]), degrees


def test_when_the_designer_crashes_the_next_one_takes_over() -> None:
    simulation = mesh(10, 12, DesignSettings(1, 1.0))
    subscribe(simulation, 6, 3)
    simulation.run(3)
    before = designer_of(simulation)
    simulation.crash(min(simulation.brokers))
    simulation.run(10)
    assert settled(simulation)
    assert designer_of(simulation) is not before
    trees = [broker.node.rendezvous.designs.trees for broker in simulation.alive() if broker.node.rendezvous.designs]
    assert all(tree == trees[0] for tree in trees)
    there = {broker.name for broker in simulation.alive()}
    assert all({tree.root, *tree.parent} <= there for tree in trees[0].values())


def test_a_few_new_subscriptions_are_mended_in_and_many_are_designed_anew() -> None:
    simulation = mesh(11, 20, DesignSettings(1, 1.0, drift=0.3))
    subscribe(simulation, 10, 4)
    simulation.run(3)
    grown = designer_of(simulation).grown
    simulation.brokers["b3"].subscribe("t/new")
    simulation.brokers["b4"].subscribe("t/new")
    simulation.run(3)
    designs = simulation.brokers["b9"].node.rendezvous.designs
    assert designs is not None
    assert {designs.trees["t/new"].root, *designs.trees["t/new"].parent} == {"b3", "b4"}
    assert designer_of(simulation).grown == grown
    for broker in simulation.alive():
        broker.subscribe("t/everyone")
        broker.subscribe("t/all")
    simulation.run(3)
    assert designer_of(simulation).grown > grown


def test_a_design_that_is_worn_is_made_anew() -> None:
    """Few subscriptions change at a time, and the setting for that does not ask for it."""
    simulation = mesh(13, 16, DesignSettings(2, 1.0, drift=1000.0))
    wanting = subscribe(simulation, 12, 4)
    simulation.run(3)
    designer, rng = designer_of(simulation), random.Random(1)
    grown = designer.grown
    for _ in range(60):
        topic, other = rng.choice([topic for topic in wanting if len(wanting[topic]) > 1]), f"t/{rng.randrange(12)}"
        name = wanting[topic].pop()
        simulation.brokers[name].unsubscribe(topic)
        if name not in wanting[other]:
            wanting[other].append(name)
            simulation.brokers[name].subscribe(other)
        simulation.run(1.1)
    assert designer_of(simulation) is designer
    assert designer.grown > grown


def test_a_broker_that_joins_later_gets_the_whole_design() -> None:
    simulation = mesh(12, 10, DesignSettings(2, 1.0))
    subscribe(simulation, 8, 3)
    simulation.run(3)
    newcomer = simulation.add("z", "c0", "b0")
    simulation.run(4)
    ours, others = newcomer.node.rendezvous.designs, simulation.brokers["b5"].node.rendezvous.designs
    assert ours is not None
    assert others is not None
    assert ours.position == others.position
    assert ours.trees == others.trees
    assert ours.trees


def test_wildcard_filters_are_resolved_against_the_topics_that_are_named() -> None:
    simulation = mesh(13, 8, DesignSettings(1, 1.0))
    simulation.brokers["b1"].subscribe("a/#")
    simulation.brokers["b2"].subscribe("+/x")
    simulation.brokers["b3"].subscribe("a/y")
    simulation.brokers["b4"].publish("a/x", b"", 1)
    simulation.run(4)
    designs = simulation.brokers["b6"].node.rendezvous.designs
    assert designs is not None
    assert {topic: {tree.root, *tree.parent} for topic, tree in designs.trees.items()} == {
        "a/x": {"b1", "b2"},
        "a/y": {"b1", "b3"},
    }
