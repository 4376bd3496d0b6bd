"""Random networks and demands: what planners are compared on."""

from __future__ import annotations

import numpy as np

from saps.ofm.planner.graph import Demands, Floats, Graph, Ints


def random_network(nodes: int, links: int, rng: np.random.Generator, *, least: int = 1, capacity: float = 1.0) -> Graph:
    """A random connected network: a random tree; links from nodes with fewer than `least` to random others; and links
    between random nodes until there are `links` of them.

    Raises `ValueError` if there are too few or too many."""
    if not nodes - 1 <= links <= nodes * (nodes - 1) // 2:
        raise ValueError(f"{nodes} nodes cannot have {links} links")
    names = rng.permutation(nodes).tolist()
    found = {_link(names[i], names[int(rng.integers(i))]) for i in range(1, nodes)}
    degree = np.bincount(np.array(sorted(found)).ravel(), minlength=nodes)
    for node in names:
        while degree[node] < min(least, nodes - 1):
            link = _link(node, int(rng.integers(nodes)))
            if link[0] != link[1] and link not in found:
                found.add(link)
                degree[list(link)] += 1
    while len(found) < links:
        a, b = rng.integers(nodes, size=2).tolist()
        if a != b:
            found.add(_link(a, b))
    return Graph.of(nodes, sorted(found), capacity)


def _link(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def zipf(topics: int, exponent: float = 2.0) -> Floats:
    """The shares p(t) of a Zipf distribution, greatest first; their sum is 1 (SDNPS 2016, 5.2: exponent 2.0)."""
    weight: Floats = np.arange(1.0, topics + 1) ** -exponent
    return np.asarray(weight / weight.sum())


def all_first_level(topics: int, rng: np.random.Generator) -> Ints:
    """A topic tree where no topic has a father: SDNPS is CMMR then."""
    return np.full(topics, -1, np.int32)


def single_branch(topics: int, rng: np.random.Generator) -> Ints:
    """A topic tree where each topic is the father of the next: EMCOTO."""
    return np.arange(-1, topics - 1, dtype=np.int32)


def mixed(topics: int, rng: np.random.Generator) -> Ints:
    """Half of the topics are at the first level (5.2.1), each other one has a father among these: MCOTO."""
    first = (topics + 1) // 2
    return np.concatenate([np.full(first, -1), rng.integers(first, size=topics - first)]).astype(np.int32)


SHAPES = {"CMMR": all_first_level, "MCOTO": mixed, "EMCOTO": single_branch}
"""The paper's names of its algorithm by the shape of the topic tree."""


def with_rates(demands: Demands, rate: Floats) -> Demands:
    """The same demands at other rates."""
    return demands._replace(rate=np.asarray(rate, np.float64))
