"""The multicast tree: how the members of a topic are divided among the brokers that pass a message on.

The members stand in the order of their keys. A broker that is to reach a run of them sends to its Skip Graph
neighbours in the run (at level i the first one that shares i bits of the membership vector) and leaves to each the
members up to the next. Every member gets one message and nobody else does (relay-free; Banno et al. 2015); depth and
branches of one broker are O(log k).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from saps.overlay.keys import BrokerRef, KeyOrder, broker_key, common_prefix, membership, place


class Branch(NamedTuple):
    """One message to send, and the members its receiver passes it on to."""

    child: BrokerRef
    slice: tuple[BrokerRef, ...]


def branches(root: BrokerRef, members: Sequence[BrokerRef], order: KeyOrder) -> list[Branch]:
    """The branches at the publisher's broker, which stands somewhere among the members (sorted by place)."""
    if not members:
        return []
    at = bisect_left([(place(m, order), m.name) for m in members], (place(root, order), root.name))
    return [*divide(root, tuple(members[at:])), *divide(root, tuple(reversed(members[:at])))]


def divide(holder: BrokerRef, run: tuple[BrokerRef, ...]) -> list[Branch]:
    """The branches at a broker that stands beside a run of members (nearest first)."""
    starts: list[int] = []
    needed = 0
    vector = vector_of(holder.name)
    for i, member in enumerate(run):
        shared = common_prefix(vector, vector_of(member.name))
        if shared >= needed:
            starts.append(i)
            needed = shared + 1
    ends = [*starts[1:], len(run)]
    return [Branch(run[i], run[i + 1 : end]) for i, end in zip(starts, ends, strict=False)]


@lru_cache(maxsize=1 << 16)
def vector_of(name: str) -> int:
    """A broker's membership vector."""
    return membership(broker_key(name))
