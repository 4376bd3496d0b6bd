"""Checks every delivery: knows what each subscriber must receive, counts what is lost, doubled, disordered.

Pure: it is told of each publication and each arrival. The rule it checks is the mesh's promise: a message
published after a subscriber's SUBACK, at whatever broker, arrives at that subscriber exactly once, and in its
publisher's order within its topic. Sequence numbers count per publisher and topic, from 1.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from examples.smart_city.latency import Latencies
from examples.smart_city.scene import Publisher, Subscriber
from saps.topics import matches

MAX_FAULTS = 20
"""How many faults are kept with their details; all are counted."""


class Path(StrEnum):
    """How far a message travelled from its publisher's broker to its subscriber's."""

    BROKER = "same broker"
    CLUSTER = "same cluster"
    FAR = "other cluster"


class Kind(StrEnum):
    """What can be wrong with a delivery."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    OUT_OF_ORDER = "out of order"
    STRAY = "stray"


class Fault(msgspec.Struct, frozen=True):
    """One wrong delivery, in full."""

    kind: Kind
    subscriber: str
    publisher: str
    topic: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.kind}: {self.topic} #{self.sequence} from {self.publisher} at {self.subscriber}"


class Tally:
    """Counts over some of the deliveries: of one topic group, of one kind of path, or of one subscriber."""

    __slots__ = (
        "delivered",
        "duplicated",
        "early",
        "expected",
        "latencies",
        "out_of_order",
        "published",
        "stray",
    )

    def __init__(self) -> None:
        self.published = 0
        self.expected = 0
        self.delivered = 0
        """Of the expected deliveries, those that came; duplicates not counted."""
        self.early = 0
        """Deliveries of messages published before the SUBACK: allowed, not owed."""
        self.duplicated = 0
        self.out_of_order = 0
        self.stray = 0
        """Deliveries nobody asked for: no matching subscription, or never published."""
        self.latencies = Latencies()

    @property
    def missing(self) -> int:
        """Expected and not delivered: on the way while the scene runs, lost once it has come to rest."""
        return self.expected - self.delivered

    @property
    def wrong(self) -> int:
        """Arrivals that should not have been as they were: duplicated, out of order or stray."""
        return self.duplicated + self.out_of_order + self.stray


class _Flow:
    """One publisher's messages on one topic on their way to one subscriber."""

    __slots__ = ("first", "highest", "skipped", "tallies")

    def __init__(self, tallies: tuple[Tally, ...]) -> None:
        self.first: int | None = None
        """The first sequence owed; None until the SUBACK."""
        self.highest = 0
        self.skipped: set[int] = set()
        """Sequences below `highest` that have not come."""
        self.tallies = tallies

    def owes(self, sequence: int) -> bool:
        return self.first is not None and sequence >= self.first

    def take(self, sequence: int) -> Kind | None:
        """Note an arrival; say what is wrong with it, if anything."""
        if sequence > self.highest:
            self.skipped.update(range(self.highest + 1, sequence))
            self.highest = sequence
            return None
        if sequence in self.skipped:
            self.skipped.remove(sequence)
            return Kind.OUT_OF_ORDER
        return Kind.DUPLICATED

    def lost(self, last: int) -> list[int]:
        """The sequences up to `last` that are owed and have not come."""
        if self.first is None:
            return []
        tail = range(max(self.highest + 1, self.first), last + 1)
        return [*sorted(s for s in self.skipped if s >= self.first), *tail]


class _Stream:
    """One publisher's messages on one topic, and their flows by subscriber."""

    __slots__ = ("flows", "group", "last", "publisher")

    def __init__(self, publisher: Publisher, group: Tally) -> None:
        self.publisher = publisher
        self.group = group
        self.last = 0
        self.flows: dict[str, _Flow] = {}


