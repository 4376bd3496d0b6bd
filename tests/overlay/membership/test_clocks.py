"""A broker whose clock is wrong is found by the others and named, and no other is
(`saps.overlay.membership.clocks`)."""

from __future__ import annotations

import random
import re

import pytest

from saps.overlay.membership.clocks import AGAIN, COMPARE
from saps.simulator import Network, Simulation
from tests.drawn import seeds

pytestmark = pytest.mark.simulation


def mesh(seed: int, count: int = 5) -> Simulation:
    """Brokers with clocks that agree but for milliseconds."""
    simulation = Simulation(seed, check=False)
    for broker in simulation.build(count):
        broker.node.port.timers.epoch = 1.8e9 + simulation.rng.uniform(-0.05, 0.05)
    return simulation


def said(simulation: Simulation) -> dict[str, list[str]]:
    """By broker: what it has said of clocks."""
    return {name: [line for line in broker.log if "clock" in line] for name, broker in simulation.brokers.items()}


@pytest.mark.parametrize("off", [-10 * 86_400.0, -5.0, 5.0, 10 * 86_400.0])
def test_a_wrong_clock_is_named_by_its_neighbours_and_by_itself(off: float) -> None:
    simulation = mesh(1)
    simulation.brokers["b3"].node.port.timers.epoch += off
    simulation.run(4 * COMPARE)
    word = "ahead of" if off > 0 else "behind"
    near = {ref.name for ref in simulation.brokers["b3"].node.acquaintances()}
    assert len(near) > 1
    for name, lines in said(simulation).items():
        if name != "b3" and name not in near and not lines:
            continue
        (line,) = lines
        assert word in line
        if name == "b3":
            assert line.startswith("the clock of this broker, b3, is ")
        else:
            assert line.startswith("the clock of broker b3 is ")
            assert " others agree" in line
            (wrong,) = simulation.brokers[name].node.clocks.wrong.items()
            assert wrong[0] == "b3"
            assert wrong[1] == pytest.approx(off, abs=0.3)
    simulation.run(AGAIN / 2)
    assert all(len(lines) <= 1 for lines in said(simulation).values())
    simulation.brokers["b3"].node.port.timers.epoch -= off
    simulation.run(4 * COMPARE)
    assert not any(broker.node.clocks.wrong for broker in simulation.alive())


@seeds(8)
def test_slow_links_and_brokers_that_stand_still_accuse_nobody(seed: int) -> None:
    simulation = mesh(seed)
    simulation.network = Network(latency=(0.001, 3.0))
    rng = random.Random(seed)
    for _ in range(20):
        simulation.pause(rng.choice([*simulation.brokers]), rng.uniform(0, 5))
        simulation.run(rng.uniform(0, 10))
    assert not any(said(simulation).values())


def test_of_two_each_names_the_other() -> None:
    simulation = mesh(1, 2)
    simulation.brokers["b1"].node.port.timers.epoch += 3.0
    simulation.run(4 * COMPARE)
    (one,), (other,) = said(simulation).values()
    assert re.match(r"the clock of broker b1 is (2\.9|3\.[01]) s ahead of this one's, with which 0 others agree: ", one)
    assert re.match(r"the clock of broker b0 is (2\.9|3\.[01]) s behind this one's, with which 0 others agree: ", other)
