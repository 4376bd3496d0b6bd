"""A small model of a city's traffic: a grid of junctions, queues on its roads. Pure and deterministic.

Store and forward: at each step the lanes that have green send up to `SATURATION` vehicles on; these stand at the end of
the next queue a step later. What it leaves out: queues take no room, so none blocks the junction behind it; drivers
do not choose their way by the traffic; nobody walks.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

ROWS, COLUMNS = 3, 4
STEP = 6
"""Seconds of the city in a step."""
SATURATION = 3
"""Vehicles that a lane with green sends on in a step: 1,800 an hour."""
AFTER_CHANGE = 1
"""The same in the step after the light has changed: amber, all red, and drivers who must wake up."""

NORTH, EAST, SOUTH, WEST = SIDES = range(4)
LEFT, STRAIGHT, RIGHT = TURNS = range(3)
SHARES = (0.2, 0.6, 0.2)
"""Of the vehicles that turn left, go straight on, turn right."""
OUT = {LEFT: 1, STRAIGHT: 2, RIGHT: 3}
"""By which side one leaves, counted clockwise from the side one has come from."""

NORTH_SOUTH, EAST_WEST = PHASES = range(2)
GREEN = {NORTH_SOUTH: (NORTH, SOUTH), EAST_WEST: (EAST, WEST)}
"""The sides that may go."""

Junction = tuple[int, int]
"""Row and column."""
Lanes = tuple[int, ...]
"""The vehicles in each of a junction's lanes: side by side from the north clockwise, of each left, straight, right."""

JUNCTIONS: tuple[Junction, ...] = tuple((row, column) for row in range(ROWS) for column in range(COLUMNS))


def lane(side: int, turn: int) -> int:
    """The lane's place in `Lanes`."""
    return 3 * side + turn


def neighbour(junction: Junction, side: int) -> Junction | None:
    """The next junction on that side; None at the edge of the city."""
    row = junction[0] + (side == SOUTH) - (side == NORTH)
    column = junction[1] + (side == EAST) - (side == WEST)
    return (row, column) if 0 <= row < ROWS and 0 <= column < COLUMNS else None


def demand(junction: Junction, side: int, step: int) -> float:
    """Vehicles a second that enter the city there, on average. East and west take turns within the hour."""
    hour = step * STEP / 3600
    if side in GREEN[NORTH_SOUTH]:
        return 0.10 + 0.05 * math.sin(2 * math.pi * hour * 1.5 + junction[1])
    tide = math.sin(2 * math.pi * hour)
    return 0.17 + 0.10 * (tide if side == WEST else -tide) + (0.05 if junction[0] == 1 else 0.0)


@dataclass(frozen=True, slots=True)
class Waited:
    """What the vehicles had to wait."""

    vehicles: int = 0
    """That have entered."""
    seconds: int = 0
    """Spent in queues, all together."""

    @property
    def mean(self) -> float:
        """Seconds for each vehicle. Those still under way have not finished waiting."""
        return self.seconds / self.vehicles if self.vehicles else 0.0


class Street:
    """The traffic, step by step. The same seed brings the same vehicles to the city's edge, whatever the lights."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.step = 0
        self.waited = Waited()
        self.waiting: list[int] = []
        """Vehicles in all queues, after each step."""
        self._lanes = {junction: [0] * 12 for junction in JUNCTIONS}
        self._moving = {(junction, side): 0 for junction in JUNCTIONS for side in SIDES}
        self._phases: dict[Junction, int] = {}

    def lanes(self, junction: Junction) -> Lanes:
        """What the junction's detectors count now."""
        return tuple(self._lanes[junction])

    def advance(self, phases: Mapping[Junction, int]) -> None:
        """One step with these lights."""
        rng = random.Random(f"{self.seed} {self.step}")
        entered = {
            (junction, side): _poisson(rng, demand(junction, side, self.step) * STEP)
            for junction in JUNCTIONS
            for side in SIDES
            if neighbour(junction, side) is None
        }
        arriving, self._moving = self._moving, dict.fromkeys(self._moving, 0)
        for junction in JUNCTIONS:
            self._discharge(junction, phases[junction])
        for (junction, side), vehicles in arriving.items():
            for _ in range(vehicles + entered.get((junction, side), 0)):
                self._lanes[junction][lane(side, rng.choices(TURNS, SHARES)[0])] += 1
        self._phases = dict(phases)
        self.step += 1
        waiting = sum(map(sum, self._lanes.values()))
        self.waiting.append(waiting)
        self.waited = Waited(self.waited.vehicles + sum(entered.values()), self.waited.seconds + waiting * STEP)

    def _discharge(self, junction: Junction, phase: int) -> None:
        """Those who have green go, to the next queue or out of the city."""
        most = SATURATION if self._phases.get(junction, phase) == phase else AFTER_CHANGE
        for side in GREEN[phase]:
            for turn in TURNS:
                at = lane(side, turn)
                vehicles = min(most, self._lanes[junction][at])
                self._lanes[junction][at] -= vehicles
                way = (side + OUT[turn]) % 4
                following = neighbour(junction, way)
                if following is not None:
                    self._moving[following, (way + 2) % 4] += vehicles


def _poisson(rng: random.Random, mean: float) -> int:
    """Knuth's method: for small means."""
    count, product, least = 0, rng.random(), math.exp(-mean)
    while product > least:
        count, product = count + 1, product * rng.random()
    return count
