"""The balanced planner: cheapest paths where the length of an edge grows exponentially with its utilisation.

An edge is as long as one hop, plus exp(steepness * u / target). Here u is its utilisation with the topic on it, and the
target is the greatest utilisation so far. These are the prices of online routing that is competitive in the busiest
edge (Aspnes, Azar, Fiat, Plotkin & Waarts 1997), here for trees.

1. Each topic, the largest first, gets the tree of cheapest paths at the current prices.
2. Each pass of re-routing removes one tree after the other and grows it anew among all others. Prices get steeper from
   pass to pass. A new tree that is longer at these prices than its predecessor is rejected.
3. The pass with the least busiest edge counts; of equals, the one with fewest edges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saps.ofm.planner.graph import Demands, Flags, Floats, Graph, Ints, Offsets
from saps.ofm.planner.kernels.growth import UNREACHABLE, grow, scratch
from saps.ofm.planner.trees import Trees
from saps.overlay.design.compiled import compiled

PASSES = 2
"""Number of passes that grow every tree anew; time grows in proportion."""
THOROUGH = 20
"""Passes where time does not matter: 2 to 15 % less load on the busiest edge, and 10 % shorter trees."""
_MOST = 600.0
"""Greatest exponent of a price; greater ones overflow."""


class Prices(NamedTuple):
    """The steepness of prices: the price of an edge grows e-fold for each (target / steepness) of utilisation.

    Steep prices keep the busiest edge low and make trees long. Prices that begin gently and end steep do better in
    both."""

    first: float = 5.0
    """Steepness while trees are first made."""
    last: float = 40.0
    """Steepness of the last pass."""
    tight: float = 0.97
    """Target of a pass, as a factor of the greatest utilisation before it."""


def balanced(
    graph: Graph,
    demands: Demands,
    *,
    passes: int = PASSES,
    rates: Prices | None = None,
    budget: Ints | None = None,
    forbidden: Flags | None = None,
) -> Trees:
    """Return trees that minimise the load of the busiest edge, and are short besides.

    `budget` is the most trees through each node. `forbidden`, by topic and node, says whether a policy keeps the topic
    out of the node. A topic with a member at a full or forbidden node, or without paths around such nodes, is refused:
    it gets no edges. Time O(passes * (topics * m + all searches))."""
    order = np.argsort(-demands.rate, kind="stable")
    room = np.full(graph.nodes if budget is not None else 0, 0, np.int64)
    if budget is not None:
        room[:] = budget
    policy = np.zeros((0, 0), np.bool_) if forbidden is None else forbidden
    return Trees(*_balanced(graph, demands, order, room, policy, passes, rates or Prices()))


@compiled
def lengths(graph: Graph, load: Floats, rate: float, target: float, steepness: float, length: Floats) -> None:
    """Write the length of each edge into `length`, for a topic of this rate that is not in `load`."""
    scale = steepness / target if target > 0.0 else 0.0
    for e in range(len(load)):
        length[e] = 1.0 + np.exp(min(scale * (load[e] + rate) / graph.capacity[e], _MOST))


class _Store(NamedTuple):
    """Trees that are replaced one by one. Each occupies a stretch of `edges`, newer ones behind older ones."""

    start: Offsets
    size: Ints
    edges: Ints
    end: Offsets
    """Array of one element: the offset of the next tree in `edges`."""


@compiled
def _store(topics: int, room: int) -> _Store:
    return _Store(
        np.zeros(topics, np.int64), np.zeros(topics, np.int32), np.empty(room, np.int32), np.zeros(1, np.int64)
    )


@compiled
def _put(store: _Store, topic: int, tree: Ints) -> _Store:
    """Replace a topic's tree. Return the store, or a larger copy of it without outdated trees."""
    start, size, edges, end = store
    if len(tree) <= size[topic]:
        edges[start[topic] : start[topic] + len(tree)] = tree
        size[topic] = len(tree)
        return store
    if end[0] + len(tree) > len(edges):
        total = len(tree)
        for t in range(len(size)):
            total += int(size[t])
        larger = _store(len(size), 2 * total)
        for t in range(len(size)):
            at = larger.end[0]
            larger.start[t], larger.size[t] = at, size[t]
            larger.edges[at : at + size[t]] = edges[start[t] : start[t] + size[t]]
            larger.end[0] += size[t]
        start, size, edges, end = larger
        store = larger
    start[topic], size[topic] = end[0], len(tree)
    edges[end[0] : end[0] + len(tree)] = tree
    end[0] += len(tree)
    return store


