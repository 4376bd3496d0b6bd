"""A policy: for subtrees of topics, clusters that must not carry them and brokers that must not receive them.

SDNPS 2016, 3.3. What holds for a topic is the sum of what is said of it and of every topic above it; nothing below can
take a prohibition back. A cluster that must not carry a topic must not receive it either, nor may anything inside it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

CACHED = 10_000
"""Topics whose verdict is remembered."""


class Placed(Protocol):
    """A broker, as far as policies look at it."""

    @property
    def name(self) -> str: ...

    @property
    def cluster(self) -> str: ...


P = TypeVar("P", bound=Placed)


class Verdict(NamedTuple):
    """What is forbidden to a topic."""

    clusters: frozenset[str] = frozenset()
    """Cluster paths that must not carry it; what is inside them must not either."""
    brokers: frozenset[str] = frozenset()
    """Names of brokers that must not receive it."""

    def carries(self, cluster: str) -> bool:
        """May the topic be in this cluster at all?"""
        return not any(cluster == barred or cluster.startswith(barred + "/") for barred in self.clusters)

    def receives(self, broker: Placed) -> bool:
        """May this broker receive it?"""
        return broker.name not in self.brokers and self.carries(broker.cluster)

    def receivers(self, publisher: Placed, brokers: Iterable[P]) -> list[P]:
        """Those that may receive what the publisher's broker sends: none, if the topic must not be in its cluster."""
        if not self.carries(publisher.cluster):
            return []
        return [broker for broker in brokers if self.receives(broker)]


FREE = Verdict()
"""Nothing is forbidden."""


class StaleError(ValueError):
    """A policy that cannot follow another one: its version is not higher, though it says something else."""


@dataclass(frozen=True)
class Policy:
    """All prohibitions. Equal policies forbid the same."""

    version: int = 0
    """Goes up with each change."""
    topics: Mapping[str, Verdict] = field(default_factory=dict)
    """What is said of each topic that something is said of."""
    switches: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """The switches of clusters, by their dpid, for the controller. A cluster without an entry: nobody knows them."""
    _cache: dict[str, Verdict] = field(default_factory=dict, init=False, repr=False, compare=False)

    def verdict(self, topic: str) -> Verdict:
        """What is forbidden to a topic."""
        known = self._cache.get(topic)
        if known is None:
            if len(self._cache) >= CACHED:
                self._cache.clear()
            known = self._cache[topic] = self._sum(topic)
        return known

    def free(self, topic: str) -> bool:
        """Is nothing forbidden to the topic?"""
        return self.verdict(topic) == FREE

    def after(self, before: Policy) -> Policy:
        """This policy, to take the place of another. Raises `StaleError` unless it is equal or its version higher."""
        if self != before and self.version <= before.version:
            raise StaleError(
                f"its content has changed, but version {self.version} is not above {before.version}: raise the version"
            )
        return self

    def barred(self, verdict: Verdict) -> frozenset[int]:
        """The switches that must not carry what a verdict is of. Raises `UnknownSwitchesError`."""
        found: set[int] = set()
        for cluster in verdict.clusters:
            inside = [switches for name, switches in self.switches.items() if _inside(name, cluster)]
            if not inside:
                raise UnknownSwitchesError(cluster)
            found.update(*inside)
        return frozenset(found)

    def _sum(self, topic: str) -> Verdict:
        said = [FREE]
        at = topic
        while True:
            if at in self.topics:
                said.append(self.topics[at])
            at, slash, _ = at.rpartition("/")
            if not slash:
                return _united(said)


class UnknownSwitchesError(ValueError):
    """A policy forbids a cluster to carry something, and does not say which switches it has."""

    def __init__(self, cluster: str) -> None:
        super().__init__(f"no policy file names the switches of cluster {cluster}")


def merged(policies: Collection[Policy]) -> Policy:
    """All prohibitions of several policies together; its version is the sum of theirs, so that it goes up with any."""
    topics: dict[str, list[Verdict]] = {}
    switches: dict[str, frozenset[int]] = {}
    for policy in policies:
        for topic, verdict in policy.topics.items():
            topics.setdefault(topic, []).append(verdict)
        for cluster, dpids in policy.switches.items():
            switches[cluster] = switches.get(cluster, frozenset()) | dpids
    version = sum(policy.version for policy in policies)
    return Policy(version, {topic: _united(said) for topic, said in topics.items()}, switches)


def _inside(cluster: str, other: str) -> bool:
    return cluster == other or cluster.startswith(other + "/")


def _united(said: Iterable[Verdict]) -> Verdict:
    clusters: set[str] = set()
    brokers: set[str] = set()
    for verdict in said:
        clusters |= verdict.clusters
        brokers |= verdict.brokers
    return Verdict(frozenset(clusters), frozenset(brokers))
