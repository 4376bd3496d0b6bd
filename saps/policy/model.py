"""The policy model: which clusters must not carry a subtree of topics, and which brokers must not receive it.

SDNPS 2016, 3.3. The prohibitions for a topic are those of the topic and of every topic above it; a topic cannot lift a
prohibition from above. A cluster that must not carry a topic must not receive it either, and neither may any cluster
inside it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

CACHED = 10_000
"""Most topics whose verdict is cached."""


class Placed(Protocol):
    """The part of a broker that policies look at."""

    @property
    def name(self) -> str: ...

    @property
    def cluster(self) -> str: ...


P = TypeVar("P", bound=Placed)


class Verdict(NamedTuple):
    """The prohibitions for one topic."""

    clusters: frozenset[str] = frozenset()
    """Paths of clusters that must not carry it, nor may clusters inside them."""
    brokers: frozenset[str] = frozenset()
    """Names of brokers that must not receive it."""

    def carries(self, cluster: str) -> bool:
        """Return whether this cluster may carry the topic."""
        return not any(cluster == barred or cluster.startswith(barred + "/") for barred in self.clusters)

    def receives(self, broker: Placed) -> bool:
        """Return whether this broker may receive the topic."""
        return broker.name not in self.brokers and self.carries(broker.cluster)

    def receivers(self, publisher: Placed, brokers: Iterable[P]) -> list[P]:
        """Return the brokers that may receive a publication from the publisher's broker: none if its own cluster must
        not carry the topic."""
        if not self.carries(publisher.cluster):
            return []
        return [broker for broker in brokers if self.receives(broker)]


FREE = Verdict()
"""No prohibitions."""


class StaleError(ValueError):
    """A policy that differs from the one in force without having a higher version."""


@dataclass(frozen=True)
class Policy:
    """All prohibitions for all topics. Equal policies forbid the same."""

    version: int = 0
    """Rises with each change."""
    topics: Mapping[str, Verdict] = field(default_factory=dict)
    """Prohibitions by topic, as stated; `verdict` adds those of the topics above."""
    switches: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """For the controller: the datapath ids of each cluster's switches. Those of a cluster without an entry are
    unknown."""
    _cache: dict[str, Verdict] = field(default_factory=dict, init=False, repr=False, compare=False)

    def verdict(self, topic: str) -> Verdict:
        """Return the prohibitions for a topic, including those of the topics above it."""
        known = self._cache.get(topic)
        if known is None:
            if len(self._cache) >= CACHED:
                self._cache.clear()
            known = self._cache[topic] = self._sum(topic)
        return known

    def free(self, topic: str) -> bool:
        """Return whether the topic has no prohibitions."""
        return self.verdict(topic) == FREE

    def after(self, before: Policy) -> Policy:
        """Return this policy as the successor of `before`. Raises `StaleError` unless both are equal or the version is
        higher."""
        if self != before and self.version <= before.version:
            raise StaleError(
                f"its content has changed, but version {self.version} is not above {before.version}: raise the version"
            )
        return self

    def barred(self, verdict: Verdict) -> frozenset[int]:
        """Return the switches that must not carry a topic with this verdict. Raises `UnknownSwitchesError`."""
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
    """A policy bars a cluster whose switches no policy file lists."""

    def __init__(self, cluster: str) -> None:
        super().__init__(f"no policy file names the switches of cluster {cluster}")


def merged(policies: Collection[Policy]) -> Policy:
    """Return the union of several policies. Its version is the sum of theirs, so that it rises with any of them."""
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
