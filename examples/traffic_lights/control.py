"""Who gets green: max pressure (Varaiya 2013), and a fixed-time plan to compare it with. Pure.

P. Varaiya, "Max pressure control of a network of signalized intersections", Transportation Research Part C 36 (2013):
a junction needs its own queues and those of the roads that lead away from it, nothing else, and no knowledge of the
demand; it serves every demand that any plan can serve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from examples.traffic_lights.street import (
    GREEN,
    JUNCTIONS,
    NORTH_SOUTH,
    OUT,
    PHASES,
    SATURATION,
    SHARES,
    SIDES,
    TURNS,
    Junction,
    Lanes,
    Street,
    lane,
    neighbour,
)

STAY = 6
"""Pressure by which the other phase must be the greater one, for a change costs time (it costs none in Varaiya's
model). Found by `--tune`, as `FIXED`."""
FIXED = (2, 3)
"""Steps of green for north and south, and for east and west: the plan with the least waiting."""


def neighbours(junction: Junction) -> tuple[Junction, ...]:
    """Those whose queues a junction needs."""
    return tuple(found for side in SIDES if (found := neighbour(junction, side)) is not None)


def pressure(junction: Junction, phase: int, lanes: Mapping[Junction, Lanes]) -> float:
    """Section 2: the sum over the phase's movements of saturation x (own queue - mean of the queues it leads to)."""
    total = 0.0
    for side in GREEN[phase]:
        for turn in TURNS:
            way = (side + OUT[turn]) % 4
            following = neighbour(junction, way)
            ahead = 0.0
            if following is not None:
                ahead = sum(SHARES[next_] * lanes[following][lane((way + 2) % 4, next_)] for next_ in TURNS)
            total += SATURATION * (lanes[junction][lane(side, turn)] - ahead)
    return total


def max_pressure(junction: Junction, current: int, lanes: Mapping[Junction, Lanes], stay: float = STAY) -> int:
    """The phase with the greatest pressure; the current one unless another has `stay` more."""
    return max(PHASES, key=lambda phase: (pressure(junction, phase, lanes) + stay * (phase == current), -phase))


def fixed(step: int, plan: tuple[int, int] = FIXED) -> int:
    """The phase of a plan that repeats itself, the same at all junctions."""
    return int(step % sum(plan) >= plan[NORTH_SOUTH])


def run_fixed(seed: int, steps: int, plan: tuple[int, int] = FIXED) -> Street:
    """The street under a fixed-time plan."""
    return _run(seed, steps, lambda street, junction, current: fixed(street.step, plan))


def run_max_pressure(seed: int, steps: int, stay: float = STAY) -> Street:
    """The street under max pressure, without any mesh: what one over the mesh must be equal to."""

    def choose(street: Street, junction: Junction, current: int) -> int:
        lanes = {each: street.lanes(each) for each in (junction, *neighbours(junction))}
        return max_pressure(junction, current, lanes, stay)

    return _run(seed, steps, choose)


def _run(seed: int, steps: int, choose: Callable[[Street, Junction, int], int]) -> Street:
    street, phases = Street(seed), dict.fromkeys(JUNCTIONS, NORTH_SOUTH)
    for _ in range(steps):
        phases = {junction: choose(street, junction, phases[junction]) for junction in JUNCTIONS}
        street.advance(phases)
    return street