@compiled
def _pass(graph: Graph, used: Ints, members: Ints, tree: Ints, step: int, seen: Flags) -> None:
    """Add `step` to the count of each node of a tree. `seen` is all False before and after."""
    for v in members:
        seen[v] = True
        used[v] += step
    for e in tree:
        for side in range(2):
            v = graph.ends[e, side]
            if not seen[v]:
                seen[v] = True
                used[v] += step
    for v in members:
        seen[v] = False
    for e in tree:
        seen[graph.ends[e, 0]] = seen[graph.ends[e, 1]] = False


@compiled
def _busiest(graph: Graph, load: Floats) -> float:
    most = 0.0
    for e in range(len(load)):
        most = max(most, load[e] / graph.capacity[e])
    return most


@compiled
def _joined(store: _Store) -> tuple[Offsets, Ints]:
    """Return the edges of all trees in compressed rows (offsets, edges)."""
    start, size, edges, _ = store
    at, found = np.zeros(len(size) + 1, np.int64), np.empty(np.sum(size), np.int32)
    for t in range(len(size)):
        at[t + 1] = at[t] + size[t]
        found[at[t] : at[t + 1]] = edges[start[t] : start[t] + size[t]]
    return at, found


@compiled
def _balanced(
    graph: Graph,
    demands: Demands,
    order: NDArray[np.int64],
    room: Offsets,
    forbidden: Flags,
    passes: int,
    rates: Prices,
) -> tuple[Offsets, Ints]:
    n, m, topics = len(graph.at) - 1, len(graph.capacity), len(demands.rate)
    budgeted = len(room) > 0
    work, closed, seen = scratch(n), np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    ones = np.arange(n + 1).astype(np.int64)
    used = np.zeros(n, np.int32)
    load, length = np.zeros(m, np.float64), np.empty(m, np.float64)
    store = _store(topics, 4 * len(demands.members) + 16)
    best_at, best, least, fewest = np.zeros(topics + 1, np.int64), np.empty(0, np.int32), np.inf, np.int64(0)
    for done in range(passes + 1):
        target = rates.tight * _busiest(graph, load)
        steepness = rates.first + (rates.last - rates.first) * done / max(passes, 1)
        for t in order:
            members, rate = demands.members[demands.at[t] : demands.at[t + 1]], demands.rate[t]
            if len(members) == 0:
                continue
            if done == 0:
                target = max(target, _busiest(graph, load))
            tree = store.edges[store.start[t] : store.start[t] + store.size[t]]
            for e in tree:
                load[e] -= rate
            if len(forbidden):
                closed[:] = forbidden[t]
            if budgeted:
                if done > 0 and (len(tree) or len(members) == 1):  # it does not compete with its own tree
                    _pass(graph, used, members, tree, -1, seen)
                for v in range(n):
                    closed[v] = used[v] >= room[v] or (len(forbidden) > 0 and forbidden[t, v])
            full = bool(np.any(closed[members]))
            lengths(graph, load, rate, target if target > 0.0 else rate, steepness, length)
            count = UNREACHABLE
            if not full:
                count = grow(graph, length, closed, ones[: len(members) + 1], members, work)
            if count >= 0:
                before, after = 0.0, 0.0
                for e in tree:
                    before += length[e]
                for e in work.out[:count]:
                    after += length[e]
                if len(tree) == 0 or after <= before:
                    store = _put(store, t, work.out[:count])
            tree = store.edges[store.start[t] : store.start[t] + store.size[t]]
            for e in tree:
                load[e] += rate
            if budgeted and (len(tree) or (len(members) == 1 and not full)):
                _pass(graph, used, members, tree, 1, seen)
        # Passes may make things worse; rounding must not decide between equally busy ones.
        most, edges = _busiest(graph, load), np.sum(store.size)
        if most < least * (1 - 1e-12) or (most <= least * (1 + 1e-12) and edges < fewest):
            least, fewest = most, np.int64(edges)
            best_at, best = _joined(store)
    return best_at, best
