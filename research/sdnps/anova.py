"""Computes the statistics of SDNPS's section 5.1.6, tests of normality and of a factor's effect, and sounder ones.

The paper tests normality by the Kolmogorov-Smirnov test. With mean and deviation estimated from the same sample, that
test hardly ever rejects. Lilliefors' version, simulated here, rejects normal samples as often as its level states. The
analysis of variance assumes normal samples of one variance; the Kruskal-Wallis test assumes neither.
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
    """Statistics of a cell's samples of one quantity."""

    n: int
    mean: float
    deviation: float
    ks_p: float
    """P-value of the Kolmogorov-Smirnov test against the normal distribution of this mean and deviation, as in the
    paper."""
    lilliefors_p: float
    """P-value of Lilliefors' test, which allows for the estimation of mean and deviation."""


class Effect(NamedTuple):
    """Two tests of whether the factor that distinguishes some cells has an effect."""

    anova: Anova
    kruskal_p: float
    """P-value of the Kruskal-Wallis test."""


def describe(values: Sequence[float], seed: int) -> Sample:
    """Return the statistics of at least two values. Equal values are not normal, and both p-values are 0."""
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    if not deviation:
        return Sample(len(values), mean, 0.0, 0.0, 0.0)
    stats = _stats()
    plain = stats.kstest(values, "norm", args=(mean, deviation)).pvalue
    fitted = stats.goodness_of_fit(stats.norm, values, statistic="ks", n_mc_samples=SIMULATIONS, rng=seed).pvalue
    return Sample(len(values), mean, deviation, float(plain), float(fitted))


def effect(columns: Sequence[Sequence[float]]) -> Effect:
    """Return the one-way analysis of variance and the Kruskal-Wallis test of at least two columns.

    The values must not all be equal."""
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
    """Import scipy.stats only when it is needed, because that takes two seconds of processor time."""
    return import_module("scipy.stats")
