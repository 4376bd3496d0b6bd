"""Tools on sets of edges for compiled loops: connected pieces, and the pruning of leaves."""

from __future__ import annotations

import numpy as np

from saps.ofm.planner.graph import Flags, Graph, Ints, Offsets
from saps.overlay.design.compiled import compiled


@compiled
def root(parent: Ints, v: int) -> int:
    """Return the representative of v's piece. Paths are halved on the way (Tarjan & van Leeuwen 1984)."""
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@compiled
def unite(parent: Ints, u: int, v: int) -> bool:
    """Unite the pieces of two nodes. Return False if they were one piece already."""
    a, b = root(parent, u), root(parent, v)
    parent[a] = b
    return bool(a != b)


@compiled
def prune(graph: Graph, edges: Ints, count: int, keep: Flags, degree: Ints) -> int:
    """Cut leaves off the first `count` of `edges` in place, repeatedly, unless `keep` holds them. Return the number of
    edges left. ``degree`` is all 0 before and after: clearing the nodes of a tree costs less than clearing all nodes
    for each of thousands of topics."""
    ends = graph.ends
    for i in range(count):
        degree[ends[edges[i], 0]] += 1
        degree[ends[edges[i], 1]] += 1
    again = True
    while again:
        again, left = False, 0
        for i in range(count):
            a, b = ends[edges[i], 0], ends[edges[i], 1]
            if (degree[a] == 1 and not keep[a]) or (degree[b] == 1 and not keep[b]):
                degree[a] -= 1
                degree[b] -= 1
                again = True
            else:
                edges[left] = edges[i]
                left += 1
        count = left
    for i in range(count):
        degree[ends[edges[i], 0]] = 0
        degree[ends[edges[i], 1]] = 0
    return count


@compiled
def identity(nodes: int) -> Ints:
    """Return parents that make every node a piece of its own."""
    return np.arange(nodes).astype(np.int32)


@compiled
def pieces_of(graph: Graph, edges: Ints, members: Ints) -> tuple[Offsets, Ints]:
    """Return the nodes of each connected piece of a tree in compressed rows. A member without edges is a piece of its
    own."""
    n = len(graph.at) - 1
    parent, seen = identity(n), np.zeros(n, np.bool_)
    for v in members:
        seen[v] = True
    for e in edges:
        unite(parent, graph.ends[e, 0], graph.ends[e, 1])
        seen[graph.ends[e, 0]] = seen[graph.ends[e, 1]] = True
    number, size, pieces = np.full(n, -1, np.int32), np.zeros(n, np.int64), 0
    for v in range(n):
        if seen[v]:
            r = root(parent, v)
            if number[r] < 0:
                number[r] = pieces
                pieces += 1
            size[number[r]] += 1
    at = np.zeros(pieces + 1, np.int64)
    for i in range(pieces):
        at[i + 1] = at[i] + size[i]
    nodes, filled = np.empty(at[pieces], np.int32), at.copy()
    for v in range(n):
        if seen[v]:
            piece = number[root(parent, v)]
            nodes[filled[piece]] = v
            filled[piece] += 1
    return at, nodes
