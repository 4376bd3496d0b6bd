"""The European Air Quality Index of NO2 and PM2.5. Pure.

Bands in ug/m3, as the European Environment Agency published them with the index (six levels; NO2 by the hour, PM2.5 by
the running mean of 24 hours); the worst pollutant decides. The agency has narrowed the bands since: change `BANDS`.
A mean counts only with 75 % of its readings (Directive 2008/50/EC, Annexes VII and XI).
"""

from __future__ import annotations

from bisect import bisect_left
from enum import IntEnum


class Level(IntEnum):
    """The index, from the best to the worst."""

    GOOD = 1
    FAIR = 2
    MODERATE = 3
    POOR = 4
    VERY_POOR = 5
    EXTREMELY_POOR = 6

    @property
    def words(self) -> str:
        """For people."""
        return self.name.lower().replace("_", " ")


NO2, PM25 = "no2", "pm25"
POLLUTANTS = (NO2, PM25)

BANDS = {NO2: (40, 90, 120, 230, 340), PM25: (10, 20, 25, 50, 75)}
"""Upper ends of the levels but the last."""

HOURS = {NO2: 1, PM25: 24}
"""Length of the window that is judged."""

COVERAGE = 0.75
"""The share of a window's readings that must be there."""

COLOURS = {
    Level.GOOD: "#50f0e6",
    Level.FAIR: "#50ccaa",
    Level.MODERATE: "#f0e641",
    Level.POOR: "#ff5050",
    Level.VERY_POOR: "#960032",
    Level.EXTREMELY_POOR: "#7d2181",
}
"""The agency's."""


def level(pollutant: str, mean: float) -> Level:
    """The level of one pollutant."""
    return Level(bisect_left(BANDS[pollutant], mean) + 1)


def index(means: dict[str, float | None]) -> Level | None:
    """The worst pollutant's level; None if none could be measured."""
    levels = [level(pollutant, mean) for pollutant, mean in means.items() if mean is not None]
    return max(levels, default=None)
