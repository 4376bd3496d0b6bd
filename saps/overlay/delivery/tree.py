"""The multicast tree: how the members of a topic are divided among the brokers that pass a message on.

The members stand in the order of their keys. A broker that is to reach some of them sends one message each to a few
and leaves to each of these a part of the rest. Every member gets one message and nobody else does (relay-free; Banno et
al. 2015); depth and branches of one broker are O(log k). How the members are cut depends on the key order:

- `KeyOrder.ALM`, `KeyOrder.ALM_LA`: at the Skip Graph neighbours (at level i the first member that shares i bits of the
  membership vector), wherever they are. A part may begin inside a foreign cluster: that is entered more than once.
- `KeyOrder.CLUSTER`, cluster-aware: never inside a foreign cluster, so each is entered once, at an entry broker: the
  least possible number of inter-cluster copies. From cluster to cluster the message goes along fingers of base
  `FINGER_BASE`, inside a cluster along Skip Graph neighbours. Of a cluster path (``tokyo/ward1``) each level is treated
  so: each foreign city is entered once, each foreign ward of the own city once.

The links are the same whoever publishes: fingers and neighbours depend on the members alone. At which broker another
one enters a cluster is drawn by rendezvous hashing of the two (Thaler & Ravishankar 1998): so the work of a cluster is
spread over its brokers, and one that comes or goes moves only its own share of the links.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from saps.overlay.ring.keys import MEMBERSHIP_BITS, BrokerRef, KeyOrder, broker_key, common_prefix, membership, place

FINGER_BASE = 5
"""A broker enters the clusters 1, 2, 3, 4, 5, 10, 15, 20, 25, 50 ... places from its own: the distances with one digit
that is not 0. So any of c clusters is reached by as many inter-cluster messages as a distance below c can have such
digits: 2 up to 31 clusters, 3 up to 156, 4 up to 781. A larger base means a smaller depth and more branches."""
_MASK = (1 << MEMBERSHIP_BITS) - 1
_MIX = 0x9E3779B97F4A7C15
"""2 ** 64 over the golden ratio: multiplicative hashing (Knuth, section 6.4)."""


class Branch(NamedTuple):
    """One message to send, and the members its receiver passes it on to, sorted by place."""

    child: BrokerRef
    slice: tuple[BrokerRef, ...]


def divide(holder: BrokerRef, members: Sequence[BrokerRef], order: KeyOrder) -> list[Branch]:
    """The branches at a broker that is to reach `members`, sorted by place, without itself.

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
    """Cut the members on one side, nearest first: the own cluster at neighbours, the foreign ones at fingers,
    level by level of the cluster path. A branch begins at the entry broker of its first cluster."""
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
    """Members in a row that are one foreign place to the holder."""

    start: int
    shared: int
    """How many levels of their cluster path are the holder's."""
    path: tuple[str, ...]
    """Those, and the first level that is not."""


def _sites(holder: BrokerRef, members: Sequence[BrokerRef]) -> Iterator[_Site]:
    """The foreign sites of the members, in their order; members of the holder's own cluster are in none."""
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
    """The distances up to `count` that are a multiple, below the base, of a power of `FINGER_BASE`; ascending."""
    step = 1
    while step <= count:
        yield from range(step, min(FINGER_BASE * step, count + 1), step)
        step *= FINGER_BASE


def _entry(holder: BrokerRef, members: Sequence[BrokerRef], start: int, end: int) -> int:
    """At which of ``members[start:end]`` the holder enters their cluster."""
    vector = vector_of(holder.name)
    return min(range(start, end), key=lambda i: (vector ^ vector_of(members[i].name)) * _MIX & _MASK)


@lru_cache(maxsize=1 << 12)
def _levels(cluster: str) -> tuple[str, ...]:
    return tuple(cluster.split("/"))


@lru_cache(maxsize=1 << 16)
def vector_of(name: str) -> int:
    """A broker's membership vector."""
    return membership(broker_key(name))


def by_place(brokers: Iterable[BrokerRef], order: KeyOrder) -> list[BrokerRef]:
    """Brokers in the order of their keys within one topic."""
    return sorted(brokers, key=lambda broker: (place(broker, order), broker.name))
