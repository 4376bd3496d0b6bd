"""The index of a broker's local subscriptions (MQTT 5.0, 3.8.3 and 4.7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any

from saps.messages import Subscription
from saps.routing.batch import Batch
from saps.topics import is_wildcard, shared

MERGED = 4096
"""Most cached unions of the subscribers of several filters; beyond that the cache starts anew."""


class Takes(IntEnum):
    """Whether a member of a group can take one more message."""

    NEVER = 0
    """It must not receive the message."""
    AWAY = 1
    """The message would wait until the member is back."""
    LATER = 2
    """The message would have to wait in a queue."""
    NOW = 3


class Subscriber:
    """A subscriber: the agent of a client (`saps.agents.user`)."""

    __slots__ = ("client_id",)

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id

    @property
    def present(self) -> bool:
        """Whether the client is connected."""
        raise NotImplementedError

    def takes(self, topic: str) -> Takes:
        """Return whether it can take a message to a topic on behalf of a group."""
        raise NotImplementedError

    def may_read(self, topic: str) -> bool:
        """Return whether it may receive messages to a topic."""
        raise NotImplementedError

    def deliver(self, batch: Batch, target: Target) -> None:
        """Receive a batch, with the QoS and subscription identifiers of `target`."""
        raise NotImplementedError


class Target:
    """One subscriber of a topic: all its matching subscriptions, merged into the one copy that it receives (3.3.4)."""

    __slots__ = ("_foreign", "_no_local", "agent", "identifiers", "qos", "retain_as_published")

    def __init__(self, agent: Subscriber, subscriptions: Sequence[Subscription]) -> None:
        first = subscriptions[0]
        self.agent = agent
        self.qos = first.qos
        self.identifiers: tuple[int, ...] = () if first.identifier is None else (first.identifier,)
        self.retain_as_published = first.retain_as_published
        self._no_local = first.no_local
        """Whether any of its subscriptions is no-local."""
        self._foreign: Target | None = None
        """The target of the other subscriptions, if there are any."""
        if len(subscriptions) > 1:  # seldom, so that each target is made at the price of one subscription
            self._merge(subscriptions)

    def _merge(self, matching: Sequence[Subscription]) -> None:
        self.qos = max([s.qos for s in matching])
        self.identifiers = tuple([s.identifier for s in matching if s.identifier is not None])
        self.retain_as_published = any(s.retain_as_published for s in matching)
        foreign = [s for s in matching if not s.no_local]
        self._no_local = len(foreign) < len(matching)
        if self._no_local and foreign:
            self._foreign = Target(self.agent, foreign)

    @property
    def own(self) -> Target | None:
        """The target for the agent's own publications, without no-local subscriptions; None if none is left."""
        return self._foreign if self._no_local else self


