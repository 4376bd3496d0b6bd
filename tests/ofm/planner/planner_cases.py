"""Random networks and demands for the tests of the planners, small enough to know the optimum."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from research.planner_instances import SHAPES, random_network, zipf
from saps.ofm.planner.graph import Demands, Floats, Graph


@st.composite
def cases(draw: st.DrawFn, *, least: int = 2, most: int = 14) -> tuple[Graph, Demands]:
    """A connected network with unequal capacities, and topics of one member and more in a tree of topics."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    nodes = draw(st.integers(least, most))
    links = draw(st.integers(nodes - 1, min(3 * nodes, nodes * (nodes - 1) // 2)))
    graph = random_network(nodes, links, rng)._replace(capacity=rng.uniform(0.5, 2.0, links))
    topics = draw(st.integers(1, 6))
    members = [rng.permutation(nodes)[: rng.integers(1, nodes + 1)].tolist() for _ in range(topics)]
    father = SHAPES[draw(st.sampled_from(sorted(SHAPES)))](topics, rng)
    rates = draw(st.sampled_from([np.ones(topics), zipf(topics)]))
    return graph, Demands.of(members, rates.tolist(), draw(st.integers(1, 3)), father.tolist())


def random_lengths(graph: Graph, seed: int) -> Floats:
    """Lengths without ties."""
    return np.random.default_rng(seed).uniform(1.0, 2.0, graph.edges)


def net(graph: Graph, length: Floats) -> nx.Graph[int]:
    """The same network for networkx."""
    found: nx.Graph[int] = nx.Graph()
    found.add_nodes_from(range(graph.nodes))
    for edge, (a, b) in enumerate(graph.ends.tolist()):
        found.add_edge(a, b, weight=float(length[edge]), number=edge)
    return found


def optimum(graph: Graph, members: Iterable[int], length: Floats) -> float:
    """The least length of a tree over the members: a minimum spanning tree of every set of nodes, all tried."""
    network, must = net(graph, length), sorted(set(members))
    others = [node for node in range(graph.nodes) if node not in must]
    best = float("inf")
    for count in range(len(others) + 1):
        for more in itertools.combinations(others, count):
            part = network.subgraph([*must, *more])
            if nx.is_connected(part):
                best = min(best, nx.minimum_spanning_tree(part).size("weight"))
    return best
