"""The guarantees, on the simulator, with random schedules. A seed that once failed is kept in `FAILED_ONCE`."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.messages import Reached
from saps.overlay.ring.keys import KeyOrder
from saps.simulator import Network, Simulation
from tests import marks
from tests.drawn import kept, schedules
from tests.overlay.scenes import Recorder, random_step, split_and_heal

pytestmark = pytest.mark.simulation

SEEDS = st.integers(0, 2**32 - 1)
SCHEDULES = schedules(2)
FAILED_ONCE = {
    "churn": [
        0,
        2,
        3,
        5,
        9,
        11,
        13,
        14,
        17,
        26,
        29,
        30,
        50,
        53,
        55,
        101,
        158,
        162,
        227,
        232,
        241,
        210196,
        310071,
        310144,
        310235,
        700209,
        700244,
        800037,
        800094,
        916700,
        501,
    ],
    "crash": [1, 8, 9, 13, 15, 18, 30, 100017, 100034, 510022, 510116, 3000377, 3000383],
    "reset": [15, 19],
    "pause": [162697106, 785239863],
    "partition": [410021, 4652761],
}


def scene(seed: int, steps: int, churn: bool) -> tuple[random.Random, Recorder]:
    rng = random.Random(seed)
    network = Network(latency=(0.001, rng.choice([0.002, 0.02, 0.08])))
    simulation = Simulation(seed, network=network, order=rng.choice(list(KeyOrder)))
    simulation.build(6, 3)
    recorder = Recorder(simulation)
    for _ in range(steps):
        random_step(rng, recorder, churn)
        simulation.run(rng.choice([0, 0, 0, 0.001, 0.01, 0.05]))
    return rng, recorder


def churn(seed: int) -> None:
    """Random subscribe, unsubscribe, publish, join and leave: no loss, no duplicate, publisher order."""
    _, recorder = scene(seed, 120, churn=True)
    recorder.simulation.run(8)
    recorder.simulation.check_ring()
    recorder.judge()


def crash(seed: int) -> None:
    """Two crashes, one of them followed by a restart: QoS 1 and 2 between survivors all arrive."""
    rng, recorder = scene(seed, 40, churn=False)
    simulation = recorder.simulation
    victim = rng.choice(simulation.alive())
    simulation.crash(victim.name)
    simulation.run(rng.choice([0, 0.5, 3]))
    name = victim.name + rng.choice(["", "x"])
    simulation.add(name, victim.ref.cluster, rng.choice(simulation.alive()).name)
    for step in range(80):
        random_step(rng, recorder, False)
        simulation.run(rng.choice([0, 0.001, 0.01, 0.05]))
        if step == 40:
            simulation.crash(rng.choice(simulation.alive()).name)
    simulation.run(12)
    simulation.check_ring()
    recorder.judge(faulty=True)


def reset(seed: int) -> None:
    """Links that break under traffic: QoS 1 and 2 all arrive, QoS 0 at most once, order kept."""
    rng, recorder = scene(seed, 20, churn=False)
    simulation = recorder.simulation
    for _ in range(100):
        random_step(rng, recorder, False)
        simulation.run(rng.choice([0, 0.001, 0.01, 0.05]))
        if rng.random() < 0.1:
            source, target = rng.sample(simulation.alive(), 2)
            simulation.reset_link(source.name, target.name)
    simulation.run(12)
    simulation.check_ring()
    recorder.judge(faulty=True)


def pause(seed: int) -> None:
    """Processes that stand still, some so long that they are taken for dead: short pauses lose nothing, and after long
    ones the mesh is one again, and every publisher has its answers."""
    rng, recorder = scene(seed, 30, churn=False)
    simulation = recorder.simulation
    simulation.run(1)
    harmless = rng.random() < 0.5
    for _ in range(60):
        random_step(rng, recorder, False)
        simulation.run(rng.choice([0, 0.001, 0.01, 0.2]))
        if rng.random() < 0.1:
            stopped = rng.choice(simulation.alive())
            simulation.pause(stopped.name, rng.uniform(0.1, 0.7) if harmless else rng.uniform(0.2, 7))
            simulation.run(rng.choice([0.01, 0.5, 2]))
    simulation.run(16)
    simulation.check_ring()
    recorder.judge_confirmed()
    if harmless:
        recorder.judge(faulty=True)
    after = recorder.clock
    for _ in range(40):
        random_step(rng, recorder, False)
        simulation.run(0.01)
    simulation.run(8)
    recorder.forget_before(after)
    recorder.judge()


def partition(seed: int) -> None:
    """The mesh is split for a while and heals: one ring again, and everything published then arrives."""
    split_and_heal(*scene(seed, 40, churn=False))


@SCHEDULES
@given(SEEDS)
def test_after_suback_everything_arrives_once_and_in_order(seed: int) -> None:
    churn(seed)


@SCHEDULES
@given(SEEDS)
def test_qos_1_between_survivors_of_crashes_all_arrives(seed: int) -> None:
    crash(seed)


@SCHEDULES
@given(SEEDS)
def test_broken_links_lose_no_qos_1(seed: int) -> None:
    reset(seed)


@schedules(1)
@given(SEEDS)
def test_processes_that_stand_still_lose_nothing_or_come_back(seed: int) -> None:
    pause(seed)


@SCHEDULES
@given(SEEDS)
def test_a_partition_heals(seed: int) -> None:
    partition(seed)


@pytest.mark.parametrize("milliseconds", range(0, 14, 2))
def test_an_acknowledgement_that_is_lost_is_asked_for_again(milliseconds: int) -> None:
    """Whenever only the way back breaks."""
    way_back_breaks(milliseconds, 0.002)


@marks.expect("slice handed on without its child", "publication sent again to one member")
def test_who_published_asks_again_when_the_other_side_begins_a_session() -> None:
    way_back_breaks(10, 0.002)


@marks.expect("late acknowledgement")
def test_an_acknowledgement_that_comes_after_it_was_asked_for_again_counts_once() -> None:
    way_back_breaks(100, 0.2)


def way_back_breaks(milliseconds: int, latency: float) -> None:
    """After a publication to two others, which both get it and are counted once."""
    simulation = Simulation(1, network=Network(latency=(latency, latency + 0.001)))
    publisher, *others = simulation.build(3)
    for broker in others:
        broker.subscribe("t")
    simulation.run(6)
    publisher.publish("t", b"opens the stream")
    simulation.run(4)
    reached: list[Reached] = []
    publisher.publish("t", b"acknowledged", 1, reached.append)
    simulation.run(milliseconds / 1000)
    for broker in others:
        simulation.reset_link(broker.name, publisher.name)
    simulation.run(10)
    assert reached == [Reached(2, 2)]
    assert [len(broker.delivered) for broker in others] == [2, 2]


@pytest.mark.parametrize(
    ("kind", "seed"),
    [case for kind, seeds in FAILED_ONCE.items() for case in kept(*((kind, seed) for seed in seeds), quick=1)],
)
def test_what_failed_once(kind: str, seed: int) -> None:
    {"churn": churn, "crash": crash, "reset": reset, "pause": pause, "partition": partition}[kind](seed)
