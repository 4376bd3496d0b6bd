"""The keys that brokers register in the overlay, and their order.

A key is a pair of a topic filter (or attribute) and a broker, never of a client. Keys sort by topic level, then role,
then place. A topic with all its descendants is therefore one contiguous range, and within a topic the brokers of one
cluster are neighbours (ALM-LA; SAPS 2016, 4.1: ``t1@clusterA``, ``t1@clusterB``).
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
"""Length of a membership vector in bits. After about log2 of the number of keys each list has a single key, so 64 bits
are never used up."""

_LEVEL = b"\0"
"""The byte before each level. No topic may contain U+0000, so it sorts below all bytes of levels."""
_PAST = b"\1"
_TOPICS, _ATTRIBUTES, _BROKERS, _PARTITIONS = b"t", b"a", b"b", b"r"

LONGEST_PATH = 1 << 17
"""Bytes: a topic has 65,535 at most."""
LONGEST_NAME, LONGEST_ADDRESS, LONGEST_CLUSTER = 255, 300, 1024
"""Characters of what a broker says of itself."""
MEMORABLE = 512
"""Bytes of the longest path of which the membership vector is remembered: else 65,536 keys could take gigabytes."""


class Role(IntEnum):
    """The role of a broker at a topic. Keys sort by it."""

    PUBLISHER = 0
    """The broker publishes to the topic."""
    SUBSCRIBER = 1
    """The broker subscribes to exactly the topic."""
    WILDCARD = 2
    """The broker subscribes to a wildcard filter whose longest literal prefix is the topic."""
    AGENT = 3
    """The broker has an agent with the attribute or a partition of retained messages, or it is the broker's own key."""


class KeyOrder(StrEnum):
    """The order of the brokers of one topic, which decides how its members are divided
    (`saps.overlay.delivery.tree`)."""

    ALM = "alm"
    """By a hash, which ignores the place, as in a plain Skip Graph."""
    ALM_LA = "alm-la"
    """By cluster path: location-aware."""
    CLUSTER = "cluster"
    """By cluster path, and never divided inside a foreign cluster: cluster-aware."""


class Key(NamedTuple):
    """A key of the overlay. Keys compare as tuples."""

    path: Annotated[bytes, Meta(max_length=LONGEST_PATH)]
    role: Annotated[int, Meta(ge=0, le=255)] = 0
    rest: Annotated[bytes, Meta(max_length=LONGEST_PATH)] = b""
    """The part of a wildcard filter after its literal prefix; in a shared subscription preceded by its group and
    U+0000."""
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
        """The attribute of an agent key, or the name in a broker key."""
        return self.path[2:].decode()

    @property
    def is_topic(self) -> bool:
        return self.path[:1] == _TOPICS


class Range(NamedTuple):
    """All keys k with ``low <= k < high``. No key equals a bound."""

    low: Key
    high: Key


