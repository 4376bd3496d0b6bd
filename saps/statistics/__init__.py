"""A broker's counts for each topic, in constant memory (SAPS 2016, 3.3).

Each topic has a `TopicCount`, so that counting a batch takes two additions for each of its topics. The table holds at
most `topics` of them. In a full table a new topic replaces the least busy one, whose counts move to the rest
(Space-Saving; Metwally, Agrawal, El Abbadi 2005). Any topic with more than 1/`topics` of an interval's messages is
therefore in the table, and all sums stay exact. Each interval ends with a `Row` for each topic; docs/monitoring.md has
the schema.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from typing import NamedTuple

SCHEMA_VERSION = 1
"""Version of `Row`. A new column keeps the version; a changed meaning raises it."""
REST = ""
"""Topic of the row that sums everything not counted by topic; no message can have it (MQTT 5.0, 4.7.3)."""
LATENCY_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Inclusive upper bounds of the latency histogram's buckets in seconds; a further bucket counts what took longer."""
TOPICS = 10_000
"""Default size of the table. Each topic takes about 0.4 KiB, and one row in an interval."""
_BITS = 64
"""Bits of the estimator of publishers (linear counting; Whang, Vander-Zanden, Taylor 1990): within 10 % up to about 100
publishers, at most 266."""


class Row(NamedTuple):
    """The counts of one broker for one topic in one interval."""

    broker: str
    incarnation: int
    """The broker's incarnation: two incarnations of one name count separately."""
    cluster: str
    start: int
    """Start of the interval on the broker's clock, in milliseconds since 1970 (UTC)."""
    seconds: float
    """Length of the interval."""
    topic: str
    messages: int
    """Messages published by clients of this broker."""
    bytes: int
    """Payload bytes of these messages."""
    received: int
    """Messages from other brokers for local subscribers."""
    received_bytes: int
    publishers: int
    """Distinct publishing clients; an estimate if more than one."""
    subscribers: int
    """Local subscribers at the last message or change."""
    brokers: int
    """Other brokers that a publication from here reaches."""
    priority: int
    """Priority of the topic, 1 to 7; 0 for none (`saps.routing.priority`)."""
    copies: int
    """Copies sent by ALM to brokers in other clusters, of own publications and of those forwarded."""
    by_tree: int
    """Publications sent along an OpenFlow tree."""
    joins: int
    """How often this broker became a member, with its first local subscriber."""
    leaves: int
    """How often it ceased to be a member."""
    missed: int
    """Upper bound of the messages that were counted in the rest before the topic was in the table."""
    latency: list[int]
    """Histogram of publications of QoS 1 and 2 by the time until all members had confirmed them, on this broker's
    clock."""


class TopicCount:
    """The counters of one topic since the last interval's end. The hub adds to them directly."""

    __slots__ = (
        "by_tree",
        "bytes",
        "copies",
        "joins",
        "last",
        "latency",
        "leaves",
        "messages",
        "missed",
        "publishers",
        "received",
        "received_bytes",
        "subscribers",
        "topic",
    )

    def __init__(self, topic: str, missed: int = 0) -> None:
        self.topic = topic
        self.subscribers = -1
        """Local subscribers; -1 while unknown."""
        self.last: object = None
        """The publisher of the last message: a run of messages by one publisher is counted once."""
        self.clear()
        self.missed = missed

    def clear(self) -> None:
        """Set all counters to zero for a new interval."""
        self.messages = self.bytes = self.received = self.received_bytes = 0
        self.copies = self.by_tree = self.joins = self.leaves = self.publishers = self.missed = 0
        self.last = None
        self.latency: list[int] | None = None

    def by(self, publisher: object) -> None:
        """Count the publisher of the last message, which differs from the one before."""
        self.last = publisher
        self.publishers |= 1 << (hash(getattr(publisher, "name", "")) % _BITS)

    def members(self, subscribers: int) -> None:
        """Set the number of local subscribers, and count a join or leave of this broker."""
        if subscribers and not self.subscribers:
            self.joins += 1
        elif not subscribers and self.subscribers > 0:
            self.leaves += 1
        self.subscribers = subscribers

    def took(self, seconds: float, count: int = 1) -> None:
        """Count publications that all members have confirmed after so many seconds."""
        if self.latency is None:
            self.latency = [0] * (len(LATENCY_BOUNDS) + 1)
        self.latency[bisect_left(LATENCY_BOUNDS, seconds)] += count

    @property
    def weight(self) -> int:
        """The rank of a topic for replacement: its counted messages and those it may have had before."""
        return self.messages + self.received + self.missed

    @property
    def idle(self) -> bool:
        """Whether nothing was counted in this interval."""
        return not (self.messages or self.received or self.copies or self.joins or self.leaves or self.by_tree)


