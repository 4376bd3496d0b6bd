"""Priority topics: their messages overtake others between brokers, and in the network between these.

Priority belongs to a topic and not to a message: the order of a publisher and topic is kept, so a message could never
overtake others of its topic.
"""

from __future__ import annotations

from collections.abc import Iterable

from saps.topics import matches

REMEMBERED = 65_536
"""Most cached topics; beyond that the cache starts anew."""
CLASS_SELECTOR = 8
"""Ratio of a DSCP to the level it selects (RFC 2474, 4.2.2.2): level 5 is CS5, 40."""


class Priorities:
    """The topics with priority. All brokers of a mesh and OFGate must agree on them."""

    def __init__(self, filters: Iterable[str] = (), level: int = 5) -> None:
        """`level`: 1 to 7, the class selector of the packets' DSCP and their queue in switches; 7 passes everything."""
        self.filters = tuple(filters)
        self._level = level
        self._known: dict[str, bool] = {}

    def __bool__(self) -> bool:
        """Whether any topic has priority."""
        return bool(self.filters)

    @property
    def dscp(self) -> int:
        """The differentiated services code point of packets with priority."""
        return CLASS_SELECTOR * self._level

    def urgent(self, topic: str) -> bool:
        """Return whether a topic has priority."""
        known = self._known.get(topic)
        if known is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            known = self._known[topic] = any(matches(topic_filter, topic) for topic_filter in self.filters)
        return known

    def level(self, topic: str) -> int | None:
        """Return the level of a topic, or None if it has no priority."""
        return self._level if self.urgent(topic) else None
