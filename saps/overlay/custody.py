"""What a broker has passed on with QoS 1 or 2 and must answer for, and the answers to that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

from saps.mesh import RunDone
from saps.messages import NOBODY, Reached
from saps.overlay.frames import Ack, Bundle, Data, ProtocolError, Run
from saps.overlay.keys import BrokerRef
from saps.overlay.presence import Stream
from saps.overlay.runs import length, singly, topics
from saps.overlay.tree import Branch
from saps.statistics import Statistics


class Custody:
    """Messages with QoS 1 or 2, one, a run or a bundle, that this broker has passed on and must answer for."""

    __slots__ = (
        "brokers",
        "bundle_done",
        "data",
        "dones",
        "missing",
        "origin",
        "since",
        "streams",
        "subscribers",
        "to",
        "token",
        "waiting",
    )

    def __init__(self, origin: BrokerRef, data: Data | Run | Bundle) -> None:
        self.origin = origin
        self.data = data
        self.waiting = 0
        self.brokers = 0
        self.subscribers = [0] * len(data.parts) if type(data) is Bundle else [0]
        """Of each message of a run; with a bundle for each of its parts."""
        self.missing: list[BrokerRef] = []
        self.to: BrokerRef | None = None
        """Whom to answer; None at the publisher's broker."""
        self.token = 0
        self.dones: list[tuple[int, Callable[[Reached], None] | None]] = []
        """At the publisher's broker: what is to be called for so many messages when all members have them."""
        self.bundle_done: RunDone | None = None
        """The same for the messages of a bundle."""
        self.since = 0.0
        """When it was published, if this is the publisher's broker."""
        self.streams: Sequence[Stream] = ()
        """Of its topics, if this is the publisher's broker."""

    def reached(self, brokers: int, subscribers: Sequence[int]) -> None:
        """So many brokers more have it, and for each topic so many subscribers."""
        self.brokers += brokers
        for number, count in enumerate(subscribers):
            self.subscribers[number] += count

    def to_topic(self, topic: str) -> list[Data]:
        """Those of its messages that are to the topic, each by itself."""
        if all(topic != other for other, _ in self.firsts()):
            return []
        return [data for data in singly(self.data) if data.topic == topic]

    def firsts(self) -> Iterator[tuple[str, int]]:
        """Its topics, with the number of the first message to each."""
        data = self.data
        if isinstance(data, Bundle):
            yield from ((part.topic, part.seq) for part in data.parts)
        else:
            yield data.topic, data.seq

    def confirm(self, statistics: Statistics | None, now: float) -> None:
        """All members have it: say so to those who wait for that."""
        if isinstance(self.data, Bundle):
            self._confirm_bundle(self.data, statistics, now)
            return
        for count, done in self.dones:
            if statistics is not None:
                statistics.confirmed(self.data.topic, now - self.since, count)
            if done is not None:
                done(Reached(self.brokers, self.subscribers[0]))

    def _confirm_bundle(self, bundle: Bundle, statistics: Statistics | None, now: float) -> None:
        if statistics is not None:
            for topic, count in topics(bundle):
                statistics.confirmed(topic, now - self.since, count)
        start = 0
        for subscribers, alike in groupby(map(self.subscribers.__getitem__, bundle.which)):
            count = sum(1 for _ in alike)
            if self.bundle_done is not None:
                self.bundle_done(start, count, Reached(self.brokers, subscribers))
            start += count

    def unbundled(self) -> list[Custody]:
        """The same for each message of a bundle by itself: its members may be other ones by now."""
        assert type(self.data) is Bundle
        ones = []
        for place, (number, data) in enumerate(zip(self.data.which, singly(self.data), strict=True)):
            one = Custody(self.origin, data)
            one.reached(self.brokers, [self.subscribers[number]])
            one.missing = list(self.missing)
            one.dones.append((1, None if self.bundle_done is None else partial(self.bundle_done, place, 1)))
            one.since = self.since
            one.streams = [self.streams[number]]
            ones.append(one)
        return ones

    def join(self, other: Custody) -> None:
        """Answer for what another one of the same message does, too."""
        self.reached(other.brokers, other.subscribers)
        self.missing += other.missing
        self.dones += other.dones
        self.since = other.since


class Owed:
    """What one child is to answer for: the messages of a custody, for a slice."""

    __slots__ = ("_singles", "child", "custody", "slice")

    def __init__(self, custody: Custody, branch: Branch) -> None:
        self.custody = custody
        self.child, self.slice = branch
        self._singles: set[int] = set()
        """Messages of a run or a bundle, by their places, that it has answered for one by one: it does not know such
        frames, or has taken it apart."""

    def answered(self, ack: Ack) -> None:
        """It has answered for all of it. Raises `ProtocolError` if for something else."""
        if len(ack.more) + 1 != len(self.custody.subscribers):
            asked = len(self.custody.subscribers)
            raise ProtocolError(f"{self.child.name} answers for {len(ack.more) + 1} topics instead of {asked}")
        self.custody.reached(ack.brokers, [ack.subscribers, *ack.more])
        self.custody.missing.extend(ack.missing)

    def answered_singly(self, place: int, ack: Ack) -> bool:
        """It has answered for the message at a place. True if it has now answered for each."""
        custody, data = self.custody, self.custody.data
        if type(data) is Data or place >= length(data):
            return False
        if place not in self._singles:
            self._singles.add(place)
            number = data.which[place] if type(data) is Bundle else 0
            first = data.which.index(number) if type(data) is Bundle else 0
            if place == first:
                custody.subscribers[number] += ack.subscribers
            if not place:
                custody.brokers += ack.brokers
            custody.missing.extend(ack.missing)
        return len(self._singles) == length(data)


class Answer:
    """Calls `done` when all parts of a publication have been answered and it is `complete`, with the sum."""

    def __init__(self, done: Callable[[Reached], None]) -> None:
        self._done = done
        self._missing = 1
        self._brokers = 0
        self._subscribers = 0

    def part(self) -> Callable[[Reached], None]:
        """One part more; to be called with what it reached."""
        self._missing += 1
        return self._answered

    def complete(self) -> None:
        """There are no more parts."""
        self._answered(NOBODY)

    def _answered(self, reached: Reached) -> None:
        self._missing -= 1
        self._brokers += reached.brokers
        self._subscribers += reached.subscribers
        if not self._missing:
            self._done(Reached(self._brokers, self._subscribers))
