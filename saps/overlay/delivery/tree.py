"""Divides the members of a topic into the branches of a multicast tree.

The members are sorted by key. A broker that must reach some of them sends one message to each of a few children and
leaves a part of the rest to each child. Every member gets one message, and no other broker does (relay-free; Banno et
al. 2015). Depth and branches of one broker are O(log k) for k members. The key order decides where the members are cut:

- `KeyOrder.ALM`, `KeyOrder.ALM_LA`: at the Skip Graph neighbours (at level i the first member that shares i bits of the
  membership vector), wherever they are. A part may begin inside a foreign cluster, which is then entered more than
  once.
- `KeyOrder.CLUSTER`, cluster-aware: never inside a foreign cluster. So each is entered once, at an entry broker: the
  least possible number of inter-cluster copies. From cluster to cluster the message goes along fingers of base
  `FINGER_BASE`, inside a cluster along Skip Graph neighbours. The same holds at each level of a cluster path
  (``tokyo/ward1``): each foreign city is entered once, and each foreign ward of the own city once.

The links do not depend on the publisher, as fingers and neighbours depend on the members alone. Rendezvous hashing of
holder and member (Thaler & Ravishankar 1998) chooses the entry broker. So the work of a cluster is spread over its
brokers, and a broker that comes or goes moves only its own share of the links.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from saps.overlay.ring.keys import MEMBERSHIP_BITS, BrokerRef, KeyOrder, broker_key, common_prefix, membership, place

FINGER_BASE = 5
"""Base of the fingers. A broker enters the clusters 1, 2, 3, 4, 5, 10, 15, 20, 25, 50 ... places from its own: the
distances with exactly one nonzero digit. So a message reaches any of c clusters in as many inter-cluster hops as a
distance below c can have nonzero digits: 2 up to 31 clusters, 3 up to 156, 4 up to 781. A larger base means a smaller
depth and more branches."""
_MASK = (1 << MEMBERSHIP_BITS) - 1
_MIX = 0x9E3779B97F4A7C15
"""2 ** 64 over the golden ratio: multiplicative hashing (Knuth, section 6.4)."""


class Branch(NamedTuple):
    """One message to send: its receiver, and the members that the receiver passes it on to, sorted by place."""

    child: BrokerRef
    slice: tuple[BrokerRef, ...]


def divide(holder: BrokerRef, members: Sequence[BrokerRef], order: KeyOrder) -> list[Branch]:
    """Return the branches at `holder` that reach `members`. The members must be sorted by place, without the holder.

    Every member is the child or in the slice of exactly one branch, whatever the order of `members`.
    """
    if not members:
        return []
    at = bisect_left(members, (place(holder, order), holder.name), key=lambda m: (place(m, order), m.name))
    cut = _at_clusters if order is KeyOrder.CLUSTER else _at_neighbours
    right, left = members[at:], members[:at][::-1]
    return [
        *(Branch(side.child, side.slice) for side in cut(holder, right)),
        *(Branch(side.child, side.slice[::-1]) for side in cut(holder, left)),
    ]


def _at_neighbours(holder: BrokerRef, members: Sequence[BrokerRef]) -> Iterator[Branch]:
    """Cut the members on one side, nearest first, at the Skip Graph neighbours in it."""
    starts: list[int] = []
    needed = 0
    vector = vector_of(holder.name)
    for i, member in enumerate(members):
        shared = common_prefix(vector, vector_of(member.name))
        if shared >= needed:
            starts.append(i)
            needed = shared + 1
    for i, end in zip(starts, [*starts[1:], len(members)], strict=False):
        yield Branch(members[i], tuple(members[i + 1 : end]))


def _at_clusters(holder: BrokerRef, members: Sequence[BrokerRef]) -> Iterator[Branch]:
    """Cut the members on one side, nearest first: the own cluster at neighbours, foreign clusters at fingers, level by
    level of the cluster path. The child of a branch is the entry broker of its first cluster."""
    sites = list(_sites(holder, members))
    yield from _at_neighbours(holder, members[: sites[0].start if sites else len(members)])
    first = 0
    while first < len(sites):
        last = first
        while last < len(sites) and sites[last].shared == sites[first].shared:
            last += 1
        bounds = [site.start for site in sites[first:last]]
        bounds.append(sites[last].start if last < len(sites) else len(members))
        starts = [distance - 1 for distance in fingers(last - first)]
        for i, end in zip(starts, [*starts[1:], last - first], strict=True):
            entry = _entry(holder, members, bounds[i], bounds[i + 1])
            yield Branch(members[entry], (*members[bounds[i] : entry], *members[entry + 1 : bounds[end]]))
        first = last


class _Site(NamedTuple):
    """A run of members that form one foreign site from the holder's view: they share `path`."""

    start: int
    shared: int
    """Number of leading levels of their cluster path that equal the holder's."""
    path: tuple[str, ...]
    """The shared levels and the first level that differs."""


def _sites(holder: BrokerRef, members: Sequence[BrokerRef]) -> Iterator[_Site]:
    """Yield the foreign sites of the members, in their order. Members of the holder's own cluster are in no site."""
    mine = _levels(holder.cluster)
    cluster, path = holder.cluster, None
    for i, member in enumerate(members):
        if member.cluster == cluster:
            continue
        cluster = member.cluster
        theirs = _levels(cluster)
        shared = 0
        while shared < min(len(mine), len(theirs)) and mine[shared] == theirs[shared]:
            shared += 1
        if theirs[: shared + 1] != path:
            path = theirs[: shared + 1]
            yield _Site(i, shared, path)


def fingers(count: int) -> Iterator[int]:
    """Yield the distances up to `count`, ascending, that have exactly one nonzero digit in base `FINGER_BASE`."""
    step = 1
    while step <= count:
        yield from range(step, min(FINGER_BASE * step, count + 1), step)
        step *= FINGER_BASE


def _entry(holder: BrokerRef, members: Sequence[BrokerRef], start: int, end: int) -> int:
    """Return the index of the member in ``members[start:end]`` at which the holder enters their cluster."""
    vector = vector_of(holder.name)
    return min(range(start, end), key=lambda i: (vector ^ vector_of(members[i].name)) * _MIX & _MASK)


@lru_cache(maxsize=1 << 12)
def _levels(cluster: str) -> tuple[str, ...]:
    return tuple(cluster.split("/"))


@lru_cache(maxsize=1 << 16)
def vector_of(name: str) -> int:
    """Return a broker's membership vector."""
    return membership(broker_key(name))


def by_place(brokers: Iterable[BrokerRef], order: KeyOrder) -> list[BrokerRef]:
    """Sort brokers by their keys within one topic."""
    return sorted(brokers, key=lambda broker: (place(broker, order), broker.name))
