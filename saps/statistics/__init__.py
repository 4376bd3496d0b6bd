"""What a broker counts about each topic, in constant memory (SAPS 2016, 3.3).

A topic has one `TopicCount`, so that counting a batch is two additions for each of its topics. There are at most
`topics` of them. When the table is full, a new topic takes the place of the least busy one, whose counts go to
the rest: Space-Saving (Metwally, Agrawal, El Abbadi 2005), so that any topic with more than 1/`topics` of an
interval's messages is in the table, and all sums stay exact. What was counted leaves as `Row`s once in an interval;
docs/monitoring.md has the schema.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from typing import NamedTuple

SCHEMA_VERSION = 1
"""Of `Row`. Columns may be added under the same version; a changed meaning makes a new one."""
REST = ""
"""The topic of the row that sums what is not counted by topic; no message can have it (MQTT 5.0, 4.7.3)."""
LATENCY_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Upper bounds of the latency histogram's buckets, in seconds, inclusive; one more bucket is for what took longer."""
TOPICS = 10_000
"""Default size of the table: about 0.4 KiB each, and one row each in an interval."""
_BITS = 64
"""Bits in which publishers are counted (linear counting, Whang, Vander-Zanden, Taylor 1990): within 10 % up to about
100, at most 266."""


class Row(NamedTuple):
    """What one broker counted for one topic in one interval."""

    broker: str
    incarnation: int
    """Of the broker: two lives of one name count apart."""
    cluster: str
    start: int
    """Begin of the interval, on the broker's clock: milliseconds since 1970, UTC."""
    seconds: float
    """Length of the interval."""
    topic: str
    messages: int
    """Published at this broker by its clients."""
    bytes: int
    """Payload of these."""
    received: int
    """Come from other brokers, for local subscribers."""
    received_bytes: int
    publishers: int
    """Different clients that published; an estimate beyond one."""
    subscribers: int
    """Local ones, at the last message or change."""
    brokers: int
    """Other brokers that a publication from here reaches."""
    priority: int
    """The topic's, 1 to 7; 0 for none (`saps.local.priority`)."""
    copies: int
    """Sent by ALM to brokers in other clusters: own publications, and those passed on."""
    by_tree: int
    """Publications that left by an OpenFlow tree."""
    joins: int
    """How often this broker became a member: its first local subscriber came."""
    leaves: int
    """How often it ceased to be one."""
    missed: int
    """Messages that may have gone to the rest before the topic had a place in the table: an upper bound."""
    latency: list[int]
    """Publications of QoS 1 and 2 by the time until all members had confirmed them, on this broker's clock alone."""


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
        """Local ones; -1 before it is known."""
        self.last: object = None
        """The publisher of the last message: nothing is to be done if the next is by the same."""
        self.clear()
        self.missed = missed

    def clear(self) -> None:
        """Begin a new interval."""
        self.messages = self.bytes = self.received = self.received_bytes = 0
        self.copies = self.by_tree = self.joins = self.leaves = self.publishers = self.missed = 0
        self.last = None
        self.latency: list[int] | None = None

    def by(self, publisher: object) -> None:
        """The message just counted is by this publisher, and the one before it was not."""
        self.last = publisher
        self.publishers |= 1 << (hash(getattr(publisher, "name", "")) % _BITS)

    def members(self, subscribers: int) -> None:
        """So many local subscribers are there now."""
        if subscribers and not self.subscribers:
            self.joins += 1
        elif not subscribers and self.subscribers > 0:
            self.leaves += 1
        self.subscribers = subscribers

    def took(self, seconds: float, count: int = 1) -> None:
        """All members had confirmed so many publications after so long."""
        if self.latency is None:
            self.latency = [0] * (len(LATENCY_BOUNDS) + 1)
        self.latency[bisect_left(LATENCY_BOUNDS, seconds)] += count

    @property
    def weight(self) -> int:
        """By what the least busy topic is found: messages counted here, and those it may have had before."""
        return self.messages + self.received + self.missed

    @property
    def idle(self) -> bool:
        """Nothing happened in this interval."""
        return not (self.messages or self.received or self.copies or self.joins or self.leaves or self.by_tree)


class Statistics:
    """All counts of one broker."""

    def __init__(self, topics: int = TOPICS) -> None:
        """`topics`: size of the table."""
        if topics < 1:
            raise ValueError(f"the table needs room for one topic at least, not {topics}")
        self.capacity = topics
        self.topics: dict[str, TopicCount] = {}
        self.rest = TopicCount(REST)
        self.latency = [0] * (len(LATENCY_BOUNDS) + 1)
        """As `TopicCount.latency`, of all topics since the start."""
        self.waited = 0.0
        """Sum of these times in seconds."""
        self.evicted = 0
        """Topics that had to make room since the start."""
        self._heap: list[tuple[int, int, str]] = []
        """(weight when last looked at, serial, topic), one for each topic of the table. Weights only grow."""
        self._serial = 0

    def of(self, topic: str) -> TopicCount:
        """The counters of a topic; valid until those of another one are asked for, which may take their place."""
        count = self.topics.get(topic)
        if count is None:
            missed = self._make_room() if len(self.topics) >= self.capacity else 0
            count = self.topics[topic] = TopicCount(topic, missed)
            self._serial += 1
            heappush(self._heap, (missed, self._serial, topic))
        return count

    def crossed(self, topic: str, count: int = 1) -> None:
        """So many messages were sent by ALM to brokers in other clusters."""
        self.of(topic).copies += count

    def confirmed(self, topic: str, seconds: float, count: int = 1) -> None:
        """All members have confirmed so many publications of QoS 1 or 2."""
        self.of(topic).took(seconds, count)
        self.latency[bisect_left(LATENCY_BOUNDS, seconds)] += count
        self.waited += seconds * count

    def _make_room(self) -> int:
        """Take the least busy topic out. Returns its weight: no topic outside the table had more messages."""
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
        """End an interval: pairs of a topic's counters, which go on from zero, and what they have been.

        In pieces of `at_once` topics, so that messages can be handled between them; the rest comes last. Take all.
        Topics that were idle leave the table.
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
    """The counters as they are, and zeros in their place."""
    past = TopicCount.__new__(TopicCount)
    for name in TopicCount.__slots__:
        setattr(past, name, getattr(count, name))
    count.clear()
    return past


def add(to: TopicCount, count: TopicCount) -> None:
    """Add the sums of one topic to another."""
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
    """How many publishers have set these bits, by linear counting."""
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
    """What was counted, as it leaves the broker."""
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
