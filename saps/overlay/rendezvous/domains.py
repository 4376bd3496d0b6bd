"""OpenFlow domains: parts of the mesh with a controller of their own, joined by representatives (SAPS 2016, 5).

A domain is named by a cluster path; a broker is in the one with the longest path that its own begins with. Of a topic's
members in another domain one gets a publication and stands for the others: it passes it on along its domain's tree, or
by ALM. Which one follows from the members and the topic alone, so all publishers take the same, and when it dies the
next is known. What comes by a tree is passed on by nobody, so nothing goes in circles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b

from saps.overlay.delivery.tree import Branch, divide
from saps.overlay.ring.keys import BrokerRef, KeyOrder


class Domains:
    """The domains of a mesh: the same at all its brokers, and at OFGate."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        """`paths` are the cluster paths that are domains, each with all clusters below it; without any the mesh is one
        domain."""
        self._paths = sorted({path.strip("/") for path in paths} - {""}, key=len, reverse=True)
        self._known: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._paths)

    def of(self, broker: BrokerRef) -> str:
        """Return the domain of a broker; empty if it is in none."""
        domain = self._known.get(broker.cluster)
        if domain is None:
            inside = (path for path in self._paths if f"{broker.cluster}/".startswith(f"{path}/"))
            domain = self._known[broker.cluster] = next(inside, "")
        return domain

    def foreign(self, me: BrokerRef, other: BrokerRef) -> bool:
        """Return whether the other broker is in another domain, so that a representative stands for it."""
        domain = self.of(other)
        return bool(domain) and domain != self.of(me)

    def divide(self, me: BrokerRef, topic: str, members: Sequence[BrokerRef], order: KeyOrder) -> list[Branch]:
        """Divide members as `saps.overlay.delivery.tree.divide`, with one branch for each foreign domain, to its
        representative."""
        near: list[BrokerRef] = []
        far: dict[str, list[BrokerRef]] = {}
        for member in members:
            (far.setdefault(self.of(member), []) if self.foreign(me, member) else near).append(member)
        branches = divide(me, near, order)
        for _, there in sorted(far.items()):
            first = representative(topic, there)
            branches.append(Branch(first, tuple(member for member in there if member != first)))
        return branches


def representative(topic: str, members: Sequence[BrokerRef]) -> BrokerRef:
    """Choose the representative of a domain's members by rendezvous hashing (Thaler & Ravishankar 1998). Different
    topics have different representatives, and a member that joins or leaves changes only the topics that it
    represents."""
    return max(members, key=lambda member: (_weight(topic, member.name), member.name))


@lru_cache(1 << 14)
def _weight(topic: str, name: str) -> bytes:
    return blake2b(f"{topic}\0{name}".encode(), digest_size=8).digest()
