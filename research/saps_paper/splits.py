"""The Skip Graph's split of a range over arrays: the same trees as `saps.overlay.delivery.tree`, for up to millions
of keys.

The nearest first neighbours of a key in the lists of level 0, 1, 2, ... are those that share more and more bits of its
membership vector. So going away from the publisher, a key is the child of the first key on the present path that it
shares more bits with than that key's last child did.
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
"""Of the vectors here; a level list is down to one key long before."""
GROWTH = (100, 1000, 10_000, 100_000, 1_000_000)
QUICK_GROWTH = GROWTH[:3]
"""Subscribers of a single multicast."""


def random_vectors(count: int, rng: np.random.Generator) -> Ints:
    """Membership vectors of `count` keys."""
    return rng.integers(1 << VECTOR_BITS, size=count)


def parents(vectors: Ints, publisher: int) -> Ints:
    """Who sends to whom when the key at `publisher` multicasts to all: the sender of each key, -1 for the publisher's.
    Keys are known by their place in the order; vectors must differ and be below 2 ** VECTOR_BITS."""
    found = np.full(len(vectors), -1, np.int64)
    right = _away(vectors[publisher:])[1:]
    left = _away(vectors[publisher::-1])[1:]
    found[publisher + 1 :] = publisher + right
    found[:publisher] = publisher - left[::-1]
    return found


def crossings(parent: Ints, cluster: Ints, publisher: int) -> tuple[int, int, int]:
    """Inter-cluster messages of a multicast, the most of them in a row, and the most messages in a row."""
    return _crossings(parent, cluster, publisher)


def growth(sizes: Iterable[int], seed: int) -> list[Growth]:
    """One multicast to each number of subscribers."""
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
    """The senders in a run that begins with the publisher, nearest first."""
    count = len(vectors)
    parent = np.full(count, -1, np.int64)
    below = np.full(count, 1 << VECTOR_BITS, np.int64)  # a child's vector differs from its sender's by less than that
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