class Statistics:
    """The table of all counts of one broker."""

    def __init__(self, topics: int = TOPICS) -> None:
        """`topics` is the size of the table. Raises `ValueError` if it is below 1."""
        if topics < 1:
            raise ValueError(f"the table needs room for one topic at least, not {topics}")
        self.capacity = topics
        self.topics: dict[str, TopicCount] = {}
        self.rest = TopicCount(REST)
        self.latency = [0] * (len(LATENCY_BOUNDS) + 1)
        """Histogram like `TopicCount.latency` of all topics since the start."""
        self.waited = 0.0
        """Sum of the times in the histogram, in seconds."""
        self.evicted = 0
        """Topics replaced by others since the start."""
        self._heap: list[tuple[int, int, str]] = []
        """A heap with an entry (last seen weight, serial, topic) for each topic of the table. Weights only grow."""
        self._serial = 0

    def of(self, topic: str) -> TopicCount:
        """Return the counters of a topic, valid until the next call, which may give their place to another topic."""
        count = self.topics.get(topic)
        if count is None:
            missed = self._make_room() if len(self.topics) >= self.capacity else 0
            count = self.topics[topic] = TopicCount(topic, missed)
            self._serial += 1
            heappush(self._heap, (missed, self._serial, topic))
        return count

    def crossed(self, topic: str, count: int = 1) -> None:
        """Count copies sent by ALM to brokers in other clusters."""
        self.of(topic).copies += count

    def confirmed(self, topic: str, seconds: float, count: int = 1) -> None:
        """Count publications of QoS 1 or 2 that all members have confirmed after so many seconds."""
        self.of(topic).took(seconds, count)
        self.latency[bisect_left(LATENCY_BOUNDS, seconds)] += count
        self.waited += seconds * count

    def _make_room(self) -> int:
        """Remove the least busy topic. Returns its weight: no topic outside the table has had more messages."""
        heap = self._heap
        while True:
            weight, serial, topic = heap[0]
            count = self.topics.get(topic)
            if count is None:
                heappop(heap)
            elif count.weight > weight:
                heapreplace(heap, (count.weight, serial, topic))
            else:
                heappop(heap)
                self._take_out(count)
                self.evicted += 1
                return weight

    def _take_out(self, count: TopicCount) -> None:
        add(self.rest, count)
        del self.topics[count.topic]

    def drain(self, at_once: int = 500) -> Iterator[list[tuple[TopicCount, TopicCount]]]:
        """End an interval: yield lists of pairs of a topic's counters, set to zero, and a copy of what they were.

        Each list has at most `at_once` topics, so that messages can be handled in between; the last list has the rest.
        Iterate to the end. Idle topics are removed from the table.
        """
        counts = list(self.topics.values())
        for begin in range(0, len(counts), at_once):
            piece = []
            for count in counts[begin : begin + at_once]:
                if self.topics.get(count.topic) is not count:
                    continue
                if count.idle:
                    self._take_out(count)
                else:
                    piece.append((count, _ended(count)))
            yield piece
        self._heap = [(count.weight, serial, topic) for serial, (topic, count) in enumerate(self.topics.items())]
        self._heap.sort()
        self._serial = len(self._heap)
        yield [(self.rest, _ended(self.rest))] if not self.rest.idle else []


def _ended(count: TopicCount) -> TopicCount:
    """Return a copy of the counters and set them to zero."""
    past = TopicCount.__new__(TopicCount)
    for name in TopicCount.__slots__:
        setattr(past, name, getattr(count, name))
    count.clear()
    return past


def add(to: TopicCount, count: TopicCount) -> None:
    """Add the counts of one topic to another's."""
    to.messages += count.messages
    to.bytes += count.bytes
    to.received += count.received
    to.received_bytes += count.received_bytes
    to.copies += count.copies
    to.by_tree += count.by_tree
    to.joins += count.joins
    to.leaves += count.leaves
    to.publishers |= count.publishers
    for bucket, number in enumerate(count.latency or ()):
        if to.latency is None:
            to.latency = [0] * (len(LATENCY_BOUNDS) + 1)
        to.latency[bucket] += number


def publishers(bits: int) -> int:
    """Estimate how many publishers have set these bits, by linear counting."""
    zeros = _BITS - bits.bit_count()
    return round(_BITS * math.log(_BITS / max(zeros, 1)))


def row(
    count: TopicCount,
    broker: str,
    incarnation: int,
    cluster: str,
    start: int,
    seconds: float,
    brokers: int,
    priority: int = 0,
) -> Row:
    """Convert a topic's counters into a row."""
    return Row(
        broker,
        incarnation,
        cluster,
        start,
        seconds,
        count.topic,
        count.messages,
        count.bytes,
        count.received,
        count.received_bytes,
        publishers(count.publishers),
        max(count.subscribers, 0),
        brokers,
        priority,
        count.copies,
        count.by_tree,
        count.joins,
        count.leaves,
        count.missed,
        count.latency or [0] * (len(LATENCY_BOUNDS) + 1),
    )
