"""A graph under construction, in which several topics use an edge; edges are added and released in O(degree).

An edge exists while it has a use. Each node's edges are a doubly linked list of half-edges. Edge e is half-edge 2e in
the list of one end and 2e + 1 in the list of the other. All lists are in arrays, for compiled kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from research.overlay_designs.interest import Ints
from saps.overlay.design.compiled import compiled

NONE = -1
"""End of a list, or the number of a missing edge."""


class Links(NamedTuple):
    """The arrays of the graph.

    Kernels walk node v's edges from ``h = first[v]`` by ``h = after[h]`` until NONE; the other end is ``to[h]``."""

    first: Ints
    """First half-edge of each node."""
    after: Ints
    """Next half-edge in the node's list."""
    before: Ints
    """Previous half-edge in the node's list."""
    to: Ints
    """Other end of each half-edge."""
    uses: Ints
    """Uses of each edge; that of half-edge h is ``h >> 1``."""
    degree: Ints
    free: Ints
    """Stack of the numbers of unused edges; ``free[0]`` is its height."""


@compiled
def no_links(nodes: int, edges: int) -> Links:
    """Return a graph without edges, with room for `edges`."""
    free = np.arange(edges, -1, -1).astype(np.int32)
    free[0], free[1:] = edges, free[1:].copy()
    half = 2 * edges
    return Links(
        np.full(nodes, NONE, np.int32),
        np.empty(half, np.int32),
        np.empty(half, np.int32),
        np.empty(half, np.int32),
        np.zeros(edges, np.int32),
        np.zeros(nodes, np.int32),
        free,
    )


@compiled
def use(links: Links, u: int, v: int) -> None:
    """Add a use to the edge between u and v, which is made if it is missing."""
    e = _find(links, u, v)
    if e == NONE:
        e = links.free[links.free[0]]
        links.free[0] -= 1
        links.uses[e] = 0
        _insert(links, 2 * e, u, v)
        _insert(links, 2 * e + 1, v, u)
    links.uses[e] += 1


@compiled
def release(links: Links, u: int, v: int) -> None:
    """Remove a use of the edge between u and v, which must exist. The edge goes with its last use."""
    e = _find(links, u, v)
    links.uses[e] -= 1
    if links.uses[e] == 0:
        _remove(links, 2 * e, links.to[2 * e + 1])
        _remove(links, 2 * e + 1, links.to[2 * e])
        links.free[0] += 1
        links.free[links.free[0]] = e


@compiled
def _find(links: Links, u: int, v: int) -> int:
    if links.degree[v] < links.degree[u]:
        u, v = v, u
    h = links.first[u]
    while h != NONE and links.to[h] != v:
        h = links.after[h]
    return NONE if h == NONE else h >> 1


@compiled
def _insert(links: Links, h: int, at: int, to: int) -> None:
    links.to[h], links.before[h], links.after[h] = to, NONE, links.first[at]
    if links.first[at] != NONE:
        links.before[links.first[at]] = h
    links.first[at] = h
    links.degree[at] += 1


@compiled
def _remove(links: Links, h: int, at: int) -> None:
    if links.before[h] == NONE:
        links.first[at] = links.after[h]
    else:
        links.after[links.before[h]] = links.after[h]
    if links.after[h] != NONE:
        links.before[links.after[h]] = links.before[h]
    links.degree[at] -= 1
