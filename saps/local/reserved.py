"""Topics that begin with ``$SYS``: only brokers publish to them (MQTT 5.0, 4.7.2), each for its own clients.

The mesh carries one of them, the counts, to whoever collects them.
"""

from __future__ import annotations

from saps.topics import shared

COUNTS = "$SYS/saps/counts"
"""Each broker's counts (`saps.statistics`), a message for an interval or a part of it, as a Parquet file."""


def is_reserved(topic: str) -> bool:
    """True for the topics that only a broker itself publishes to."""
    return topic.startswith("$SYS/") or topic == "$SYS"


def is_own(topic_filter: str) -> bool:
    """True for the filters that match only what each broker tells its own clients: the mesh need not know of them."""
    parts = shared(topic_filter)
    plain = topic_filter if parts is None else parts.topic_filter
    return is_reserved(plain) and plain != COUNTS


def is_publishable(topic: str, by_client: bool) -> bool:
    """Whether a client, or else the broker, may publish to a topic by the hub."""
    return not is_reserved(topic) or (topic == COUNTS and not by_client)
