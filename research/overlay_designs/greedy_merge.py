"""GM, Greedy Merge (Chockler, Melamed, Tock, Vitenberg 2007): few edges, regardless of the diameter.

In each topic every node begins as a component of its own. The edge that merges most components over all topics is
added, until no edge merges any.

It is fast for two reasons. An edge's merges never increase, so candidates are recounted only at their turn. Only the
few edges that merge two or more components are listed. Once none is left, an edge merges two components of a single
topic. The topics are then independent, and random pairs give a random edge between two components of a topic.
"""

from __future__ import annotations

import numpy as np

from research.overlay_designs.interest import Interest, Ints
from research.overlay_designs.overlay import Overlay
from saps.overlay.design.compiled import compiled


def greedy_merge(interest: Interest, rng: np.random.Generator, *, random_ties: bool = False) -> Overlay:
    """Return the overlay by GM. Of equal edges the one with the lowest numbered nodes is added, or a random one.

    The lowest one fits the papers' maximum degrees (decision 030); random ties give half of them.
    """
    by_number = not random_ties
    pairs, merges = _pairs_that_merge_two(interest)
    order = np.lexsort(pairs.T[::-1]) if by_number else rng.permutation(len(pairs))
    component = np.arange(interest.subscriptions, dtype=np.int32)
    several = _merge_several(interest, pairs[order], merges[order], component)
    single = _merge_single(interest, component, rng, by_number)
    return Overlay.of(interest.nodes, np.concatenate([several, single]))


@compiled
def _pairs_that_merge_two(interest: Interest) -> tuple[Ints, Ints]:
    """Return all pairs of nodes with two or more common topics, and the numbers of these topics."""
    topics_at, topics_of, _, nodes_at, nodes_of = interest
    n = len(topics_at) - 1
    pairs, merges, found = np.empty((1024, 2), np.int32), np.empty(1024, np.int32), 0
    common, touched = np.zeros(n, np.int32), np.empty(n, np.int32)
    after = nodes_at[:-1].copy()  # index in V_t of the first node greater than u
    for u in range(n):
        count = 0
        for i in range(topics_at[u], topics_at[u + 1]):
            t = topics_of[i]
            after[t] += 1
            for k in range(after[t], nodes_at[t + 1]):
                v = nodes_of[k]
                if common[v] == 1:
                    touched[count] = v
                    count += 1
                common[v] += 1
        if found + count > len(merges):
            size = 2 * (found + count)
            more, more_merges = np.empty((size, 2), np.int32), np.empty(size, np.int32)
            more[:found], more_merges[:found] = pairs[:found], merges[:found]
            pairs, merges = more, more_merges
        for j in range(count):
            v = touched[j]
            pairs[found, 0], pairs[found, 1], merges[found] = u, v, common[v]
            found += 1
        for i in range(topics_at[u], topics_at[u + 1]):
            t = topics_of[i]
            for k in range(after[t], nodes_at[t + 1]):
                common[nodes_of[k]] = 0
    return pairs[:found], merges[:found]


@compiled
def _merge_several(interest: Interest, pairs: Ints, merges: Ints, component: Ints) -> Ints:
    """Add edges that merge two or more components: most merges first, equal ones in the given order."""
    chosen, count = np.empty_like(pairs), 0
    for target in range(merges.max() if len(merges) else 0, 1, -1):
        for p in range(len(pairs)):
            if merges[p] != target:
                continue
            u, v = pairs[p, 0], pairs[p, 1]
            merges[p] = _components_between(interest, component, u, v, False)
            if merges[p] == target:
                _components_between(interest, component, u, v, True)
                chosen[count, 0], chosen[count, 1], merges[p] = u, v, 0
                count += 1
    return chosen[:count]


@compiled
def _components_between(interest: Interest, component: Ints, u: int, v: int, merge: bool) -> int:
    """Return the number of topics in which u and v are in different components; with `merge`, join these components."""
    topics_at, topics_of, subscription_of, _, _ = interest
    i, j, different = topics_at[u], topics_at[v], 0
    while i < topics_at[u + 1] and j < topics_at[v + 1]:
        if topics_of[i] < topics_of[j]:
            i += 1
        elif topics_of[i] > topics_of[j]:
            j += 1
        else:
            a, b = _root(component, subscription_of[i]), _root(component, subscription_of[j])
            if a != b:
                different += 1
                if merge:
                    component[a] = b
            i += 1
            j += 1
    return different


@compiled
def _merge_single(interest: Interest, component: Ints, rng: np.random.Generator, by_number: bool) -> Ints:
    """Connect each topic's components by random edges, or with `by_number` by edges to the topic's first node."""
    _, _, _, nodes_at, nodes_of = interest
    chosen, count = np.empty((len(nodes_of), 2), np.int32), 0
    for t in range(len(nodes_at) - 1):
        start, end = nodes_at[t], nodes_at[t + 1]
        components = 0
        for k in range(start, end):
            if component[k] == k:
                components += 1
        j = start
        while components > 1:
            if by_number:
                i, j = start, j + 1
            else:
                i, j = rng.integers(start, end), rng.integers(start, end)
            a, b = _root(component, i), _root(component, j)
            if a != b:
                component[a] = b
                components -= 1
                chosen[count, 0], chosen[count, 1] = nodes_of[i], nodes_of[j]
                count += 1
    return chosen[:count]


@compiled
def _root(component: Ints, k: int) -> int:
    """Return the representative of a subscription's component, and halve the path to it."""
    while component[k] != k:
        component[k] = component[component[k]]
        k = component[k]
    return k
