"""A graph under construction: edges that several topics use, added and released in O(degree).

An edge is there while it has a use. Each node's edges are a doubly linked list of half-edges: edge e is half-edge 2e in
the list of one end and 2e + 1 in that of the other. All in arrays, for compiled kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from research.overlay_designs.interest import Ints
from saps.overlay.design.compiled import compiled

NONE = -1
"""The end of a list; no such edge."""


class Links(NamedTuple):
    """The graph. Kernels walk node v's edges by ``h = first[v]``, ``h = after[h]`` until NONE, other end ``to[h]``."""

    first: Ints
    after: Ints
    before: Ints
    to: Ints
    uses: Ints
    """Of edge ``h >> 1``."""
    degree: Ints
    free: Ints
    """A stack of the numbers of edges not in use; ``free[0]`` is its height."""


@compiled
def no_links(nodes: int, edges: int) -> Links:
    """The graph without edges, with room for `edges`."""
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
    """One use more of the edge between u and v, which is made if it is not there."""
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
    """One use less of the edge between u and v, which must be there; it goes with its last use."""
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
