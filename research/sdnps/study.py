"""Recomputes Figures 6 to 8 of SDNPS (2016) with all planners on many random networks.

The paper is read as follows. The network is a random tree with random links, 600 in all and at least 2 at each node,
because the paper gives only 200 nodes, "homogenous", and equal bandwidths. Each topic has 30 relevant nodes drawn at
random, of which the first 6 publish. Topics come in the order of their numbers. An event takes 0.02 of a link's 1000
units (5.2.3). The meaning of "10,000 events per topic" is open, because with p(t) in Eq. (6) the events of a topic are
a share of all:

- ``even``, the reading of Figure 8: 10,000 events in all, shared evenly;
- ``zipf``: 10,000 events in all, shared by Zipf's law with exponent 2.0, as 5.2 says of p(t). The first topic alone has
  61 % of them, and its rate is the bound for a planner that keeps the other topics off its links;
- ``printed``: 10,000 events of every topic, all of them on every link of its tree: 200 units of 1000.

Each row says whether its setting is feasible (R(G) >= 0). All randomness comes from the seed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from functools import partial
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np

from research.engine import Progress, Sweep
from research.planner_bounds import load_bound, node_bound
from research.planner_instances import SHAPES, random_network, with_rates, zipf
from saps.ofm.planner.graph import Demands, Graph
from saps.ofm.planner.registry import ALGORITHMS
from saps.ofm.planner.trees import Figures, figures, loads

NODES, LINKS, LEAST = 200, 600, 2
"""LEAST is the least number of a node's links. No node then depends on one link, so that loads can be balanced."""
RELEVANT, PUBLISH = 30, 0.2
CAPACITY, UNIT = 1000.0, 0.02
"""Units of bandwidth of a link, and of an event."""
TOPICS = (40, 80, 120, 160, 200)
QUICK_TOPICS = (40, 200)
EVENTS = (10_000, 20_000, 50_000, 100_000)
GRAPHS, QUICK_GRAPHS = 10, 3
MAIN = "even"
READINGS = (MAIN, "zipf", "printed")
NO_SHAPE = "any"
"""The shape for planners that ignore the topic tree."""
THOROUGH = "balanced, thorough"


class Instance(NamedTuple):
    """A number of topics and the number of the network."""

    topics: int
    repetition: int


class Sample(NamedTuple):
    """The result of one planner on one instance, at 10,000 events."""

    planner: str
    shape: str
    popularity: str
    figures: Figures
    seconds: float
    bound: float
    """Proven lower bound on the utilisation of the busiest link."""


class Record(NamedTuple):
    """One point of a figure: means over the networks, and standard deviations."""

    figure: str
    planner: str
    shape: str
    reading: str
    topics: int
    events: int
    residual: float
    residual_sd: float
    residual_bound: float
    """Upper bound on the residual bandwidth of any planner, mean over the networks."""
    feasible: bool
    """Whether R(G) >= 0 on every network."""
    tree_cost: float
    tree_cost_sd: float
    diameter: float
    diameter_sd: float
    seconds: float
    seconds_sd: float


def instance_of(instance: Instance, seed: int) -> tuple[Graph, Demands, np.random.Generator]:
    """Return the network, the demands at rate 1, and the random generator of an instance."""
    rng = np.random.default_rng([seed, *instance])
    graph = random_network(NODES, LINKS, rng, least=LEAST, capacity=CAPACITY)
    return graph, Demands.uniform(NODES, instance.topics, RELEVANT, rng, share_of_senders=PUBLISH), rng


