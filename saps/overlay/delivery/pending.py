"""Publications of QoS 1 or 2 that a broker has passed on, until all to whom it did have acknowledged them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from saps.mesh import Done
from saps.messages import NOBODY, Reached
from saps.overlay.delivery.tree import Branch
from saps.overlay.frames.base import ProtocolError
from saps.overlay.frames.delivery import Ack, Publish
from saps.overlay.rendezvous.streams import Stream
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.validation.ranges import MOST_COUNTED


class Pending:
    """The publications of one frame that this broker answers for."""

    __slots__ = (
        "_brokers",
        "_subscribers",
        "body",
        "dones",
        "missing",
        "origin",
        "since",
        "streams",
        "to",
        "token",
        "waiting",
    )

    def __init__(self, origin: BrokerRef, body: Publish) -> None:
        self.origin = origin
        self.body = body
        self.waiting = 0
        """Answers that are awaited."""
        self.missing: list[BrokerRef] = []
        """Who has not got it."""
        self.to: BrokerRef | None = None
        """Whom to answer; None at the publishers' broker."""
        self.token = 0
        """By which number."""
        self.streams: list[Stream] = []
        """Of the parts, at the publishers' broker."""
        self.dones: list[tuple[Sequence[int], Done]] = []
        """At the publishers' broker: what is to be called for each batch in it, and which parts its topics are."""
        self.since = 0.0
        """When it was published, at a publishers' broker that counts by topic."""
        self._brokers: list[int] = []
        self._subscribers: list[int] = []

    def add(self, answer: Ack, parts: Sequence[int] | None = None) -> None:
        """Somebody has answered for the publications of each part, or of these `parts`."""
        if not self._brokers:
            self._brokers, self._subscribers = [0] * len(self.body.parts), [0] * len(self.body.parts)
        numbers = range(len(self.body.parts)) if parts is None else parts
        for number, (brokers, subscribers) in zip(numbers, answer.reached, strict=True):
            self._brokers[number] += brokers
            self._subscribers[number] += subscribers
        self.missing.extend(answer.missing)

    @property
    def counts(self) -> list[Reached]:
        """Of each part: the brokers and subscribers that have it."""
        none = [0] * len(self.body.parts)
        each = zip(self._brokers or none, self._subscribers or none, strict=True)
        return [Reached(min(brokers, MOST_COUNTED), min(subscribers, MOST_COUNTED)) for brokers, subscribers in each]

    def answer(self) -> Ack:
        """What is said to whoever has sent it here."""
        return Ack(self.token, [(each.brokers, each.subscribers) for each in self.counts], self.missing)

    def confirm(self) -> None:
        """All members have it: say so to those who wait for that."""
        counts = self.counts
        for parts, done in self.dones:
            done([counts[number] for number in parts])


class Owed:
    """What one child is to answer for: publications of a pending frame, for a slice."""

    __slots__ = ("child", "parts", "pending", "slice")

    def __init__(self, pending: Pending, branch: Branch, parts: Sequence[int] | None = None) -> None:
        """`parts`: of which parts of the frame it has got the publications; None: of all."""
        self.pending = pending
        self.child, self.slice = branch
        self.parts = parts

    def answered(self, ack: Ack) -> None:
        """It has answered. Raises `ProtocolError` if for something else."""
        asked = len(self.pending.body.parts if self.parts is None else self.parts)
        if len(ack.reached) != asked:
            raise ProtocolError(f"{self.child.name} answers for {len(ack.reached)} topics instead of {asked}")
        self.pending.add(ack, self.parts)


class Answers:
    """Calls `done` when each of several topics has been answered for, by as many as answer for it."""

    def __init__(self, topics: int, done: Done) -> None:
        self._done = done
        self._missing = 1
        self._reached = [NOBODY] * topics

    def of(self, numbers: Sequence[int]) -> Done:
        """One answer more, for these topics; to be called with whom they reached beside others."""
        self._missing += 1

        def answered(reached: Sequence[Reached]) -> None:
            for number, each in zip(numbers, reached, strict=True):
                before = self._reached[number]
                self._reached[number] = Reached(before.brokers + each.brokers, before.subscribers + each.subscribers)
            self._one_done()

        return answered

    def complete(self) -> None:
        """There are no more answers."""
        self._one_done()

    def _one_done(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._done(self._reached)


def least(count: int, answered: Callable[[int], None]) -> Callable[[int], None]:
    """To be called `count` times; then `answered` gets the least of what it was called with."""
    found: list[int] = []

    def one(number: int) -> None:
        found.append(number)
        if len(found) == count:
            answered(min(found))

    return one
