"""Keys: what a broker registers in the overlay, and the order they are kept in.

A key is one (topic filter or attribute, broker) pair, never one a client. Keys sort by topic level, then role, then
place, so that a topic with all its descendants is one contiguous range, and within a topic the brokers of one cluster
are neighbours (ALM-LA; SAPS 2016, section 4.1: ``t1@clusterA``, ``t1@clusterB``).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from saps.topics import SHARE, is_wildcard, literal_prefix, shared

MEMBERSHIP_BITS = 64
"""Length of a membership vector; lists of one key are reached long before (after about log2 of the number of keys)."""

_LEVEL = b"\0"
"""Stands before each level. U+0000 is the one character no topic may hold, so it sorts below every level's bytes."""
_PAST = b"\1"
_TOPICS, _ATTRIBUTES, _BROKERS, _PARTITIONS = b"t", b"a", b"b", b"r"

LONGEST_PATH = 1 << 17
"""Bytes: a topic has 65,535 at most."""
LONGEST_NAME, LONGEST_ADDRESS, LONGEST_CLUSTER = 255, 300, 1024
"""Characters of what a broker says of itself."""
MEMORABLE = 512
"""Bytes of the longest path of which the membership vector is remembered: else 65,536 keys could take gigabytes."""


class Role(IntEnum):
    """Why a broker stands at a topic. The order is that of the keys."""

    PUBLISHER = 0
    """Publishes to the topic: publisher presence."""
    SUBSCRIBER = 1
    """Subscribes to exactly the topic."""
    WILDCARD = 2
    """Subscribes to a wildcard filter whose longest literal prefix is the topic."""
    AGENT = 3
    """Hosts an agent with the attribute, or a partition of retained messages, or is the broker itself."""


class KeyOrder(StrEnum):
    """How the brokers of one topic are sorted, and so how its members are divided (`saps.overlay.delivery.tree`)."""

    ALM = "alm"
    """By a hash: blind to place, as a plain Skip Graph."""
    ALM_LA = "alm-la"
    """By cluster path: with locality awareness."""
    CLUSTER = "cluster"
    """By cluster path, and never cut inside a foreign cluster: cluster-aware."""


class Key(NamedTuple):
    """A place in the overlay's order. Comparison is that of tuples."""

    path: Annotated[bytes, Meta(max_length=LONGEST_PATH)]
    role: Annotated[int, Meta(ge=0, le=255)] = 0
    rest: Annotated[bytes, Meta(max_length=LONGEST_PATH)] = b""
    """The part of a wildcard filter behind its literal prefix; of a shared one, behind its group and a U+0000."""
    place: Annotated[bytes, Meta(max_length=8 * LONGEST_CLUSTER)] = b""
    broker: Annotated[str, Meta(max_length=LONGEST_NAME)] = ""

    @property
    def topic_filter(self) -> str:
        """The topic or filter of a topic key."""
        prefix = self.path[2:].replace(_LEVEL, b"/").decode()
        if self.role != Role.WILDCARD:
            return prefix
        group, _, rest = self.rest.decode().rpartition("\0")
        if len(self.path) > 1:
            rest = f"{prefix}/{rest}" if rest else prefix
        return f"{SHARE}{group}/{rest}" if group else rest

    @property
    def attribute(self) -> str:
        """The attribute of an agent key, the name in a broker key."""
        return self.path[2:].decode()

    @property
    def is_topic(self) -> bool:
        return self.path[:1] == _TOPICS


class Range(NamedTuple):
    """All keys k with ``low <= k < high``. No key equals a bound."""

    low: Key
    high: Key


