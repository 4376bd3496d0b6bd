"""The traffic lights example: the street, max pressure, and the whole command on real brokers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.traffic_lights.__main__ import TUNING
from examples.traffic_lights.compare import compare
from examples.traffic_lights.control import STAY, max_pressure, neighbours, pressure, run_fixed, run_max_pressure
from examples.traffic_lights.picture import Outcome, draw
from examples.traffic_lights.street import (
    EAST,
    EAST_WEST,
    GREEN,
    JUNCTIONS,
    LEFT,
    NORTH,
    NORTH_SOUTH,
    OUT,
    PHASES,
    RIGHT,
    SIDES,
    STRAIGHT,
    WEST,
    Lanes,
    Street,
    lane,
    neighbour,
)
from tests.examples.commands import run_example

EMPTY: Lanes = (0,) * 12
CROSSING = (1, 1)


def test_roads_lead_back_and_turns_lead_where_drivers_expect() -> None:
    for junction in JUNCTIONS:
        for side in SIDES:
            there = neighbour(junction, side)
            assert there is None or neighbour(there, (side + 2) % 4) == junction
    from_west = {turn: (WEST + way) % 4 for turn, way in OUT.items()}
    assert from_west == {LEFT: NORTH, STRAIGHT: EAST, RIGHT: (NORTH + 2) % 4}


@settings(max_examples=20)
@given(st.integers(0, 1000), st.lists(st.sampled_from(PHASES), min_size=1, max_size=40))
def test_only_green_lanes_get_shorter_and_the_same_vehicles_come_whatever_the_lights(
    seed: int, lights: list[int]
) -> None:
    street, other = Street(seed), Street(seed)
    for phase in lights:
        before = {junction: street.lanes(junction) for junction in JUNCTIONS}
        street.advance(dict.fromkeys(JUNCTIONS, phase))
        other.advance(dict.fromkeys(JUNCTIONS, NORTH_SOUTH))
        for junction in JUNCTIONS:
            shorter = [n for n, now in enumerate(street.lanes(junction)) if now < before[junction][n]]
            assert all(n // 3 in GREEN[phase] for n in shorter)
            assert min(street.lanes(junction)) >= 0
    assert street.waited.vehicles == other.waited.vehicles


def test_pressure_is_the_difference_of_queues_times_saturation() -> None:
    """Section 2 by hand: ten straight on from the west; the next road has five, of whom 60 % will go straight on."""
    lanes = dict.fromkeys((CROSSING, *neighbours(CROSSING)), EMPTY)
    lanes[CROSSING] = tuple(10 if n == lane(WEST, STRAIGHT) else 0 for n in range(12))
    lanes[1, 2] = tuple(5 if n == lane(WEST, STRAIGHT) else 0 for n in range(12))
    # From the west straight on: 3 x (10 - 0.6 x 5); left from the north, right from the south lead to (1, 2), too.
    assert pressure(CROSSING, EAST_WEST, lanes) == pytest.approx(3 * (10 - 3))
    assert pressure(CROSSING, NORTH_SOUTH, lanes) == pytest.approx(-2 * 3 * 3)
    assert max_pressure(CROSSING, NORTH_SOUTH, lanes) == EAST_WEST


def test_the_light_stays_unless_the_other_phase_is_worth_the_change() -> None:
    lanes = dict.fromkeys((CROSSING, *neighbours(CROSSING)), EMPTY)
    for current in PHASES:
        assert max_pressure(CROSSING, current, lanes) == current
    few = STAY // 3
    lanes[CROSSING] = tuple(few if n == lane(EAST, STRAIGHT) else 0 for n in range(12))
    assert max_pressure(CROSSING, NORTH_SOUTH, lanes) == NORTH_SOUTH
    lanes[CROSSING] = tuple(few + 1 if n == lane(EAST, STRAIGHT) else 0 for n in range(12))
    assert max_pressure(CROSSING, NORTH_SOUTH, lanes) == EAST_WEST


def test_max_pressure_makes_less_waiting_than_the_best_fixed_plan_on_days_that_chose_neither() -> None:
    found = compare([7, 8], 300)
    assert not set(TUNING) & {7, 8}
    assert found.wins == 2
    assert found.max_pressure == pytest.approx(
        (run_max_pressure(7, 300).waited.mean + run_max_pressure(8, 300).waited.mean) / 2, abs=0.01
    )
    assert found.fixed > found.max_pressure > 0
    assert run_fixed(7, 300).waited.vehicles == run_max_pressure(7, 300).waited.vehicles


@pytest.mark.network
def test_every_junction_decides_over_the_mesh_as_without_it(tmp_path: Path) -> None:
    done, result = run_example("traffic_lights", Outcome, tmp_path, "--seconds", "3", "--seeds", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert result.problems == []
    assert result.steps > 2
    assert result.messages >= 2 * len(JUNCTIONS) * result.steps
    assert result.waiting == run_max_pressure(1, result.steps).waiting
    assert (tmp_path / "picture.svg").read_text() == draw(result).svg()
