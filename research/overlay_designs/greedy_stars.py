"""The greedy loop that CD-ODA, CD-ODA-I, CD-ODA-II and TD-CD-ODA share: nodes become the centres of their topics'
stars.

Until no topic remains, the loop takes the best node by the algorithm's score, links it to every node with which it
shares a remaining topic, and removes all its topics. So each topic gets a star, and diameter 2. Read literally, the
printed loops do not always end, so two rules are added (decision 030). A node without a remaining topic is not a
candidate, and a topic without subscribers does not count as remaining.

No edge is made twice, because no topic of a former centre remains; with `all_topics`, `Overlay.of` drops repetitions.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from research.overlay_designs.interest import Interest, Ints
from research.overlay_designs.overlay import Overlay
from saps.overlay.design.compiled import compiled

NEIGHBOURS = 0
"""Score: most neighbours, n_u in Eq. (1)."""
WEIGHT = 1
"""Score: greatest neighbour weight, W_z in Eq. (2)."""
DENSITY = 2
"""Score: greatest connection density, the weight divided by the neighbours, d_u in Eq. (3)."""
DISTRIBUTION = 3
"""Score: least topic distribution, q_v in Algorithm 1, with one constant subscription size for all nodes."""
DISTRIBUTION_OF_REMAINING = 4
"""Score: as DISTRIBUTION, but the subscription size is the number of the node's remaining topics."""
DISTRIBUTION_OF_ALL = 5
"""Score: as DISTRIBUTION, but over all topics of the node, including those removed."""


def greedy_stars(interest: Interest, rng: np.random.Generator, score: int, *, all_topics: bool = False) -> Overlay:
    """Return the overlay by the score; `rng` breaks ties.

    With `all_topics` a centre is also linked to nodes with which it shares only removed topics.
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
    """Return the score of v, negated where the greatest is best; infinite if no topic of v remains."""
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
    """Put the nodes that share a remaining topic with v into `found`, and return their number.

    `seen` is scratch, all false before and after."""
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
