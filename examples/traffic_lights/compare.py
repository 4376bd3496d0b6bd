"""Max pressure and the fixed-time plan over many seeds: mean waiting times with their spread. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, stdev

import msgspec

from examples.traffic_lights.control import run_fixed, run_max_pressure


class Comparison(msgspec.Struct, frozen=True):
    """Seconds of waiting for each vehicle; one figure a seed."""

    seeds: int
    max_pressure: float
    """Mean over the seeds, as `fixed`."""
    max_pressure_spread: float
    """Standard deviation over the seeds, as `fixed_spread`."""
    fixed: float
    fixed_spread: float
    wins: int
    """Seeds with which max pressure was the better one."""


def compare(seeds: Iterable[int], steps: int) -> Comparison:
    """Both plans with the same vehicles."""
    pairs = [(run_max_pressure(seed, steps).waited.mean, run_fixed(seed, steps).waited.mean) for seed in seeds]
    adaptive, fixed = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    spreads = [round(stdev(each), 2) if len(pairs) > 1 else 0.0 for each in (adaptive, fixed)]
    wins = sum(a < b for a, b in pairs)
    return Comparison(len(pairs), round(mean(adaptive), 2), spreads[0], round(mean(fixed), 2), spreads[1], wins)


def tune_fixed(seeds: Sequence[int], steps: int) -> list[tuple[float, tuple[int, int]]]:
    """Fixed-time plans with their mean waiting times, the best first."""
    plans = [(a, b) for a in range(2, 8) for b in range(2, 8)]
    return sorted((mean(run_fixed(seed, steps, plan).waited.mean for seed in seeds), plan) for plan in plans)


def tune_stay(seeds: Sequence[int], steps: int) -> list[tuple[float, int]]:
    """Max pressure with different `control.STAY`, likewise."""
    return sorted(
        (mean(run_max_pressure(seed, steps, stay).waited.mean for seed in seeds), stay) for stay in range(0, 16, 3)
    )
