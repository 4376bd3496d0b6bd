"""2D-ODA (Onus, Richa 2016; TD-CD-ODA 2017, Eq. 4): one star for each topic, the densest (centre, topic) first.

The density of a star is a number of shared topics, divided by the number of the topic's nodes (with the centre) that
the centre is not yet linked to. The paper leaves open which nodes the numerator counts (decision 030). Eq. (4) counts
all, but most of the paper's figures fit a count of the topic's nodes, which is the default; `as_printed` counts all.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from research.overlay_designs.interest import Interest, Ints
from research.overlay_designs.overlay import Overlay
from saps.overlay.design.compiled import compiled


def two_d_oda(interest: Interest, rng: np.random.Generator, *, as_printed: bool = False) -> Overlay:
    """Return the overlay by 2D-ODA; `rng` breaks ties."""
    rank = rng.permutation(interest.subscriptions).astype(np.int32)
    return Overlay.of(interest.nodes, _stars(interest, rank, as_printed))


@compiled
def _stars(
    interest: Interest,
    rank: Ints,
    as_printed: bool,
) -> Ints:
    topics_at, topics_of, subscription_of, nodes_at, nodes_of = interest
    topics = len(nodes_at) - 1
    centre = np.full(topics, -1, np.int32)
    topic = np.empty(len(nodes_of), np.int32)
    unlinked = np.empty(len(nodes_of), np.int64)  # the density's denominator, for each (centre, topic)
    shared = np.zeros(len(nodes_of), np.int64)  # its numerator
    overlap = np.zeros(topics, np.int64)
    for t in range(topics):
        topic[nodes_at[t] : nodes_at[t + 1]] = t
        unlinked[nodes_at[t] : nodes_at[t + 1]] = nodes_at[t + 1] - nodes_at[t]
        _count(interest, shared, overlap, t, 1, as_printed)
    heap = [(-shared[k] / unlinked[k], rank[k], np.int32(k)) for k in range(len(nodes_of))]
    heapq.heapify(heap)
    edges, count = np.empty((len(nodes_of), 2), np.int32), 0
    while heap:
        key, _, k = heapq.heappop(heap)
        t, u = topic[k], nodes_of[k]
        if centre[t] >= 0:
            continue
        density = shared[k] / unlinked[k]
        if -key > density:  # shared topics were removed since
            heapq.heappush(heap, (-density, rank[k], k))
            continue
        if -key < density:
            continue  # pushed again when an edge made it denser
        for m in range(nodes_at[t], nodes_at[t + 1]):
            v = nodes_of[m]
            if v == u or _linked(interest, centre, u, v):
                continue
            edges[count, 0], edges[count, 1] = u, v
            count += 1
            i, j = topics_at[u], topics_at[v]
            while i < topics_at[u + 1] and j < topics_at[v + 1]:
                if topics_of[i] == topics_of[j]:
                    a, b = subscription_of[i], subscription_of[j]
                    unlinked[a] -= 1
                    unlinked[b] -= 1
                    if centre[topics_of[i]] < 0 and topics_of[i] != t:
                        heapq.heappush(heap, (-shared[a] / unlinked[a], rank[a], np.int32(a)))
                        heapq.heappush(heap, (-shared[b] / unlinked[b], rank[b], np.int32(b)))
                    i += 1
                    j += 1
                elif topics_of[i] < topics_of[j]:
                    i += 1
                else:
                    j += 1
        centre[t] = u
        _count(interest, shared, overlap, t, -1, as_printed)
    return edges[:count]


@compiled
def _count(
    interest: Interest,
    shared: NDArray[np.int64],
    overlap: NDArray[np.int64],
    t: int,
    sign: int,
    as_printed: bool,
) -> None:
    """Add topic t to the numerators of all (centre, topic), or with `sign` -1 subtract it.

    `overlap` is scratch, all 0 before and after."""
    topics_at, topics_of, subscription_of, nodes_at, nodes_of = interest
    members = nodes_of[nodes_at[t] : nodes_at[t + 1]]
    for v in members:
        for i in range(topics_at[v], topics_at[v + 1]):
            overlap[topics_of[i]] += 1
    for v in members:
        for i in range(topics_at[v], topics_at[v + 1]):
            shared[subscription_of[i]] += sign * (len(members) if as_printed else overlap[topics_of[i]])
    for v in members:
        for i in range(topics_at[v], topics_at[v + 1]):
            overlap[topics_of[i]] = 0


@compiled
def _linked(interest: Interest, centre: Ints, u: int, v: int) -> bool:
    """Return whether u or v is the centre of a star of one of their common topics."""
    topics_at, topics_of, _, _, _ = interest
    i, j = topics_at[u], topics_at[v]
    while i < topics_at[u + 1] and j < topics_at[v + 1]:
        if topics_of[i] < topics_of[j]:
            i += 1
        elif topics_of[i] > topics_of[j]:
            j += 1
        else:
            c = centre[topics_of[i]]
            if c in (u, v):
                return True
            i += 1
            j += 1
    return False
