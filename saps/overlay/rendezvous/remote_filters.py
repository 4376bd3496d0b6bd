"""The filters of other brokers that concern this broker's topics, with a search by topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from saps.overlay.delivery.tree import by_place
from saps.overlay.ring.keys import BrokerRef, KeyOrder
from saps.routing.subscriptions import FilterNode
from saps.topics import is_wildcard, literal_prefix, shared

TOMBSTONE = 10.0
"""Seconds for which a removed filter is remembered, so that a late answer does not bring it back."""


class RemoteFilter:
    """A filter announced by another broker."""

    __slots__ = ("baseline", "broker", "present", "since", "version")

    def __init__(self, broker: BrokerRef, version: int, present: bool, baseline: int, since: float) -> None:
        self.broker = broker
        self.version = version
        self.present = present
        """Whether the filter is in force; False after its withdrawal."""
        self.baseline = baseline
        """The broker is owed publications with greater sequence numbers."""
        self.since = since


class RemoteFilters:
    """The filters of other brokers by filter and broker. Dropping all entries of a filter, broker or prefix takes time
    in proportion to their number."""

    def __init__(self, order: KeyOrder) -> None:
        self._order = order
        self.of: dict[str, dict[str, RemoteFilter]] = {}
        """By filter and name of broker."""
        self._of_prefix: dict[str | None, set[str]] = {}
        """Wildcard filters by literal prefix."""
        self._plain = FilterNode()
        """A trie of the wildcard filters that are not shared, with their entries."""
        self._shared = FilterNode()
        """A trie of the shared filters over the levels of the shared filter; each value is a dict by the whole
        filter."""
        self.of_broker: dict[str, set[str]] = {}
        """Filters by name of broker."""
        self._tombstones: deque[tuple[float, str, str]] = deque()
        """Withdrawn filters as (time, filter, name of broker), oldest first."""

    def get(self, topic_filter: str, name: str) -> RemoteFilter | None:
        """Return the last announcement of a filter by the broker of this name, or None."""
        entries = self.of.get(topic_filter)
        return None if entries is None else entries.get(name)

    def put(self, topic_filter: str, entry: RemoteFilter) -> None:
        """Store the announcement or withdrawal of a filter."""
        name = entry.broker.name
        entries = self.of.get(topic_filter)
        if entries is None:
            entries = self._add(topic_filter)
        entries[name] = entry
        self.of_broker.setdefault(name, set()).add(topic_filter)
        if not entry.present:
            self._tombstones.append((entry.since, topic_filter, name))

    def drop(self, topic_filter: str, name: str) -> None:
        """Forget the announcement of a filter by the broker of this name."""
        entries, filters = self.of[topic_filter], self.of_broker[name]
        del entries[name]
        filters.discard(topic_filter)
        if not filters:
            del self.of_broker[name]
        if not entries:
            self._remove(topic_filter)

    def drop_all(self, topic_filter: str) -> None:
        """Forget all announcements of a filter."""
        for name in list(self.of.get(topic_filter, ())):
            self.drop(topic_filter, name)

    def with_prefix(self, prefix: str | None) -> list[str]:
        """Return the wildcard filters with this literal prefix."""
        return list(self._of_prefix.get(prefix, ()))

    def expire(self, now: float) -> None:
        """Forget filters that were withdrawn at least `TOMBSTONE` seconds ago."""
        while self._tombstones and now - self._tombstones[0][0] >= TOMBSTONE:
            since, topic_filter, name = self._tombstones.popleft()
            entry = self.get(topic_filter, name)
            if entry is not None and not entry.present and entry.since == since:
                self.drop(topic_filter, name)

    def of_incarnation(self, broker: BrokerRef) -> Iterator[tuple[str, RemoteFilter]]:
        """Yield the filters in force of this incarnation of a broker, with their entries."""
        for topic_filter in self.of_broker.get(broker.name, ()):
            entry = self.of[topic_filter][broker.name]
            if entry.broker == broker and entry.present:
                yield topic_filter, entry

    def match(self, topic: str) -> list[BrokerRef]:
        """Return the brokers with matching filters, except shared ones."""
        matching = self._plain.match(topic)
        if (exact := self.of.get(topic)) is not None:
            matching.append(exact)
        found = {name: entry.broker for entries in matching for name, entry in entries.items() if entry.present}
        return list(found.values())

    def match_shared(self, topic: str) -> dict[str, list[BrokerRef]]:
        """Return the matching shared subscriptions, each with the brokers that have members, sorted by place."""
        found = {}
        for filters in self._shared.match(topic):
            for topic_filter, entries in filters.items():
                if brokers := [entry.broker for entry in entries.values() if entry.present]:
                    found[topic_filter] = by_place(brokers, self._order)
        return found

    def _add(self, topic_filter: str) -> dict[str, RemoteFilter]:
        entries = self.of[topic_filter] = {}
        if is_wildcard(topic_filter):
            self._of_prefix.setdefault(literal_prefix(topic_filter), set()).add(topic_filter)
            if (parts := shared(topic_filter)) is None:
                self._plain.insert(topic_filter.split("/"), entries)
            else:
                node = self._shared.find(parts.topic_filter.split("/"))
                if node is None or node.value is None:
                    self._shared.insert(parts.topic_filter.split("/"), {topic_filter: entries})
                else:
                    node.value[topic_filter] = entries
        return entries

    def _remove(self, topic_filter: str) -> None:
        del self.of[topic_filter]
        if not is_wildcard(topic_filter):
            return
        prefix = literal_prefix(topic_filter)
        self._of_prefix[prefix].discard(topic_filter)
        if not self._of_prefix[prefix]:
            del self._of_prefix[prefix]
        if (parts := shared(topic_filter)) is None:
            self._plain.prune(topic_filter.split("/"))
            return
        levels = parts.topic_filter.split("/")
        if (node := self._shared.find(levels)) is not None:
            del node.value[topic_filter]
            if not node.value:
                self._shared.prune(levels)