def measure(instance: Instance, seed: int) -> list[Sample]:
    """Return the results of all planners and shapes on one instance, for rates shared evenly and by Zipf's law."""
    graph, plain, rng = instance_of(instance, seed)
    fathers = {shape: draw(instance.topics, rng) for shape, draw in SHAPES.items()}
    shares = {"even": np.full(instance.topics, 1 / instance.topics), "zipf": zipf(instance.topics)}
    found = []
    for popularity, share in shares.items():
        demands = with_rates(plain, UNIT * EVENTS[0] * share)
        rows = []
        best = None
        for algorithm in ALGORITHMS.values():
            if algorithm.name == "cost first":
                continue  # takes as long as all the others together, and has a table of its own (`small`)
            for shape in SHAPES if algorithm.topic_tree else (NO_SHAPE,):
                asked = demands._replace(father=fathers.get(shape, demands.father))
                start = time.process_time()
                trees = algorithm.design(graph, asked)
                seconds = time.process_time() - start
                rows.append((algorithm.name, shape, figures(graph, asked, trees), seconds))
                if algorithm.name == THOROUGH:
                    best = loads(graph, asked, trees)
        assert best is not None
        bound = load_bound(graph, demands, best, rng) if popularity == MAIN else node_bound(graph, demands)
        found += [Sample(name, shape, popularity, result, seconds, bound) for name, shape, result, seconds in rows]
    return found


Measured = dict[Instance, list[Sample]]


def run(topics: Iterable[int], graphs: int, seed: int, sweep: Sweep, done: Progress) -> Measured:
    """Measure all instances. `done` is called with the number of instances done and of all."""
    instances = [Instance(count, repetition) for count in topics for repetition in range(graphs)]
    return dict(zip(instances, sweep(partial(measure, seed=seed), instances, done), strict=True))


def records(measured: Measured) -> list[Record]:
    """Return the points of Figures 6 and 7 (at even rates) and 8 (all readings and numbers of events)."""
    found = []
    for topics in sorted({instance.topics for instance in measured}):
        samples = [sample for instance, rows in measured.items() if instance.topics == topics for sample in rows]
        for planner, shape in dict.fromkeys((sample.planner, sample.shape) for sample in samples):
            for figure, reading, events in (
                ("6", MAIN, EVENTS[0]),
                ("7", MAIN, EVENTS[0]),
                *(("8", reading, events) for reading in READINGS for events in EVENTS),
            ):
                popularity = "zipf" if reading == "zipf" else "even"
                own = [s for s in samples if (s.planner, s.shape, s.popularity) == (planner, shape, popularity)]
                scale = events / EVENTS[0] * (topics if reading == "printed" else 1)
                found.append(_record(figure, reading, topics, events, own, scale))
    return found


def _record(figure: str, reading: str, topics: int, events: int, samples: list[Sample], scale: float) -> Record:
    residual = [CAPACITY * (1 - scale * sample.figures.busiest) for sample in samples]
    return Record(
        figure,
        samples[0].planner,
        samples[0].shape,
        reading,
        topics,
        events,
        *_mean(residual),
        round(fmean(CAPACITY * (1 - scale * sample.bound) for sample in samples), 4),
        min(residual) >= 0,
        *_mean([sample.figures.tree_cost for sample in samples]),
        *_mean([sample.figures.diameter for sample in samples]),
        *_mean([sample.seconds for sample in samples], 6),
    )


def _mean(values: list[float], digits: int = 4) -> tuple[float, float]:
    return round(fmean(values), digits), round(stdev(values), digits) if len(values) > 1 else math.nan


class Gap(NamedTuple):
    """The busiest link's excess over the proven bound, as a share, over all networks of one number of topics."""

    planner: str
    reading: str
    topics: int
    mean: float
    worst: float


def gaps(measured: Measured) -> list[Gap]:
    """Return the gaps of our planners."""
    found = []
    for topics in sorted({instance.topics for instance in measured}):
        samples = [sample for instance, rows in measured.items() if instance.topics == topics for sample in rows]
        for planner in (name for name, algorithm in ALGORITHMS.items() if algorithm.ours):
            for reading in ("zipf", "even"):
                over = [
                    sample.figures.busiest / sample.bound - 1
                    for sample in samples
                    if (sample.planner, sample.popularity) == (planner, reading)
                ]
                if over:
                    found.append(Gap(planner, reading, topics, round(fmean(over), 4) + 0.0, round(max(over), 4) + 0.0))
    return found
