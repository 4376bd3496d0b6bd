"""Sliding windows over readings by the time they were taken, not by when they came. Pure."""

from __future__ import annotations

from bisect import bisect_right, insort

from examples.air_quality.air import STEP
from examples.air_quality.index import COVERAGE


class Series:
    """One station's readings of one pollutant, by minute."""

    def __init__(self) -> None:
        self._readings: list[tuple[int, float]] = []

    def add(self, minute: int, value: float) -> None:
        """A reading, in whatever order."""
        insort(self._readings, (minute, value))

    @property
    def latest(self) -> int:
        """The minute of the last one; 0 for none."""
        return self._readings[-1][0] if self._readings else 0

    def window(self, hours: int, hour: int) -> list[float]:
        """What was read in the `hours` that end with this hour of the run, its last minute included."""
        begin, end = 60 * max(0, hour - hours), 60 * hour
        low = bisect_right(self._readings, (begin, float("inf")))
        return [value for _, value in self._readings[low : bisect_right(self._readings, (end, float("inf")))]]


def expected(hours: int, hour: int) -> int:
    """How many readings a full window has; at the beginning of the run it is shorter."""
    return 60 * min(hours, hour) // STEP


def mean(readings: list[float], hours: int, hour: int) -> float | None:
    """The window's mean, or None with too few readings (`COVERAGE`)."""
    if len(readings) < COVERAGE * expected(hours, hour):
        return None
    return sum(readings) / len(readings)


def district_mean(means: list[float | None]) -> float | None:
    """The mean over the stations that have one."""
    known = [value for value in means if value is not None]
    return round(sum(known) / len(known), 2) if known else None