class Subscribers(dict["Subscriber", Subscription]):
    """The subscriptions with one filter, by agent."""

    __slots__ = ("_listed", "_targets", "since")

    def __init__(self, since: int) -> None:
        super().__init__()
        self.since = since
        """The moment of the first subscription since there was none (`saps.routing.retained_messages`)."""
        self._targets: tuple[Target, ...] | None = None
        self._listed: list[tuple[Subscriber, Subscription]] | None = None

    @property
    def listed(self) -> list[tuple[Subscriber, Subscription]]:
        """The agents with their subscriptions, in the order in which they subscribed."""
        if self._listed is None:
            self._listed = list(self.items())
        return self._listed

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets of a topic that no other filter matches; all such topics share one tuple."""
        if self._targets is None:
            self._targets = tuple([Target(agent, (subscription,)) for agent, subscription in self.items()])
        return self._targets

    def changed(self) -> None:
        """Forget what was made of the subscriptions. Must be called after each change."""
        self._targets = self._listed = None


class Group:
    """The members of one shared subscription at this broker: each message goes to one of them (4.8.2)."""

    __slots__ = ("_turn", "members", "name", "topic_filter")

    def __init__(self, name: str, topic_filter: str) -> None:
        self.name = name
        """The filter with its group, ``$share/group/filter``."""
        self.topic_filter = topic_filter
        self.members = Subscribers(0)
        self._turn = 0

    def pick(self, topic: str, away: bool = False) -> Target | None:
        """Choose the next member: among those that can take a message now, else among connected ones, else, if `away`,
        among the others. Returns None if there is none."""
        members, best, turn = self.members.listed, Takes.NEVER if away else Takes.AWAY, self._turn
        chosen: int | None = None
        for step in range(len(members)):
            number = (turn + step) % len(members)
            takes = members[number][0].takes(topic)
            if takes > best:
                best, chosen = takes, number
                if takes is Takes.NOW:
                    break
        if chosen is None:
            return None
        agent, subscription = members[chosen]
        self._turn = chosen + 1
        return Target(agent, (subscription,))


class SubscriptionIndex:
    """Maps filters to subscribers: a dict of all filters, and a trie over the levels of those with wildcards."""

    def __init__(self) -> None:
        self._filters: dict[str, Subscribers] = {}
        self._root = FilterNode()
        self._groups: dict[str, Group] = {}
        """Groups by ``$share/group/filter``."""
        self._shared = FilterNode()
        """A trie of the groups over the levels of their filters; each value is a dict by ``$share/group/filter``."""
        self._merged: dict[tuple[int, ...], tuple[Target, ...]] = {}
        """Cached targets of several filters together, by the ids of their `Subscribers`; any change clears it."""

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, topic_filter: str) -> bool:
        return topic_filter in self._filters

    @property
    def filters(self) -> Iterable[str]:
        """The filters with at least one subscriber."""
        return self._filters.keys()

    def add(self, agent: Subscriber, subscription: Subscription, moment: int = 0) -> None:
        """Add a subscription at a moment. It replaces the agent's earlier one with the same filter."""
        topic_filter = subscription.filter
        subscribers = self._filters.get(topic_filter)
        if subscribers is None:
            subscribers = self._filters[topic_filter] = Subscribers(moment)
            if (parts := shared(topic_filter)) is not None:
                self._add_group(Group(topic_filter, parts.topic_filter), subscribers)
            elif is_wildcard(topic_filter):
                self._root.insert(topic_filter.split("/"), subscribers)
        subscribers[agent] = subscription
        self._changed(subscribers)

    def remove(self, agent: Subscriber, topic_filter: str) -> bool:
        """Remove an agent's subscription, if there is one. Returns True if the filter has no more subscribers."""
        subscribers = self._filters.get(topic_filter)
        if subscribers is None or subscribers.pop(agent, None) is None:
            return False
        self._changed(subscribers)
        if subscribers:
            return False
        del self._filters[topic_filter]
        if topic_filter in self._groups:
            self._remove_group(self._groups.pop(topic_filter))
        elif is_wildcard(topic_filter):
            self._root.prune(topic_filter.split("/"))
        return True

    def _changed(self, subscribers: Subscribers) -> None:
        subscribers.changed()
        self._merged.clear()

    def group(self, topic_filter: str) -> Group | None:
        """Return the group of a shared subscription, or None if it has no members here."""
        return self._groups.get(topic_filter)

    def groups(self, topic: str) -> tuple[Group, ...]:
        """Return the groups with members here whose filter matches a topic."""
        if not self._groups:
            return ()
        return tuple(group for found in self._shared.match(topic) for group in found.values())

    def _add_group(self, group: Group, members: Subscribers) -> None:
        group.members = members
        self._groups[group.name] = group
        levels = group.topic_filter.split("/")
        node = self._shared.find(levels)
        if node is None or node.value is None:
            self._shared.insert(levels, {group.name: group})
        else:
            node.value[group.name] = group

    def _remove_group(self, group: Group) -> None:
        levels = group.topic_filter.split("/")
        node = self._shared.find(levels)
        if node is not None and node.value is not None:
            del node.value[group.name]
            if not node.value:
                self._shared.prune(levels)

    def since(self, topic_filter: str) -> int | None:
        """Return the moment since which a filter has had subscribers, or None if it has none."""
        subscribers = self._filters.get(topic_filter)
        return None if subscribers is None else subscribers.since

    def subscribed(self, topic: str, moment: int) -> bool:
        """Return whether a filter that matches a topic has had subscribers since before a moment."""
        exact = self._filters.get(topic)
        if exact is not None and exact.since < moment:
            return True
        return any([subscribers.since < moment for subscribers in self._root.match(topic)])

    def targets(self, topic: str) -> tuple[Target, ...]:
        """Return the subscribers of a topic, each once. Topics that match the same filters share one tuple."""
        found: list[Subscribers] = self._root.match(topic)
        exact = self._filters.get(topic)
        if exact is not None:
            found.insert(0, exact)
        if not found:
            return ()
        if len(found) == 1:
            return found[0].targets
        name = tuple(map(id, found))
        targets = self._merged.get(name)
        if targets is None:
            if len(self._merged) >= MERGED:
                self._merged.clear()
            targets = self._merged[name] = _merged(found)
        return targets


def _merged(found: list[Subscribers]) -> tuple[Target, ...]:
    """Merge the subscribers of several filters, each once."""
    merged: dict[Subscriber, list[Subscription]] = {}
    for subscribers in found:
        for agent, subscription in subscribers.items():
            merged.setdefault(agent, []).append(subscription)
    return tuple(Target(agent, subscriptions) for agent, subscriptions in merged.items())


class FilterNode:
    """A node of the trie of wildcard filters, or its root; ``+`` and ``#`` are children like any other level.

    The cost to add, remove or match a filter depends on its number of levels, not on the number of filters.
    """

    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.children: dict[str, FilterNode] = {}
        self.value: Any = None
        """The value of the filter that ends here, or None."""

    def find(self, levels: list[str]) -> FilterNode | None:
        """Return the node of a filter, or None."""
        node: FilterNode | None = self
        for level in levels:
            node = node.children.get(level) if node is not None else None
        return node

    def insert(self, levels: list[str], value: Any) -> None:
        """Set the value of a filter."""
        node = self
        for level in levels:
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = FilterNode()
            node = child
        node.value = value

    def prune(self, levels: list[str]) -> None:
        """Remove a filter, and every node that only it needed."""
        path = [self]
        for level in levels:
            path.append(path[-1].children[level])
        path[-1].value = None
        for parent, level, node in zip(path[-2::-1], reversed(levels), reversed(path), strict=False):
            if node.children or node.value is not None:
                break
            del parent.children[level]

    def match(self, topic: str) -> list[Any]:
        """Return the values of the filters that match a topic."""
        found: list[Any] = []
        if not self.children:
            return found
        nodes = [self]
        hidden = topic.startswith("$")  # a leading wildcard does not match it (4.7.2)
        for level in topic.split("/"):
            following: list[FilterNode] = []
            for node in nodes:
                children = node.children
                if not hidden:
                    if (rest := children.get("#")) is not None and rest.value is not None:
                        found.append(rest.value)
                    if (any_level := children.get("+")) is not None:
                        following.append(any_level)
                if (child := children.get(level)) is not None:
                    following.append(child)
            hidden = False
            nodes = following
        for node in nodes:
            if node.value is not None:
                found.append(node.value)
            if (rest := node.children.get("#")) is not None and rest.value is not None:
                found.append(rest.value)
        return found
