"""Car parks along a main street, and drivers who want to park. Pure: the same seed is the same town."""

from __future__ import annotations

import random
from dataclasses import dataclass

ARRIVING = 0.85
"""Drivers come in this share of the run."""
TOO_MANY = 1.15
"""Drivers for each place: some go home."""


@dataclass(frozen=True, slots=True)
class CarPark:
    """A car park, so many metres from the beginning of the main street."""

    name: str
    metres: int
    places: int


PARKS = (
    CarPark("station", 200, 20),
    CarPark("market", 700, 12),
    CarPark("theatre", 1100, 10),
    CarPark("harbour", 1800, 24),
)
PLACES = sum(park.places for park in PARKS)


@dataclass(frozen=True, slots=True)
class Plan:
    """A driver: where to, and when it begins to look for a place, as a share of the run."""

    name: str
    metres: int
    begins: float

    def by_distance(self) -> list[CarPark]:
        """The car parks, the nearest first."""
        return sorted(PARKS, key=lambda park: abs(park.metres - self.metres))


def drivers(seed: int) -> list[Plan]:
    """Everybody who will want to park; most of them in the middle."""
    rng = random.Random(seed)
    metres = [round(min(2000.0, max(0.0, rng.gauss(900, 450)))) for _ in range(round(TOO_MANY * PLACES))]
    return [Plan(f"driver-{n:02d}", at, ARRIVING * rng.random()) for n, at in enumerate(metres, 1)]
