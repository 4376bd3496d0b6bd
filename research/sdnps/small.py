"""Measures the cost-first planner's distance from the optimum, on networks small enough to compute the optimum."""

from __future__ import annotations

from statistics import fmean
from typing import NamedTuple

import numpy as np

from research.planner_instances import random_network
from saps.ofm.planner.frugal import frugal_tree

NODES = 40
SETTINGS = tuple((links, members) for links in (60, 80, 120) for members in (5, 7, 9))
CASES, QUICK_CASES = 50, 3
_ALWAYS, _NEVER = 64, 0


class Small(NamedTuple):
    """Excess costs of trees over the optimum, as shares, over all cases of a setting."""

    links: int
    members: int
    mean: float
    worst: float
    search_mean: float
    """Mean excess of the local search alone."""
    search_worst: float
    """Greatest excess of the local search alone."""


def measure(seed: int, cases: int) -> list[Small]:
    """Measure `cases` cases of each setting. Lengths of the links are random integers from 1 to 10."""
    found = []
    for links, members in SETTINGS:
        planned, searched = [], []
        for case in range(cases):
            rng = np.random.default_rng([seed, links, members, case])
            graph = random_network(NODES, links, rng)
            length = rng.integers(1, 11, graph.edges).astype(np.float64)
            nodes = rng.choice(NODES, members, replace=False).astype(np.int32)
            costs = []
            for exact in (None, _NEVER, _ALWAYS):
                tree = frugal_tree(graph, nodes, length, **({} if exact is None else {"exact": exact}))
                assert tree is not None
                costs.append(float(length[tree].sum()))
            planned.append(costs[0] / costs[2] - 1)
            searched.append(costs[1] / costs[2] - 1)
        digits = (round(value, 6) for value in (fmean(planned), max(planned), fmean(searched), max(searched)))
        found.append(Small(links, members, *digits))
    return found
