"""What PUBACK says of the subscribers reached, where links break and messages overtake each other."""

from __future__ import annotations

import random

import pytest

from saps.simulator import Network, Simulation
from tests.overlay.scenes import Recorder, random_step

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("seed", range(4))
def test_no_subscriber_that_has_the_message_is_left_out(seed: int) -> None:
    """A message that is held for an earlier one, or repeated because an acknowledgement was lost, counts as well."""
    rng = random.Random(seed)
    simulation = Simulation(seed, network=Network(latency=(0.001, 0.08)))
    simulation.build(6, 3)
    recorder = Recorder(simulation)
    for broker in simulation.alive()[:4]:
        recorder.subscribe(broker, rng.choice(["a/b", "a/+", "#"]))
    simulation.run(2)
    for _ in range(80):
        recorder.publish(rng.choice(simulation.alive()), "a/b", rng.choice((1, 2)))
        simulation.run(rng.choice([0, 0.001, 0.01]))
        if rng.random() < 0.15:
            source, target = rng.sample(simulation.alive(), 2)
            simulation.reset_link(source.name, target.name)
    simulation.run(12)
    recorder.judge()
    for _, publisher, _, _, payload in recorder.published:
        others = sum(broker is not publisher for broker in recorder.intervals)
        assert recorder.confirmed[payload].subscribers >= others, (payload, publisher.name)


def test_random_scenes_confirm_no_more_brokers_than_there_are() -> None:
    rng = random.Random(1)
    simulation = Simulation(1)
    simulation.build(5, 2)
    recorder = Recorder(simulation)
    for _ in range(60):
        random_step(rng, recorder, churn=False)
        simulation.run(0.01)
    simulation.run(8)
    assert recorder.confirmed
    assert all(reached.subscribers <= 4 for reached in recorder.confirmed.values())
