"""The statistics of SDNPS's section 5.1.6, and what they should have been: are samples normal, does a factor matter?

The paper tests normality by Kolmogorov and Smirnov. With mean and deviation estimated from the same sample that test
hardly ever says no; Lilliefors' version, simulated here, says it as often as it states. The analysis of variance
assumes normal samples of one variance; the Kruskal-Wallis test assumes neither.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from research.sdnps.tables import Anova

SIMULATIONS = 999
"""Samples drawn for one Lilliefors test."""


class Sample(NamedTuple):
    """A cell's samples of one quantity."""

    n: int
    mean: float
    deviation: float
    ks_p: float
    """Of Kolmogorov and Smirnov's test against the normal distribution of this mean and deviation, as in the paper."""
    lilliefors_p: float
    """The same, allowing for the estimation."""


class Effect(NamedTuple):
    """Does the factor that distinguishes some cells have an effect?"""

    anova: Anova
    kruskal_p: float


def describe(values: Sequence[float], seed: int) -> Sample:
    """At least two values. Equal ones are not normal: both probabilities are 0."""
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    if not deviation:
        return Sample(len(values), mean, 0.0, 0.0, 0.0)
    stats = _stats()
    plain = stats.kstest(values, "norm", args=(mean, deviation)).pvalue
    fitted = stats.goodness_of_fit(stats.norm, values, statistic="ks", n_mc_samples=SIMULATIONS, rng=seed).pvalue
    return Sample(len(values), mean, deviation, float(plain), float(fitted))


def effect(columns: Sequence[Sequence[float]]) -> Effect:
    """One-way analysis of variance, and the Kruskal-Wallis test. At least two columns, not all values equal."""
    everything = [value for column in columns for value in column]
    overall = statistics.fmean(everything)
    means = [statistics.fmean(column) for column in columns]
    between = sum(len(column) * (mean - overall) ** 2 for column, mean in zip(columns, means, strict=True))
    within = sum((value - mean) ** 2 for column, mean in zip(columns, means, strict=True) for value in column)
    stats = _stats()
    tested = stats.f_oneway(*columns)
    anova = Anova(
        between,
        len(columns) - 1,
        within,
        len(everything) - len(columns),
        float(tested.statistic),
        float(tested.pvalue),
    )
    return Effect(anova, float(stats.kruskal(*columns).pvalue))


def _stats() -> Any:
    """Importing it takes two seconds of a processor."""
    return import_module("scipy.stats")
