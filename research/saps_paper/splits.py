"""Computes the Skip Graph's split of a range on arrays: the trees of `saps.overlay.delivery.tree` for millions of keys.

A key's neighbours in the lists of level 0, 1, 2, ... share more and more bits of its membership vector. The keys are
visited away from the publisher. Each is the child of the first key on the present path with which it shares more bits
than that key's last child did.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from research.saps_paper.records import CLUSTERS, Growth
from saps.overlay.design.compiled import compiled

Ints = NDArray[np.int64]

VECTOR_BITS = 62
"""Bits of the vectors here. A level's list is down to one key long before the last bit."""
GROWTH = (100, 1000, 10_000, 100_000, 1_000_000)
"""Numbers of subscribers of a single multicast."""
QUICK_GROWTH = GROWTH[:3]


def random_vectors(count: int, rng: np.random.Generator) -> Ints:
    """Return random membership vectors of `count` keys."""
    return rng.integers(1 << VECTOR_BITS, size=count)


def parents(vectors: Ints, publisher: int) -> Ints:
    """Return the sender of each key when the key at `publisher` multicasts to all; -1 for the publisher.

    Keys are numbered by their place in the order. Vectors must differ and be below 2 ** VECTOR_BITS."""
    found = np.full(len(vectors), -1, np.int64)
    right = _away(vectors[publisher:])[1:]
    left = _away(vectors[publisher::-1])[1:]
    found[publisher + 1 :] = publisher + right
    found[:publisher] = publisher - left[::-1]
    return found


def crossings(parent: Ints, cluster: Ints, publisher: int) -> tuple[int, int, int]:
    """Return the inter-cluster messages of a multicast, and the most of them and the most messages on one path.

    `parent` is a result of `parents`; `cluster` has the cluster of each key."""
    return _crossings(parent, cluster, publisher)


def growth(sizes: Iterable[int], seed: int) -> list[Growth]:
    """Return one multicast for each number of subscribers."""
    found = []
    for size in sizes:
        began = time.perf_counter()
        rng = np.random.default_rng([seed, size])
        cluster = np.sort(rng.integers(CLUSTERS, size=size))
        publisher = int(rng.integers(size))
        parent = parents(random_vectors(size, rng), publisher)
        counts = crossings(parent, cluster, publisher)
        found.append(Growth(size, *counts, time.perf_counter() - began))
    return found


@compiled
def _away(vectors: Ints) -> Ints:
    """Return the sender of each key in a run that begins with the publisher, nearest first."""
    count = len(vectors)
    parent = np.full(count, -1, np.int64)
    below = np.full(count, 1 << VECTOR_BITS, np.int64)  # bound on a next child's difference from its sender
    path = np.zeros(count, np.int64)
    depth = 0
    for key in range(1, count):
        at = 0
        while at < depth and vectors[path[at]] ^ vectors[key] >= below[path[at]]:
            at += 1
        sender = path[at]
        differs = vectors[sender] ^ vectors[key]
        highest = 1
        while highest <= differs >> 1:
            highest <<= 1
        below[sender] = highest
        parent[key] = sender
        depth = at + 1
        path[depth] = key
    return parent


@compiled
def _crossings(parent: Ints, cluster: Ints, publisher: int) -> tuple[int, int, int]:
    count = len(parent)
    crossed, depth = np.zeros(count, np.int64), np.zeros(count, np.int64)
    copies = 0
    for i in range(1, count):
        key = publisher + i if publisher + i < count else count - 1 - i  # away from the publisher: senders come first
        sender = parent[key]
        foreign = cluster[sender] != cluster[key]
        copies += foreign
        crossed[key] = crossed[sender] + foreign
        depth[key] = depth[sender] + 1
    return copies, int(crossed.max()), int(depth.max())
