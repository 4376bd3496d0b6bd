"""Generates the random networks and demands on which planners are compared."""

from __future__ import annotations

import numpy as np

from saps.ofm.planner.graph import Demands, Floats, Graph, Ints


def random_network(nodes: int, links: int, rng: np.random.Generator, *, least: int = 1, capacity: float = 1.0) -> Graph:
    """Return a random connected network, whose links all have `capacity`.

    It begins as a random tree. Nodes with fewer than `least` links get links to random others. Links between random
    nodes follow until there are `links` of them. Raises `ValueError` if `links` is too small or too large for the
    nodes."""
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
    """Return the shares p(t) of a Zipf distribution, greatest first, with sum 1 (SDNPS 2016, 5.2: exponent 2.0)."""
    weight: Floats = np.arange(1.0, topics + 1) ** -exponent
    return np.asarray(weight / weight.sum())


def all_first_level(topics: int, rng: np.random.Generator) -> Ints:
    """Return a topic tree in which no topic has a father; with it SDNPS is CMMR."""
    return np.full(topics, -1, np.int32)


def single_branch(topics: int, rng: np.random.Generator) -> Ints:
    """Return a topic tree in which each topic is the father of the next: EMCOTO."""
    return np.arange(-1, topics - 1, dtype=np.int32)


def mixed(topics: int, rng: np.random.Generator) -> Ints:
    """Return a topic tree with half of the topics at the first level (5.2.1), each a possible father of the others:
    MCOTO."""
    first = (topics + 1) // 2
    return np.concatenate([np.full(first, -1), rng.integers(first, size=topics - first)]).astype(np.int32)


SHAPES = {"CMMR": all_first_level, "MCOTO": mixed, "EMCOTO": single_branch}
"""The paper's name of its algorithm -> the shape of the topic tree."""


def with_rates(demands: Demands, rate: Floats) -> Demands:
    """Return the same demands at other rates, one for each topic."""
    return demands._replace(rate=np.asarray(rate, np.float64))