class BrokerRef(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """One incarnation of a broker: its name, incarnation number, address, cluster and zone."""

    name: Annotated[str, Meta(max_length=LONGEST_NAME)]
    incarnation: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    """Milliseconds since the epoch at the broker's start: grows with each start."""
    address: Annotated[str, Meta(max_length=LONGEST_ADDRESS)]
    """``host:port`` of the overlay listener."""
    cluster: Annotated[str, Meta(max_length=LONGEST_CLUSTER)]
    zone: Annotated[str, Meta(max_length=LONGEST_NAME)] = ""
    """Failure domain within the cluster: a rack, a power supply, a machine."""

    def same_incarnation(self, other: BrokerRef) -> bool:
        """Return whether both are the same incarnation of the same broker, regardless of its place."""
        return self.name == other.name and self.incarnation == other.incarnation

    def succeeds(self, other: BrokerRef) -> bool:
        """Return whether this is a later incarnation of the same broker."""
        return self.name == other.name and self.incarnation > other.incarnation


class Ref(NamedTuple):
    """A key of a broker for one stay in the overlay, from insertion to removal."""

    key: Key
    broker: BrokerRef
    stay: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    """Number of the stay. It grows with each insertion by the broker, so that a late frame about an earlier stay does
    no harm."""


def place(broker: BrokerRef, order: KeyOrder) -> bytes:
    """Return the place of a broker among the brokers of one topic."""
    if order is KeyOrder.ALM:
        return blake2b(broker.name.encode(), digest_size=8).digest()
    return b"".join(level.encode() + _LEVEL for level in broker.cluster.split("/"))


def topic_path(topic: str | None) -> bytes:
    """Return the path of a topic; None stands for the root."""
    return _TOPICS if topic is None else _TOPICS + _LEVEL + topic.encode().replace(b"/", _LEVEL)


def publisher_key(topic: str, broker: BrokerRef, order: KeyOrder) -> Key:
    return Key(topic_path(topic), Role.PUBLISHER, b"", place(broker, order), broker.name)


def filter_key(topic_filter: str, broker: BrokerRef, order: KeyOrder) -> Key:
    """Return the key of a subscription: SUBSCRIBER at a topic, or WILDCARD at the filter's longest literal prefix."""
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
    """Return the key that every broker has while it is in the mesh."""
    return Key(_BROKERS + _LEVEL + name.encode(), Role.AGENT, b"", b"", name)


def sharers(topic_filter: str) -> Range:
    """Return the range of the brokers with members of a shared subscription."""
    key = filter_key(topic_filter, BrokerRef("", 0, "", ""), KeyOrder.ALM)
    return Range(Key(key.path, key.role, key.rest), Key(key.path, key.role, key.rest + _LEVEL))


def partition_key(partition: int, broker: BrokerRef, order: KeyOrder) -> Key:
    """Return the key of a broker that has a replica of a partition of retained messages."""
    return Key(_partition_path(partition), Role.AGENT, b"", place(broker, order), broker.name)


def partition_of_key(key: Key) -> int:
    """Return the partition of a `partition_key`, or -1 for other keys."""
    return int(key.path[2:]) if key.path[:1] == _PARTITIONS else -1


def partition_range(partition: int) -> Range:
    """Return the range of the replicas of a partition."""
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
    """Return the range of wildcard filters whose longest literal prefix is `prefix`; None: filters without a prefix."""
    return _role_range(topic_path(prefix), Role.WILDCARD)


def subtree(prefix: str | None) -> Range:
    """Return the range of all keys at a topic and below it."""
    path = topic_path(prefix)
    return Range(Key(path), Key(path + _PAST))


def holders(attribute: str) -> Range:
    """Return the range of the brokers with an agent that has the attribute."""
    return _role_range(_ATTRIBUTES + _LEVEL + attribute.encode(), Role.AGENT)


def one_broker(name: str) -> Range:
    return _role_range(_BROKERS + _LEVEL + name.encode(), Role.AGENT)


def _role_range(path: bytes, role: Role) -> Range:
    return Range(Key(path, role), Key(path, role + 1))


def between(left: Key, key: Key, right: Key) -> bool:
    """Return whether `key` lies strictly between `left` and `right`, going right around the ring. In a ring of one
    (``left == right``) every other key does."""
    if left < right:
        return left < key < right
    return key > left or key < right


def membership(key: Key) -> int:
    """Return the key's membership vector of `MEMBERSHIP_BITS` bits (Aspnes & Shah, Skip Graphs, section 3).

    Every broker can compute it from the key. The place has no part in it, so all key orders have the same vectors.
    """
    return _membership(key) if len(key.path) + len(key.rest) <= MEMORABLE else _computed(key)


def _computed(key: Key) -> int:
    name = b"\0\0".join((key.path, bytes((key.role,)), key.rest, key.broker.encode()))
    return int.from_bytes(blake2b(name, digest_size=MEMBERSHIP_BITS // 8).digest())


_membership = lru_cache(maxsize=1 << 16)(_computed)


def common_prefix(a: int, b: int) -> int:
    """Return the number of leading bits that two membership vectors share."""
    return MEMBERSHIP_BITS - (a ^ b).bit_length()
