"""The city's districts and stations, and a made-up day of its air. Pure: the same seed is the same air."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from examples.air_quality.index import NO2

STEP = 15
"""Minutes between two readings of a station."""
STATIONS = 2
"""Of each district."""
BACKGROUND = {NO2: 12.0, "pm25": 6.0}
RUSH = {NO2: 85.0, "pm25": 14.0}
"""ug/m3 on a quiet night, and what the traffic of a rush hour adds in the busiest district."""
STAGNANT = 1.5
"""How much worse it becomes each day while no wind blows, as a factor."""


@dataclass(frozen=True, slots=True)
class District:
    """A district: where it is on the map, and how much traffic it has (1 for the most)."""

    name: str
    cluster: str
    column: int
    row: int
    traffic: float

    @property
    def stations(self) -> tuple[str, ...]:
        """Its stations' names."""
        return tuple(f"{self.name}-{n}" for n in range(1, STATIONS + 1))


DISTRICTS = (
    District("hillside", "north", 0, 0, 0.15),
    District("university", "north", 1, 0, 0.45),
    District("old-town", "centre", 0, 1, 0.8),
    District("market", "centre", 1, 1, 1.0),
    District("harbour", "south", 0, 2, 0.65),
    District("airport", "south", 1, 2, 0.9),
)


class Air:
    """What each station measures at each minute."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._places = {station: district for district in DISTRICTS for station in district.stations}

    def reading(self, station: str, pollutant: str, minute: int) -> float:
        """In ug/m3: background, two rush hours a day, a wind that does not blow, and the weather's noise."""
        district, hour = self._places[station], minute / 60
        rush = _bell(hour % 24, 8, 1.5) + 0.9 * _bell(hour % 24, 18, 2)
        noise = random.Random(f"{self._seed} {station} {pollutant} {minute}").gauss(1, 0.08)
        near = 0.85 + 0.3 * random.Random(f"{self._seed} {station}").random()
        worse: float = STAGNANT ** (hour / 24)
        return round(
            max(0.0, (BACKGROUND[pollutant] + RUSH[pollutant] * district.traffic * near * rush) * worse * noise), 1
        )


def _bell(hour: float, peak: float, width: float) -> float:
    return math.exp(-(((hour - peak) / width) ** 2))
