"""Small tools on sets of edges for compiled loops: connected pieces, and the pruning of leaves."""

from __future__ import annotations

import numpy as np

from saps.ofm.planner.graph import Flags, Graph, Ints
from saps.overlay.design.compiled import compiled


@compiled
def root(parent: Ints, v: int) -> int:
    """The representative of v's piece; paths are halved on the way (Tarjan & van Leeuwen 1984)."""
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@compiled
def unite(parent: Ints, u: int, v: int) -> bool:
    """Makes one piece of two. False if they were one."""
    a, b = root(parent, u), root(parent, v)
    parent[a] = b
    return bool(a != b)


@compiled
def prune(graph: Graph, edges: Ints, count: int, keep: Flags, degree: Ints) -> int:
    """Cuts off leaves that are not to be kept, and what become leaves thereby, from the first `count` of `edges`, in
    place; gives the number left. ``degree`` is all 0 before and after."""
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
    """Every node a piece of its own."""
    return np.arange(nodes).astype(np.int32)
