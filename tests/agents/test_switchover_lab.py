"""The switch-over on real processes and Open vSwitch: a topic moves under traffic, and what it uses dies under it.

Short, and at a rate that a loaded machine holds; ``python -m benchmarks.switchover`` is the full measure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.switchover import faults, moves
from benchmarks.switchover.city import CONTROLLER, City
from benchmarks.switchover.record import Tally
from lab import Lab, obstacle

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]

MODES = ["either", "both"]


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Iterator[City]:
    """Four clusters of two brokers on a tree of height 2 with spare links, two OFGates, a controller."""
    if why := obstacle():
        pytest.skip(why)
    directory: Path = tmp_path_factory.mktemp("labs") / "d"
    with (
        Lab(faults.SPARE, name=f"sw{os.getpid()}", controller=CONTROLLER, directory=directory) as lab,
        City(lab, gates=2) as made,
    ):
        yield made


@pytest.mark.parametrize("mode", MODES)
def test_a_topic_is_moved_under_traffic_while_subscribers_come_and_go_and_another_publishes(
    city: City, mode: str
) -> None:
    plan = moves.Moves(mode=mode, rate=200, subscribers=24, times=3, hold=0.5)
    moved = moves.run(city, plan)
    assert (moved.tally.wrong, moved.guests.wrong) == (0, 0)
    assert moved.tally.delivered == moved.stable * moved.published
    assert moved.carried > 0
    assert moved.joins > 0


@pytest.mark.parametrize(
    ("fault", "mode"), [("controller", "either"), ("ofgate", "both"), ("tables", "both"), ("link", "either")]
)
def test_a_fault_costs_no_message_with_qos_1(city: City, fault: str, mode: str) -> None:
    """And afterwards the topic is on OFM again; unless another way was found, by the same entries in all switches."""
    broken = faults.run(city, faults.Plan(fault=fault, mode=mode, rate=100, subscribers=7, hold=0.5))
    assert broken.tally == Tally(delivered=7 * broken.published)
