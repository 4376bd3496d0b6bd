"""The greedy loop that CD-ODA, CD-ODA-I, CD-ODA-II and TD-CD-ODA share: whole nodes become the centres of stars.

Until no topic remains: take the best node by the algorithm's score, link it to every node with which it shares a
remaining topic, and remove all its topics. Each topic so gets a star, and diameter 2. Read literally the printed loops
do not always end, so two things are added (decision 030): a node without a remaining topic is not a candidate, and a
topic that nobody is subscribed to does not count as remaining.

An edge is never made twice: once a node has been a centre, none of its topics remains.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from research.overlay_designs.interest import Interest, Ints
from research.overlay_designs.overlay import Overlay
from saps.overlay.design.compiled import compiled

NEIGHBOURS = 0
"""Score: most neighbours, n_u of Eq. (1)."""
WEIGHT = 1
"""Score: greatest neighbour weight, W_z of Eq. (2)."""
DENSITY = 2
"""Score: greatest connection density, weight by neighbours, d_u of Eq. (3)."""
DISTRIBUTION = 3
"""Score: least topic distribution, q_v of Algorithm 1, the subscription size being one constant for all."""
DISTRIBUTION_OF_REMAINING = 4
"""As DISTRIBUTION, but the subscription size is the number of the node's remaining topics."""
DISTRIBUTION_OF_ALL = 5
"""As DISTRIBUTION, but over all topics of the node, also those removed."""


def greedy_stars(interest: Interest, rng: np.random.Generator, score: int, *, all_topics: bool = False) -> Overlay:
    """The overlay by the score; ties are broken by `rng`.

    With `all_topics` a centre is also linked to nodes with which it shares removed topics only.
    """
    rank = rng.permutation(interest.nodes).astype(np.int32)
    return Overlay.of(interest.nodes, _stars(interest, rank, score, all_topics))


@compiled
def _stars(interest: Interest, rank: Ints, score: int, all_topics: bool) -> Ints:
    topics_at, topics_of, _, nodes_at, nodes_of = interest
    n = len(topics_at) - 1
    remains, everything = np.ones(len(nodes_at) - 1, np.bool_), np.ones(len(nodes_at) - 1, np.bool_)
    found, seen = np.empty(n, np.int32), np.zeros(n, np.bool_)  # scratch of _sharing
    keys = np.empty(n)
    heap = [(0.0, np.int32(0), np.int32(0))]
    heap.pop()
    for u in range(n):
        keys[u] = _key(interest, remains, score, u, found, seen)
        heap.append((keys[u], rank[u], np.int32(u)))
    heapq.heapify(heap)
    edges, count = np.empty((len(nodes_of) + n, 2), np.int32), 0
    while heap:
        key, _, best = heapq.heappop(heap)
        v = int(best)
        if key != keys[v] or key == np.inf:
            continue  # out of date, or no topic of v remains
        if count + n > len(edges):
            edges = np.concatenate((edges, np.empty_like(edges)))
        linked = everything if all_topics else remains
        for f in range(_sharing(interest, linked, v, found, seen)):
            edges[count, 0], edges[count, 1] = v, found[f]
            count += 1
        affected = found[: _sharing(interest, remains, v, found, seen)].copy()
        for i in range(topics_at[v], topics_at[v + 1]):
            remains[topics_of[i]] = False
        keys[v] = np.inf
        for u in affected:
            keys[u] = _key(interest, remains, score, u, found, seen)
            heapq.heappush(heap, (keys[u], rank[u], u))
    return edges[:count]


@compiled
def _key(
    interest: Interest,
    remains: NDArray[np.bool_],
    score: int,
    v: int,
    found: Ints,
    seen: NDArray[np.bool_],
) -> float:
    """The score of v with its sign such that the least is best; infinite if no topic of v remains."""
    topics_at, topics_of, _, nodes_at, _ = interest
    topics, weight, whole = 0, 0, 0
    for i in range(topics_at[v], topics_at[v + 1]):
        size = nodes_at[topics_of[i] + 1] - nodes_at[topics_of[i]]
        whole += size
        if remains[topics_of[i]]:
            topics += 1
            weight += size
    if topics == 0:
        return np.inf
    if score == DISTRIBUTION:
        return float(weight)
    if score == DISTRIBUTION_OF_ALL:
        return float(whole)
    if score == DISTRIBUTION_OF_REMAINING:
        return weight / topics
    if score == WEIGHT:
        return float(-weight)
    neighbours = _sharing(interest, remains, v, found, seen)
    return float(-neighbours) if score == NEIGHBOURS else -weight / (neighbours + 1)


@compiled
def _sharing(
    interest: Interest,
    remains: NDArray[np.bool_],
    v: int,
    found: Ints,
    seen: NDArray[np.bool_],
) -> int:
    """Puts the nodes that share a remaining topic with v into `found`, and says how many; `seen` is all false."""
    topics_at, topics_of, _, nodes_at, nodes_of = interest
    count = 0
    seen[v] = True
    for i in range(topics_at[v], topics_at[v + 1]):
        if remains[topics_of[i]]:
            for k in range(nodes_at[topics_of[i]], nodes_at[topics_of[i] + 1]):
                if not seen[nodes_of[k]]:
                    seen[nodes_of[k]] = True
                    found[count] = nodes_of[k]
                    count += 1
    seen[v] = False
    for f in range(count):
        seen[found[f]] = False
    return count
