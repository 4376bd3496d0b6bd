"""Grows a tree by cheapest paths (Takahashi & Matsuyama 1980) in one continued search.

The input is groups of nodes to join: single members for a new tree, the pieces of a broken tree, or a tree and a
joining node. The search starts at the first group. When it reaches another group, the path there and the whole group
get distance 0. Labels only fall, so this finds the same paths as a new search for each group, in a fraction of the
time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from saps.ofm.planner.graph import Flags, Floats, Graph, Ints, Offsets
from saps.ofm.planner.kernels.heap import pop, push
from saps.overlay.design.compiled import compiled

UNREACHABLE = -1
"""Result in place of a number of edges: no path leads to some group."""


class Scratch(NamedTuple):
    """Reusable memory of a search."""

    key: Floats
    via: Ints
    """Edge by which each node was reached."""
    group: Ints
    """Group of each node. 0: in the tree; -1: in no group."""
    heap: Ints
    place: Ints
    joined: Flags
    out: Ints
    """Edges found."""


@compiled
def scratch(nodes: int) -> Scratch:
    """Return memory for searches in a graph with `nodes` nodes."""
    return Scratch(
        np.empty(nodes, np.float64),
        np.empty(nodes, np.int32),
        np.full(nodes, -1, np.int32),
        np.empty(nodes, np.int32),
        np.full(nodes, -1, np.int32),
        np.zeros(nodes + 1, np.bool_),
        np.empty(nodes, np.int32),
    )


@compiled
def grow(graph: Graph, length: Floats, closed: Flags, at: Offsets, nodes: Ints, work: Scratch) -> int:
    """Join the groups ``nodes[at[g]:at[g + 1]]``, disjoint and not empty, by edges of least length. Write the edges
    into ``work.out``; return their number, or `UNREACHABLE`.

    Lengths are greater than 0; an infinite one closes the edge. A closed node is passed only if it is in a group."""
    at_of, to, edge_of, ends = graph.at, graph.to, graph.edge, graph.ends
    key, via, group, heap, place, joined, out = work
    groups = len(at) - 1
    key[:] = np.inf
    for g in range(groups):
        joined[g] = False
        for i in range(at[g], at[g + 1]):
            group[nodes[i]] = g
    size, found, missing = 0, 0, groups - 1
    for i in range(at[1] if groups > 0 else 0):
        key[nodes[i]] = 0.0
        size = push(heap, place, key, size, nodes[i])
    while size > 0 and missing > 0:
        v = pop(heap, place, key, size)
        size -= 1
        g = group[v]
        if g > 0 and not joined[g]:
            # A new group is reached: the path back to the tree, and the whole group, join the tree at distance 0.
            joined[g] = True
            missing -= 1
            w = v
            while group[w] != 0:
                e = via[w]
                out[found] = e
                found += 1
                group[w] = 0
                key[w] = 0.0
                size = push(heap, place, key, size, w)
                w = ends[e, 0] + ends[e, 1] - w
            for i in range(at[g], at[g + 1]):
                w = nodes[i]
                group[w] = 0
                if key[w] > 0.0:
                    key[w] = 0.0
                    size = push(heap, place, key, size, w)
            continue
        near = key[v]
        for i in range(at_of[v], at_of[v + 1]):
            u = to[i]
            far = near + length[edge_of[i]]
            if far < key[u] and not (closed[u] and group[u] < 0):
                key[u] = far
                via[u] = edge_of[i]
                size = push(heap, place, key, size, u)
    # The next search expects `place` and `group` cleared; clearing only what was touched is cheaper than all.
    for i in range(size):
        place[heap[i]] = -1
    for i in range(at[groups]):
        group[nodes[i]] = -1
    for i in range(found):
        group[ends[out[i], 0]] = -1
        group[ends[out[i], 1]] = -1
    return found if missing <= 0 else UNREACHABLE
