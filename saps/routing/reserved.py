"""Topics that begin with ``$SYS``: only brokers publish to them (MQTT 5.0, 4.7.2), each for its own clients.

The mesh carries only one of them, the counts.
"""

from __future__ import annotations

from saps.topics import shared

COUNTS = "$SYS/saps/counts"
"""Each broker's counts (`saps.statistics`), a message for an interval or a part of it, as a Parquet file."""


def is_reserved(topic: str) -> bool:
    """Return whether only brokers publish to a topic."""
    return topic.startswith("$SYS/") or topic == "$SYS"


def is_own(topic_filter: str) -> bool:
    """Return whether a filter matches only topics that a broker publishes for its own clients, so that the mesh need
    not know it."""
    parts = shared(topic_filter)
    plain = topic_filter if parts is None else parts.topic_filter
    return is_reserved(plain) and plain != COUNTS


def is_publishable(topic: str, by_client: bool) -> bool:
    """Return whether a client (else the broker) may publish to a topic through the hub."""
    return not is_reserved(topic) or (topic == COUNTS and not by_client)
