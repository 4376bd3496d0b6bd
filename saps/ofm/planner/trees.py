"""The result of a planner: one tree for each topic, and the figures that compare planners (SDNPS 2016, 4.2, 5.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from saps.ofm.planner.graph import Demands, Floats, Graph, Ints, Offsets
from saps.overlay.design.compiled import compiled


class Trees(NamedTuple):
    """The edges of each topic's tree, in compressed rows. A refused topic has no edges."""

    at: Offsets
    edges: Ints

    @property
    def topics(self) -> int:
        """Number of topics."""
        return len(self.at) - 1

    def edges_of(self, topic: int) -> Ints:
        """Return the edges of a topic's tree."""
        return self.edges[self.at[topic] : self.at[topic + 1]]

    @classmethod
    def of(cls, trees: Sequence[Iterable[int]]) -> Trees:
        """Return trees made from the edges of each."""
        rows = [sorted(tree) for tree in trees]
        at = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return cls(at, np.array([edge for row in rows for edge in row], np.int32))


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures that compare planners."""

    residual: float
    """R(G) of Definition 3: the least capacity left on any edge. A negative value means an infeasible plan."""
    busiest: float
    """Greatest utilisation of an edge: its load divided by its capacity."""
    tree_cost: float
    """Mean number of edges of a tree over the topics."""
    diameter: float
    """Mean longest path within a tree over the topics, in hops (5.2.2)."""


def figures(graph: Graph, demands: Demands, trees: Trees) -> Figures:
    """Return the figures of a plan, in O(n + edges of all trees)."""
    load = loads(graph, demands, trees)
    return Figures(
        residual=float((graph.capacity - load).min(initial=np.inf)),
        busiest=float((load / graph.capacity).max(initial=0.0)),
        tree_cost=len(trees.edges) / max(trees.topics, 1),
        diameter=float(diameters(graph, trees).mean()) if trees.topics else 0.0,
    )


def loads(graph: Graph, demands: Demands, trees: Trees) -> Floats:
    """Return the bandwidth taken on each edge, Eq. (6)."""
    rates = np.repeat(demands.rate, np.diff(trees.at))
    return np.bincount(trees.edges, rates, minlength=graph.edges).astype(np.float64)


def entries(graph: Graph, demands: Demands, trees: Trees) -> Ints:
    """Return the number of trees through each node: the flow entries it needs, at one for each tree."""
    counts = np.zeros(graph.nodes, np.int64)
    for topic in range(trees.topics):
        if len(edges := trees.edges_of(topic)):
            counts[np.unique(graph.ends[edges])] += 1
        else:
            counts[demands.nodes_of(topic)] += 1
    return counts.astype(np.int32)


def diameters(graph: Graph, trees: Trees) -> Ints:
    """Return the longest path of each tree in hops: from the node farthest from any node to the node farthest from that
    one."""
    return _diameters(graph, trees)


def validate(graph: Graph, demands: Demands, trees: Trees, *, exact: bool = True) -> None:
    """Check that every topic's edges are one tree over its members; with `exact`, every leaf must be a member. A topic
    without edges must have fewer than two members. Raises `AssertionError` for any other plan."""
    for topic in range(trees.topics):
        members, edges = set(demands.nodes_of(topic).tolist()), trees.edges_of(topic)
        around: dict[int, list[int]] = {node: [] for node in members}
        for a, b in graph.ends[edges].tolist():
            around.setdefault(a, []).append(b)
            around.setdefault(b, []).append(a)
        reached = dict.fromkeys(list(around)[:1])
        queue = list(reached)
        for node in queue:
            for other in around[node]:
                if other not in reached:
                    reached[other] = None
                    queue.append(other)
        assert reached.keys() == around.keys(), f"the tree of topic {topic} is in several pieces"
        assert len(edges) == max(len(around) - 1, 0), f"the tree of topic {topic} has a loop"
        if exact:
            bare = [node for node, others in around.items() if len(others) < 2 and node not in members]
            assert not bare, f"the tree of topic {topic} has leaves without a member: {bare}"


@compiled
def _diameters(graph: Graph, trees: Trees) -> Ints:
    n, topics = len(graph.at) - 1, len(trees.at) - 1
    result = np.zeros(topics, np.int32)
    first, depth, queue = np.full(n, -1, np.int32), np.full(n, -1, np.int32), np.empty(n, np.int32)
    for t in range(topics):
        edges = trees.edges[trees.at[t] : trees.at[t + 1]]
        after = np.full(2 * len(edges), -1, np.int32)  # linked lists of the half-edges of each node
        for i in range(len(edges)):
            for side in range(2):
                v = graph.ends[edges[i], side]
                after[2 * i + side], first[v] = first[v], 2 * i + side
        start = graph.ends[edges[0], 0] if len(edges) else 0
        for _ in range(2):
            depth[start], queue[0], head, tail = 0, start, 0, 1
            while head < tail:
                v = queue[head]
                head += 1
                h = first[v]
                while h >= 0:
                    u = graph.ends[edges[h >> 1], 1 - (h & 1)]
                    if depth[u] < 0:
                        depth[u], queue[tail] = depth[v] + 1, u
                        tail += 1
                    h = after[h]
            start = queue[tail - 1]
            result[t] = depth[start]
            for i in range(tail):
                depth[queue[i]] = -1
        for i in range(len(edges)):
            first[graph.ends[edges[i], 0]] = -1
            first[graph.ends[edges[i], 1]] = -1
    return result
