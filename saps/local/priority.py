"""Priority topics: those whose messages pass others on the way from broker to broker, and in the network between them.

A property of the topic, not of the message: within a topic a publisher's order is kept, so a message could never arrive
before one that it was to pass.
"""

from __future__ import annotations

from collections.abc import Iterable

from saps.topics import matches

REMEMBERED = 65_536
"""Topics whose answer is kept at hand; beyond it the memory starts anew."""
CLASS_SELECTOR = 8
"""Ratio of a DSCP to the level it selects (RFC 2474, 4.2.2.2): level 5 is CS5, 40."""


class Priorities:
    """Which topics go first. Brokers of one mesh must agree, as must OFGate."""

    def __init__(self, filters: Iterable[str] = (), level: int = 5) -> None:
        """`level`: 1 to 7, the class selector of the packets' DSCP and their queue in switches; 7 passes everything."""
        self.filters = tuple(filters)
        self._level = level
        self._known: dict[str, bool] = {}

    def __bool__(self) -> bool:
        """Some topics have priority."""
        return bool(self.filters)

    @property
    def dscp(self) -> int:
        """The differentiated services code point of packets with priority."""
        return CLASS_SELECTOR * self._level

    def urgent(self, topic: str) -> bool:
        """Does this topic have priority?"""
        known = self._known.get(topic)
        if known is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            known = self._known[topic] = any(matches(topic_filter, topic) for topic_filter in self.filters)
        return known

    def level(self, topic: str) -> int | None:
        """The topic's level; None if it has none."""
        return self._level if self.urgent(topic) else None