class BrokerRef(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """One life of one broker: where it is and which start of it this was."""

    name: Annotated[str, Meta(max_length=LONGEST_NAME)]
    incarnation: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    """Grows with each start of the broker (milliseconds since the epoch at its start)."""
    address: Annotated[str, Meta(max_length=LONGEST_ADDRESS)]
    """``host:port`` of its overlay listener."""
    cluster: Annotated[str, Meta(max_length=LONGEST_CLUSTER)]
    zone: Annotated[str, Meta(max_length=LONGEST_NAME)] = ""
    """What it fails with, within its cluster: a rack, a power supply, a machine."""

    def same_incarnation(self, other: BrokerRef) -> bool:
        """Whatever is said of its place."""
        return self.name == other.name and self.incarnation == other.incarnation


class Ref(NamedTuple):
    """A key in the overlay: one stay of it, from insertion to removal, at the broker that holds it."""

    key: Key
    broker: BrokerRef
    stay: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    """Grows with each insertion by the broker, so that a late frame about an earlier stay does no harm."""


def place(broker: BrokerRef, order: KeyOrder) -> bytes:
    """Where a broker stands among the brokers of one topic."""
    if order is KeyOrder.ALM:
        return blake2b(broker.name.encode(), digest_size=8).digest()
    return b"".join(level.encode() + _LEVEL for level in broker.cluster.split("/"))


def topic_path(topic: str | None) -> bytes:
    """The path of a topic, of the root for None."""
    return _TOPICS if topic is None else _TOPICS + _LEVEL + topic.encode().replace(b"/", _LEVEL)


def publisher_key(topic: str, broker: BrokerRef, order: KeyOrder) -> Key:
    return Key(topic_path(topic), Role.PUBLISHER, b"", place(broker, order), broker.name)


def filter_key(topic_filter: str, broker: BrokerRef, order: KeyOrder) -> Key:
    """The key of a subscription: SUBSCRIBER at a topic, WILDCARD at the filter's longest literal prefix."""
    if not is_wildcard(topic_filter):
        return Key(topic_path(topic_filter), Role.SUBSCRIBER, b"", place(broker, order), broker.name)
    prefix = literal_prefix(topic_filter)
    group = ""
    if (parts := shared(topic_filter)) is not None:
        group, topic_filter = f"{parts.group}\0", parts.topic_filter
    rest = group + (topic_filter if prefix is None else topic_filter[len(prefix) + 1 :])
    return Key(topic_path(prefix), Role.WILDCARD, rest.encode(), place(broker, order), broker.name)


def attribute_key(attribute: str, broker: BrokerRef, order: KeyOrder) -> Key:
    return Key(_ATTRIBUTES + _LEVEL + attribute.encode(), Role.AGENT, b"", place(broker, order), broker.name)


def broker_key(name: str) -> Key:
    """The key every broker holds for as long as it is in the mesh."""
    return Key(_BROKERS + _LEVEL + name.encode(), Role.AGENT, b"", b"", name)


def sharers(topic_filter: str) -> Range:
    """The brokers with members of a shared subscription."""
    key = filter_key(topic_filter, BrokerRef("", 0, "", ""), KeyOrder.ALM)
    return Range(Key(key.path, key.role, key.rest), Key(key.path, key.role, key.rest + _LEVEL))


def partition_key(partition: int, broker: BrokerRef, order: KeyOrder) -> Key:
    """The key of a broker that holds a partition of retained messages."""
    return Key(_partition_path(partition), Role.AGENT, b"", place(broker, order), broker.name)


def partition_of_key(key: Key) -> int:
    """The partition of a `partition_key`, -1 for other keys."""
    return int(key.path[2:]) if key.path[:1] == _PARTITIONS else -1


def partition_range(partition: int) -> Range:
    """The holders of a partition."""
    return _role_range(_partition_path(partition), Role.AGENT)


ALL_PARTITIONS = Range(Key(_PARTITIONS), Key(_PARTITIONS + _PAST))


def _partition_path(partition: int) -> bytes:
    return _PARTITIONS + _LEVEL + b"%d" % partition


ALL_BROKERS = Range(Key(_BROKERS), Key(_BROKERS + _PAST))


def publishers(topic: str) -> Range:
    return _role_range(topic_path(topic), Role.PUBLISHER)


def subscribers(topic: str) -> Range:
    return _role_range(topic_path(topic), Role.SUBSCRIBER)


def wildcards(prefix: str | None) -> Range:
    """The wildcard filters whose longest literal prefix is `prefix` (None: those that begin with a wildcard)."""
    return _role_range(topic_path(prefix), Role.WILDCARD)


def subtree(prefix: str | None) -> Range:
    """Everything at a topic and below it."""
    path = topic_path(prefix)
    return Range(Key(path), Key(path + _PAST))


def holders(attribute: str) -> Range:
    """The brokers with an agent that has the attribute."""
    return _role_range(_ATTRIBUTES + _LEVEL + attribute.encode(), Role.AGENT)


def one_broker(name: str) -> Range:
    return _role_range(_BROKERS + _LEVEL + name.encode(), Role.AGENT)


def _role_range(path: bytes, role: Role) -> Range:
    return Range(Key(path, role), Key(path, role + 1))


def between(left: Key, key: Key, right: Key) -> bool:
    """True if `key` lies strictly between `left` and `right` going right around the ring; the ring of one
    (``left == right``) has every other key between."""
    if left < right:
        return left < key < right
    return key > left or key < right


def membership(key: Key) -> int:
    """The key's membership vector, `MEMBERSHIP_BITS` long (Aspnes & Shah, Skip Graphs, section 3).

    It is derived from the key, so that nobody has to be told it; the place has no part in it, so that the two key
    orders see the same vectors.
    """
    return _membership(key) if len(key.path) + len(key.rest) <= MEMORABLE else _computed(key)


def _computed(key: Key) -> int:
    name = b"\0\0".join((key.path, bytes((key.role,)), key.rest, key.broker.encode()))
    return int.from_bytes(blake2b(name, digest_size=MEMBERSHIP_BITS // 8).digest())


_membership = lru_cache(maxsize=1 << 16)(_computed)


def common_prefix(a: int, b: int) -> int:
    """How many leading bits two membership vectors share."""
    return MEMBERSHIP_BITS - (a ^ b).bit_length()
