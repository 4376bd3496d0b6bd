"""The result of a design: an overlay network, and the figures that judge it (TD-CD-ODA 2017, section II)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.overlay_designs.interest import Interest, Ints, Offsets
from saps.overlay.design.compiled import compiled

DISCONNECTED = -1
"""Diameter of a topic whose nodes do not all reach each other over nodes of the topic."""


@dataclass(frozen=True, slots=True, eq=False)
class Overlay:
    """An undirected graph on the nodes 0 .. nodes-1."""

    nodes: int
    edges: Ints
    """Shape (m, 2): each edge once, as (u, v) with u < v, sorted."""

    @staticmethod
    def of(nodes: int, edges: NDArray[Any]) -> Overlay:
        """Return the overlay of edges in any direction and order; repetitions and loops are dropped."""
        array = np.asarray(edges, np.int64).reshape(-1, 2)
        low, high = array.min(axis=1), array.max(axis=1)
        flat = np.unique((low * nodes + high)[low != high])
        return Overlay(nodes, np.stack([flat // max(nodes, 1), flat % max(nodes, 1)], axis=1).astype(np.int32))

    def degrees(self) -> Ints:
        """Return the degree of each node."""
        return np.bincount(self.edges.ravel(), minlength=self.nodes).astype(np.int32)

    def neighbours(self) -> tuple[Offsets, Ints]:
        """Return the adjacency in compressed rows: the rows' starts, and each node's neighbours, ascending."""
        both = np.concatenate([self.edges, self.edges[:, ::-1]])
        both = both[np.lexsort((both[:, 1], both[:, 0]))]
        starts = np.concatenate([[0], np.cumsum(self.degrees())]).astype(np.int64)
        return starts, np.ascontiguousarray(both[:, 1])


@dataclass(frozen=True, slots=True)
class Statistics:
    """The figures that the papers compare."""

    edges: int
    average_degree: float
    """Mean number of edges at a node."""
    maximum_degree: int
    diameter: int
    """Greatest topic diameter in hops; DISCONNECTED if the overlay is not topic-connected."""

    @property
    def topic_connected(self) -> bool:
        """Whether each topic's nodes are connected among themselves."""
        return self.diameter != DISCONNECTED


def statistics(interest: Interest, overlay: Overlay) -> Statistics:
    """Return the figures of `overlay`. Topic diameters are exact, in O(sum of |V_t| * edges within V_t)."""
    diameters = topic_diameters(interest, overlay)
    connected = not (diameters == DISCONNECTED).any()
    degrees = overlay.degrees()
    return Statistics(
        edges=len(overlay.edges),
        average_degree=2 * len(overlay.edges) / max(overlay.nodes, 1),
        maximum_degree=int(degrees.max(initial=0)),
        diameter=int(diameters.max(initial=0)) if connected else DISCONNECTED,
    )


def topic_diameters(interest: Interest, overlay: Overlay) -> Ints:
    """Return each topic's longest shortest path between two of its nodes, over its own nodes; 0 up to one node.

    Messages of a topic pass its own nodes only (relay-free), so the paths are those of the subgraph induced by V_t.
    """
    starts, neighbours = overlay.neighbours()
    return _diameters(interest.nodes_at, interest.nodes_of, starts, neighbours)


@compiled
def _diameter(at: Offsets, to: Ints) -> int:
    """Return a graph's diameter by breadth-first search from each node; DISCONNECTED if a node does not reach all."""
    size = len(at) - 1
    queue, depth, longest = np.empty(size, np.int32), np.empty(size, np.int32), 0
    for source in range(size):
        depth[:] = -1
        depth[source], queue[0], head, tail = 0, source, 0, 1
        while head < tail:
            v = queue[head]
            head += 1
            for e in range(at[v], at[v + 1]):
                if depth[to[e]] < 0:
                    depth[to[e]] = depth[v] + 1
                    queue[tail] = to[e]
                    tail += 1
        if tail < size:
            return DISCONNECTED
        longest = max(longest, depth[queue[tail - 1]])
    return longest


@compiled
def _diameters(nodes_at: Offsets, nodes_of: Ints, starts: Offsets, neighbours: Ints) -> Ints:
    topics, n = len(nodes_at) - 1, len(starts) - 1
    result = np.zeros(topics, np.int32)
    local = np.full(n, -1, np.int32)  # place within the topic, -1 outside
    for t in range(topics):
        members = nodes_of[nodes_at[t] : nodes_at[t + 1]]
        size = len(members)
        local[members] = np.arange(size).astype(np.int32)
        at = np.zeros(size + 1, np.int64)  # the induced subgraph, in compressed rows
        for i in range(size):
            v, count = members[i], 0
            for e in range(starts[v], starts[v + 1]):
                if local[neighbours[e]] >= 0:
                    count += 1
            at[i + 1] = at[i] + count
        to = np.empty(at[size], np.int32)
        for i in range(size):
            v, k = members[i], at[i]
            for e in range(starts[v], starts[v + 1]):
                if local[neighbours[e]] >= 0:
                    to[k] = local[neighbours[e]]
                    k += 1
        local[members] = np.int32(-1)
        result[t] = _diameter(at, to)
    return result