class Recorder:
    """The book of all publications and deliveries of one run.

    Call `publishing` for each publication right before it is handed to the client, `subscribing` right before
    the SUBSCRIBE is sent, `subscribed` when the SUBACK is there, `arrived` for each delivery.
    """

    def __init__(self, group_of: Callable[[str], str]) -> None:
        self._group_of = group_of
        self._streams: dict[tuple[str, str], _Stream] = {}
        self._subscribers: dict[str, Subscriber] = {}
        self._acknowledged: set[str] = set()
        self.total = Tally()
        self.groups: dict[str, Tally] = {}
        self.paths: dict[Path, Tally] = {path: Tally() for path in Path}
        self.subscribers: dict[str, Tally] = {}
        self.received: dict[str, int] = {}
        """Messages each broker took in from its clients, by the broker's name."""
        self.sent: dict[str, int] = {}
        """Messages each broker delivered to its clients, by the broker's name."""
        self._faults: list[Fault] = []

    def publishing(self, publisher: Publisher, topic: str) -> int:
        """A publication starts: the sequence number it has to carry. Whoever is subscribed is owed it."""
        stream = self._stream(publisher, topic)
        stream.last += 1
        stream.group.published += 1
        self.total.published += 1
        self.received[publisher.broker.name] = self.received.get(publisher.broker.name, 0) + 1
        for flow in stream.flows.values():
            if flow.first is not None:
                for tally in flow.tallies:
                    tally.expected += 1
        return stream.last

    def subscribing(self, subscriber: Subscriber) -> None:
        """The subscriber asks for its filters: matching messages may come from now on, not owed yet."""
        self._subscribers[subscriber.name] = subscriber
        self.subscribers[subscriber.name] = Tally()
        for (_, topic), stream in self._streams.items():
            self._connect(stream, topic, subscriber)

    def subscribed(self, subscriber: Subscriber) -> None:
        """The SUBACK is there: every matching message published from now on is owed."""
        self._acknowledged.add(subscriber.name)
        for stream in self._streams.values():
            flow = stream.flows.get(subscriber.name)
            if flow is not None:
                flow.first = stream.last + 1

    def arrived(self, subscriber: Subscriber, topic: str, publisher: str, sequence: int, latency: float) -> Kind | None:
        """A message came, `latency` seconds after its publication. Gives what is wrong with it, if any."""
        self.sent[subscriber.broker.name] = self.sent.get(subscriber.broker.name, 0) + 1
        stream = self._streams.get((publisher, topic))
        flow = stream.flows.get(subscriber.name) if stream is not None else None
        if stream is None or flow is None or not 1 <= sequence <= stream.last:
            self.stray(subscriber, topic, publisher, sequence)
            return Kind.STRAY
        kind = flow.take(sequence)
        if kind is not None:
            self._fault(kind, subscriber.name, publisher, topic, sequence)
        for tally in flow.tallies:
            _count(tally, kind, flow.owes(sequence), latency)
        return kind

    def stray(self, subscriber: Subscriber, topic: str, publisher: str = "?", sequence: int = 0) -> None:
        """Something came that was never published, or not asked for, or is not readable (sequence 0)."""
        self.total.stray += 1
        if subscriber.name in self.subscribers:
            self.subscribers[subscriber.name].stray += 1
        self._fault(Kind.STRAY, subscriber.name, publisher, topic, sequence)

    @property
    def settled(self) -> bool:
        """Everything that is owed has come."""
        return self.total.missing == 0

    @property
    def sound(self) -> bool:
        """Nothing is missing, came twice, out of order or unasked. Final only when nothing is on the way."""
        return not (self.total.missing or self.total.wrong)

    def faults(self) -> list[Fault]:
        """The first faults in detail: those noticed on arrival in their order, then what is missing."""
        faults = list(self._faults)
        for (publisher, topic), stream in self._streams.items():
            for name, flow in stream.flows.items():
                if len(faults) >= MAX_FAULTS:
                    return faults
                lost = flow.lost(stream.last)[: MAX_FAULTS - len(faults)]
                faults += [Fault(Kind.LOST, name, publisher, topic, sequence) for sequence in lost]
        return faults

    def _stream(self, publisher: Publisher, topic: str) -> _Stream:
        stream = self._streams.get((publisher.name, topic))
        if stream is None:
            stream = _Stream(publisher, self.groups.setdefault(self._group_of(topic), Tally()))
            self._streams[publisher.name, topic] = stream
            for subscriber in self._subscribers.values():
                self._connect(stream, topic, subscriber)
        return stream

    def _connect(self, stream: _Stream, topic: str, subscriber: Subscriber) -> None:
        if not any(matches(topic_filter, topic) for topic_filter in subscriber.filters):
            return
        path = self.paths[_path(stream.publisher, subscriber)]
        flow = _Flow((self.total, stream.group, path, self.subscribers[subscriber.name]))
        if subscriber.name in self._acknowledged:
            flow.first = stream.last + 1
        stream.flows[subscriber.name] = flow

    def _fault(self, kind: Kind, subscriber: str, publisher: str, topic: str, sequence: int) -> None:
        if len(self._faults) < MAX_FAULTS:
            self._faults.append(Fault(kind, subscriber, publisher, topic, sequence))


def _count(tally: Tally, kind: Kind | None, owed: bool, latency: float) -> None:
    if kind is Kind.DUPLICATED:
        tally.duplicated += 1
        return
    if kind is Kind.OUT_OF_ORDER:
        tally.out_of_order += 1
    if owed:
        tally.delivered += 1
    else:
        tally.early += 1
    tally.latencies.add(latency)


def _path(publisher: Publisher, subscriber: Subscriber) -> Path:
    if publisher.broker.name == subscriber.broker.name:
        return Path.BROKER
    return Path.CLUSTER if publisher.broker.cluster == subscriber.broker.cluster else Path.FAR
