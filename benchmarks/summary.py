"""The few statistics of the benchmarks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Broadcast(NamedTuple):
    """Several rounds of one measurement."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Broadcast:
    """Median, least and greatest of `values`, which are not empty."""
    return Broadcast(statistics.median(values), min(values), max(values))


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: the least value that `percent` of them do not exceed; NaN without
    values."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def ratios(values: Sequence[float | None], base: Sequence[float | None]) -> list[float]:
    """Round by round, `values` over `base`, without rounds in which either is missing or the base is 0."""
    return [a / b for a, b in zip(values, base, strict=True) if a is not None and b]
