"""Recomputes Tables I to VI of TD-CD-ODA (2017) by the design algorithms, over many random instances.

An instance is a setting and the number of its repetition; its interest matrix is the same for all algorithms. All
randomness comes from the seed, so a run can be repeated in any order and on any number of cores.

Tables V and VI are computed for two settings. The text gives 250 nodes and 100 topics; the printed figures fit 200
nodes and 200 topics (a maximum degree of 199, the averages). The paper's cells stand beside the fitting setting. The
other one goes under the table's number with a note.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np

from research.engine import Progress, Sweep
from research.overlay_designs.greedy_merge import greedy_merge
from research.overlay_designs.greedy_stars import (
    DENSITY,
    DISTRIBUTION,
    DISTRIBUTION_OF_ALL,
    DISTRIBUTION_OF_REMAINING,
    greedy_stars,
)
from research.overlay_designs.interest import Interest
from research.overlay_designs.overlay import Statistics, statistics
from research.overlay_designs.registry import ALGORITHMS, Design
from research.overlay_designs.two_d_oda import two_d_oda
from research.published import TABLES, Setting, Table

REPETITIONS = 20
"""Instances for each setting."""
QUICK_REPETITIONS = 2
TEXT_NOTE = " (250 nodes, 100 topics)"
"""Note added to the number of Tables V and VI for the setting of their text."""

READINGS: dict[str, tuple[str, Design]] = {
    "GM, ties at random": ("GM", partial(greedy_merge, random_ties=True)),
    "CD-ODA-II, linked by removed topics too": ("CD-ODA-II", partial(greedy_stars, score=DENSITY, all_topics=True)),
    "2D-ODA, Eq. (4) as printed": ("2D-ODA", partial(two_d_oda, as_printed=True)),
    "TD-CD-ODA, divided by the remaining subscriptions": (
        "TD-CD-ODA",
        partial(greedy_stars, score=DISTRIBUTION_OF_REMAINING),
    ),
    "TD-CD-ODA, removed topics count in the distribution": (
        "TD-CD-ODA",
        partial(greedy_stars, score=DISTRIBUTION_OF_ALL),
    ),
    "TD-CD-ODA, linked by removed topics too": (
        "TD-CD-ODA",
        partial(greedy_stars, score=DISTRIBUTION, all_topics=True),
    ),
}
"""Other readings of the text: name -> the algorithm that they read differently, and the design."""


class Row(NamedTuple):
    """One line of the recomputed tables."""

    shown: str
    """The table's number as shown, with a note if there is one."""
    table: Table
    x: int
    setting: Setting
    fits: bool
    """Whether the paper's cell belongs to this setting."""


class Instance(NamedTuple):
    """A setting and the number of its repetition."""

    setting: Setting
    repetition: int


class Record(NamedTuple):
    """One cell: the paper's value beside the mean and standard deviation of ours."""

    table: str
    algorithm: str
    x: int
    paper: float | None
    mean: float
    sd: float
    diameter: int
    """Greatest topic diameter of all instances."""


Measured = dict[Setting, dict[str, list[Statistics]]]
"""The figures of the instances, by setting and algorithm."""


def rows(*, quick: bool = False) -> list[Row]:
    """Return the lines to compute; with `quick` only each table's first and last."""
    found = []
    for table in TABLES:
        for x in [min(table.rows), max(table.rows)] if quick else sorted(table.rows):
            if table.parameter == "nodes":
                found.append(Row(table.number, table, x, Setting(x, 100, 10), True))
            elif table.parameter == "topics":
                found.append(Row(table.number, table, x, Setting(200, x, 10), True))
            else:
                found.append(Row(table.number, table, x, Setting(200, 200, x), True))
                found.append(Row(table.number + TEXT_NOTE, table, x, Setting(250, 100, x), False))
    return found


def designs() -> dict[str, Design]:
    """Return all algorithms and all other readings by name."""
    return {name: a.design for name, a in ALGORITHMS.items()} | {name: d for name, (_, d) in READINGS.items()}


def measure(instance: Instance, seed: int) -> dict[str, Statistics]:
    """Return the figures of all designs on one instance."""
    place = [seed, *instance.setting, instance.repetition]
    interest = Interest.uniform(*instance.setting, np.random.default_rng(place))
    return {
        name: statistics(interest, design(interest, np.random.default_rng([*place, number])))
        for number, (name, design) in enumerate(designs().items(), start=1)
    }


def run(lines: Iterable[Row], repetitions: int, seed: int, sweep: Sweep, done: Progress) -> Measured:
    """Measure all settings of `lines`. `done` is called with the number of instances done and of all."""
    settings = list(dict.fromkeys(line.setting for line in lines))
    instances = [Instance(setting, r) for setting in settings for r in range(repetitions)]
    found = sweep(partial(measure, seed=seed), instances, done)
    measured: Measured = {setting: {name: [] for name in designs()} for setting in settings}
    for instance, row in zip(instances, found, strict=True):
        for name, figures in row.items():
            measured[instance.setting][name].append(figures)
    return measured


def records(lines: Sequence[Row], measured: Measured) -> list[Record]:
    """Return the cells of all algorithms, in the order of `lines`."""
    return [_record(line, name, name, measured) for line in lines for name in ALGORITHMS]


def readings(lines: Sequence[Row], measured: Measured) -> list[Record]:
    """Return the cells of the other readings, beside the paper's figures of the algorithms that they read."""
    return [_record(line, name, of, measured) for line in lines for name, (of, _) in READINGS.items()]


def _record(line: Row, name: str, printed_as: str, measured: Measured) -> Record:
    figures = measured[line.setting][name]
    values = [float(f.maximum_degree) if line.table.maximum else f.average_degree for f in figures]
    return Record(
        table=line.shown,
        algorithm=name,
        x=line.x,
        paper=line.table.printed(printed_as, line.x) if line.fits else None,
        mean=round(fmean(values), 4),
        sd=round(stdev(values), 4) if len(values) > 1 else math.nan,
        diameter=max(f.diameter for f in figures),
    )
