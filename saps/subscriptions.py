"""Who subscribes to what at this broker: the index of local subscriptions (MQTT 5.0, sections 3.8.3 and 4.7)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from saps.topics import is_wildcard

if TYPE_CHECKING:
    from saps.agents.user import SubscriberAgent

Subscribers = dict["SubscriberAgent", "Subscription"]
"""The subscriptions with one filter, by agent."""


class Subscription(msgspec.Struct, frozen=True):
    """One subscription of one agent, with MQTT 5.0's subscription options (3.8.3.1)."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    """0: send retained messages, 1: only if the subscription is new, 2: never."""
    identifier: int | None = None


class Target:
    """One subscriber of a topic: all its matching subscriptions, merged into the one copy it receives (3.3.4)."""

    __slots__ = ("agent", "identifiers", "own", "qos", "retain_as_published")

    def __init__(self, agent: SubscriberAgent, subscriptions: Iterable[Subscription]) -> None:
        matching = tuple(subscriptions)
        self.agent = agent
        self.qos = max((s.qos for s in matching), default=0)
        self.identifiers = tuple(s.identifier for s in matching if s.identifier is not None)
        self.retain_as_published = any(s.retain_as_published for s in matching)
        self.own: Target | None = self
        """The target for the agent's own publications: without its no-local subscriptions; None if none is left."""
        foreign = tuple(s for s in matching if not s.no_local)
        if len(foreign) < len(matching):
            self.own = Target(agent, foreign) if foreign else None


class SubscriptionIndex:
    """Filters to subscribers: a dict for all filters, and a trie over the levels of those with wildcards."""

    def __init__(self) -> None:
        self._filters: dict[str, Subscribers] = {}
        self._root = _Node()

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, topic_filter: str) -> bool:
        return topic_filter in self._filters

    @property
    def filters(self) -> Iterable[str]:
        """The filters with at least one subscriber."""
        return self._filters.keys()

    def add(self, agent: SubscriberAgent, subscription: Subscription) -> None:
        """Add the subscription; it replaces the agent's earlier one with the same filter."""
        topic_filter = subscription.filter
        subscribers = self._filters.get(topic_filter)
        if subscribers is None:
            subscribers = self._filters[topic_filter] = {}
            if is_wildcard(topic_filter):
                self._root.insert(topic_filter.split("/"), subscribers)
        subscribers[agent] = subscription

    def remove(self, agent: SubscriberAgent, topic_filter: str) -> bool:
        """Remove the agent's subscription, if there is one. True if that leaves the filter without subscribers."""
        subscribers = self._filters.get(topic_filter)
        if subscribers is None or subscribers.pop(agent, None) is None or subscribers:
            return False
        del self._filters[topic_filter]
        if is_wildcard(topic_filter):
            self._root.prune(topic_filter.split("/"))
        return True

    def targets(self, topic: str) -> tuple[Target, ...]:
        """The subscribers of a topic, each once."""
        found = self._root.match(topic)
        exact = self._filters.get(topic)
        if exact is not None:
            found.insert(0, exact)
        if len(found) == 1:
            return tuple(Target(agent, (subscription,)) for agent, subscription in found[0].items())
        merged: dict[SubscriberAgent, list[Subscription]] = {}
        for subscribers in found:
            for agent, subscription in subscribers.items():
                merged.setdefault(agent, []).append(subscription)
        return tuple(Target(agent, subscriptions) for agent, subscriptions in merged.items())


class _Node:
    """A level of the trie of wildcard filters; ``+`` and ``#`` are children like any other."""

    __slots__ = ("children", "subscribers")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.subscribers: Subscribers | None = None

    def insert(self, levels: list[str], subscribers: Subscribers) -> None:
        node = self
        for level in levels:
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        node.subscribers = subscribers

    def prune(self, levels: list[str]) -> None:
        """Take the filter out, and every node that only it needed."""
        path = [self]
        for level in levels:
            path.append(path[-1].children[level])
        path[-1].subscribers = None
        for parent, level, node in zip(path[-2::-1], reversed(levels), reversed(path), strict=False):
            if node.children or node.subscribers is not None:
                break
            del parent.children[level]

    def match(self, topic: str) -> list[Subscribers]:
        found: list[Subscribers] = []
        if not self.children:
            return found
        nodes = [self]
        hidden = topic.startswith("$")  # a leading wildcard does not match it (4.7.2)
        for level in topic.split("/"):
            following: list[_Node] = []
            for node in nodes:
                children = node.children
                if not hidden:
                    if (rest := children.get("#")) is not None and rest.subscribers is not None:
                        found.append(rest.subscribers)
                    if (any_level := children.get("+")) is not None:
                        following.append(any_level)
                if (child := children.get(level)) is not None:
                    following.append(child)
            hidden = False
            nodes = following
        for node in nodes:
            if node.subscribers is not None:
                found.append(node.subscribers)
            if (rest := node.children.get("#")) is not None and rest.subscribers is not None:
                found.append(rest.subscribers)
        return found
