"""Pending acknowledgements: publications of QoS 1 or 2 that a broker has passed on and must answer for."""

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
    """The pending acknowledgement of one frame."""

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
        """Number of awaited answers."""
        self.missing: list[BrokerRef] = []
        """Members that have not got the frame."""
        self.to: BrokerRef | None = None
        """The parent to answer; None at the publishers' broker."""
        self.token = 0
        """Token of the answer to the parent."""
        self.streams: list[Stream] = []
        """The streams of the parts, at the publishers' broker."""
        self.dones: list[tuple[Sequence[int], Done]] = []
        """At the publishers' broker, for each batch in the frame: the parts of its topics, and its callback."""
        self.since = 0.0
        """When the frame was published, in seconds of the port's clock, at the publishers' broker."""
        self._brokers: list[int] = []
        self._subscribers: list[int] = []

    def add(self, answer: Ack, parts: Sequence[int] | None = None) -> None:
        """Add an answer for all parts, or for `parts`: its counts and its missing members."""
        if not self._brokers:
            self._brokers, self._subscribers = [0] * len(self.body.parts), [0] * len(self.body.parts)
        numbers = range(len(self.body.parts)) if parts is None else parts
        for number, (brokers, subscribers) in zip(numbers, answer.reached, strict=True):
            self._brokers[number] += brokers
            self._subscribers[number] += subscribers
        self.missing.extend(answer.missing)

    @property
    def counts(self) -> list[Reached]:
        """The brokers and subscribers that have each part."""
        none = [0] * len(self.body.parts)
        each = zip(self._brokers or none, self._subscribers or none, strict=True)
        return [Reached(min(brokers, MOST_COUNTED), min(subscribers, MOST_COUNTED)) for brokers, subscribers in each]

    def answer(self) -> Ack:
        """Return the answer to the parent."""
        return Ack(self.token, [(each.brokers, each.subscribers) for each in self.counts], self.missing)

    def confirm(self) -> None:
        """Call the callback of each batch: all members have the frame."""
        counts = self.counts
        for parts, done in self.dones:
            done([counts[number] for number in parts])


class DueAck:
    """The answer due from one child: for publications of a pending frame, and for a slice."""

    __slots__ = ("child", "parts", "pending", "slice")

    def __init__(self, pending: Pending, branch: Branch, parts: Sequence[int] | None = None) -> None:
        """`parts` are the indexes of the parts that the child was sent, or None for all parts."""
        self.pending = pending
        self.child, self.slice = branch
        self.parts = parts

    def answered(self, ack: Ack) -> None:
        """Add the child's answer. Raises `ProtocolError` if it counts another number of topics than were sent."""
        asked = len(self.pending.body.parts if self.parts is None else self.parts)
        if len(ack.reached) != asked:
            raise ProtocolError(f"{self.child.name} answers for {len(ack.reached)} topics instead of {asked}")
        self.pending.add(ack, self.parts)


class Answers:
    """Sums up answers for several topics, and calls `done` with the sums when all answers are in.

    Take a callback from `of` for each expected answer, then call `complete`.
    """

    def __init__(self, topics: int, done: Done) -> None:
        self._done = done
        self._missing = 1
        self._reached = [NOBODY] * topics

    def of(self, numbers: Sequence[int]) -> Done:
        """Expect one more answer, for the topics at these indexes. Returns the callback for it; it adds the brokers and
        subscribers reached to those of other answers."""
        self._missing += 1

        def answered(reached: Sequence[Reached]) -> None:
            for number, each in zip(numbers, reached, strict=True):
                before = self._reached[number]
                self._reached[number] = Reached(before.brokers + each.brokers, before.subscribers + each.subscribers)
            self._one_done()

        return answered

    def complete(self) -> None:
        """End the set of expected answers: no further call of `of` follows."""
        self._one_done()

    def _one_done(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._done(self._reached)


def least(count: int, answered: Callable[[int], None]) -> Callable[[int], None]:
    """Return a callback for `count` calls. The last call passes the least of all values to `answered`."""
    found: list[int] = []

    def one(number: int) -> None:
        found.append(number)
        if len(found) == count:
            answered(min(found))

    return one
