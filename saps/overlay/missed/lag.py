"""The state of a broker that has missed publications: its progress in the log, and its wanted filters."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from enum import Enum
from itertools import compress
from typing import NamedTuple

from saps.overlay.missed.absences import NEAR
from saps.overlay.missed.flight import Flight
from saps.overlay.missed.log import Fate, MissedLog, Place
from saps.overlay.missed.published import Published
from saps.overlay.ring.keys import BrokerRef
from saps.routing.subscriptions import FilterNode
from saps.topics import shared

TOLD = 1.0
"""Longest time in seconds between a question about sessions and the answer, which tells how long ago they came."""


class State(Enum):
    """Step of the catch-up of a broker (`saps.overlay.missed.catchup`)."""

    LOST = "lost"
    ASKED = "asked"
    GOING = "going"


class Cause(Enum):
    """Why a broker may have missed publications."""

    NEW = "new"
    """It was first heard when the log was there already, so it may have missed nothing."""
    CUT_OFF = "cut off"
    """It was declared dead, or was there before the log began."""
    RESTORED = "restored"
    """An earlier incarnation of this broker had lost it."""


class Stay(NamedTuple):
    """The time that sessions were at a broker, in seconds of the port's clock."""

    broker: BrokerRef
    came: float
    left: float

    def common(self, other: Stay) -> Stay:
        """Return the time that both this and another stay at the broker last."""
        return Stay(self.broker, max(self.came, other.came), min(self.left, other.left))


class Wanted:
    """Filters, each with its start: it counts for publications from a time on, or above a sequence number."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, int]] = {}
        self._plain = FilterNode()
        self._shared = FilterNode()
        self.delay = 0.0
        """Seconds from the question to its first answer. The ages in the answers count from some time between."""
        self._topics: dict[str, list[str]] = {}
        """Cache: the plain filters that match a topic."""
        self._owed: list[tuple[int, float]] = []
        """Of a group, for each former broker: the number above which and the time until which it may have missed
        publications, except for doubts."""
        self.moved: dict[int, Wanted] = {}
        """The groups of sessions with former brokers, by `WantedFilters.number`: filters that count for publications
        that came to none of these brokers while the sessions were there."""
        self._stays: list[Stay] = []
        """Of a group, in order."""
        self._unserved: list[tuple[float, float]] = []
        """Of a group: the times, each with its end, from which it is owed what its former brokers had missed."""

    def of(self, group: int, stays: list[Stay], owed: Iterable[bool]) -> Wanted:
        """Return the filters wanted for a group of sessions, to be added to. `owed`: for each stay, whether the
        sessions are owed what that broker had missed."""
        found = self.moved.setdefault(group, Wanted())
        ends = [*(stay.came for stay in stays[1:]), math.inf]
        times = [(stay.came - self.delay - TOLD, end + TOLD) for stay, end in zip(stays, ends, strict=True)]
        found._stays, found._unserved = stays, [*compress(times, owed)]
        return found

    def owe(self, above: int, until: float) -> None:
        """Note what a former broker may have missed, as in `_owed`."""
        self._owed.append((above, until))

    def add(self, topic_filter: str, at: float, seq: int) -> None:
        """Add a filter that counts for publications from the time `at` on (in seconds of the port's clock), or with
        numbers above `seq`. A known filter keeps the smaller time and the smaller number."""
        known = self._since.get(topic_filter)
        if known is not None:
            self._since[topic_filter] = min(known[0], at), min(known[1], seq)
            return
        self._since[topic_filter] = at, seq
        parts = shared(topic_filter)
        if parts is None:
            self._plain.insert(topic_filter.split("/"), topic_filter)
            self._topics.clear()
            return
        levels = parts.topic_filter.split("/")
        node = self._shared.find(levels)
        if node is None or node.value is None:
            self._shared.insert(levels, [topic_filter])
        else:
            node.value.append(topic_filter)

    def missed(self, topic: str, at: float, seq: int, origin: BrokerRef, sent: Container[BrokerRef]) -> tuple[int, ...]:
        """Return the groups that have missed a publication at their former brokers. `sent` are the brokers that were
        sent it; the clients of its `origin` got it there."""
        return tuple(
            number
            for number, group in self.moved.items()
            if any(seq > above and at <= until for above, until in group._owed)
            and group.wants(topic, at, seq)
            and not group._had(at, origin, sent)
        )

    def doubted(
        self, topic: str, at: float, seq: int, origin: BrokerRef, sent: Container[BrokerRef]
    ) -> tuple[int, ...]:
        """Return the groups that may have missed a publication in doubt. `sent` are the brokers that certainly got it;
        the clients of its `origin` got it there."""
        return tuple(
            number
            for number, group in self.moved.items()
            if group.wants(topic, math.inf, seq) and not group._had(at, origin, sent, doubted=True)
        )

    def _had(self, at: float, origin: BrokerRef, sent: Container[BrokerRef], *, doubted: bool = False) -> bool:
        """Return whether the sessions got a publication at their former brokers, or with what these had missed.
        `doubted`: one of these may lack it, which it was sent perhaps after the sessions had left."""
        if at < min(stay.came for stay in self._stays) - NEAR:
            return True
        if not any(begin <= at and (doubted or at <= end) for begin, end in self._unserved):
            return True
        return any(
            stay.came <= at <= stay.left and (stay.broker in sent or stay.broker == origin) for stay in self._stays
        )

    def wants(self, topic: str, at: float, seq: int) -> bool:
        """Return whether a filter matches that counted for a publication of time `at` and number `seq`."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = self._plain.match(topic)
        return any(self._counted(topic_filter, at, seq) for topic_filter in found)

    def groups(self, topic: str, at: float, seq: int) -> list[str]:
        """Return the matching shared subscriptions that counted for a publication of time `at` and number `seq`."""
        found = (group for groups in self._shared.match(topic) for group in groups)
        return [group for group in found if self._counted(group, at, seq)]

    def _counted(self, topic_filter: str, at: float, seq: int) -> bool:
        since, after = self._since[topic_filter]
        return at >= since or seq > after


class Doubts:
    """Publications that were sent to brokers and may have been lost: these brokers have not acknowledged them."""

    def __init__(self) -> None:
        self.seqs: dict[int, str] = {}
        """The topic of each publication, by sequence number."""
        self.lacking: dict[int, set[BrokerRef]] = {}
        """By sequence number: the brokers that may lack the publication."""
        self.before: list[Published] = []
        """The publications that are older than the log, in order."""
        self.topics: dict[str, int] = {}
        """The last sequence number of each topic."""

    def add(self, frames: Iterable[Published], first: int, broker: BrokerRef) -> None:
        """Add publications that a broker may lack. `first` is the first sequence number in the log; earlier ones are
        kept in `before`."""
        for frame in frames:
            body = frame.body
            fresh = [index for index, seq in enumerate(body.seqs) if seq not in self.seqs]
            self.seqs |= {body.seqs[index]: body.parts[body.which[index]].topic for index in fresh}
            if early := [index for index in fresh if body.seqs[index] < first]:
                self.before.append(frame.of(early))
            for seq in body.seqs:
                self.lacking.setdefault(seq, set()).add(broker)
        self._sort()

    def of(self, broker: BrokerRef) -> Doubts:
        """Return the doubts about one broker."""
        found = Doubts()
        found.join(self, [seq for seq, lacking in self.lacking.items() if broker in lacking])
        return found

    def join(self, others: Doubts, seqs: Iterable[int]) -> None:
        """Add these publications of `others`."""
        fresh = {seq for seq in seqs if seq not in self.seqs}
        for seq in seqs:
            self.seqs[seq] = others.seqs[seq]
            self.lacking.setdefault(seq, set()).update(others.lacking[seq])
        for frame in others.before:
            if indexes := [index for index, seq in enumerate(frame.body.seqs) if seq in fresh]:
                self.before.append(frame.of(indexes))
        self._sort()

    def restore(self, seqs: dict[int, str], before: list[Published], broker: BrokerRef) -> None:
        """Take over what an earlier incarnation of this broker knew of the doubts about another one."""
        self.seqs, self.before = seqs, before
        self.lacking = {seq: {broker} for seq in seqs}
        self._sort()

    def remove(self, upto: int) -> None:
        """Remove the publications up to this number: the broker has them."""
        self.seqs = {seq: topic for seq, topic in self.seqs.items() if seq > upto}
        self.lacking = {seq: lacking for seq, lacking in self.lacking.items() if seq > upto}
        self.before = [frame for frame in self.before if frame.body.seqs[-1] in self.seqs]

    def _sort(self) -> None:
        self.before.sort(key=Published.first)
        self.topics = {}
        for seq, topic in self.seqs.items():
            self.topics[topic] = max(seq, self.topics.get(topic, 0))


class Lag:
    """The catch-up state of one broker that has missed publications."""

    def __init__(self, broker: BrokerRef, place: Place, seq: int, now: float) -> None:
        self.broker = broker
        self.state = State.LOST
        self.since = now
        """When the broker was lost or asked, in seconds of the port's clock."""
        self.place = place
        """Place in the log before which the broker has everything, for its own filters and for adopted sessions."""
        self.taken = seq
        """Sequence number up to which the broker has everything for its own filters."""
        self.answered = 0
        """Sequence number up to which the broker's answers (`Caught`) reach."""
        self.doubts = Doubts()
        """About the broker, and about former brokers of sessions that have come to it."""
        self.cause = Cause.NEW
        self.round = 0
        self.wanted = Wanted()
        self.baselines: dict[str, int] = {}
        """Filters that the broker had when it was lost, each with the number above which it counts."""
        self.reading = place
        """Place in the log at which the next frame begins."""
        self.passed = seq
        """Sequence number up to which everything wanted has been sent."""
        self.serial = 0
        """While ASKED: number of the next `WantedFilters`. While GOING: number of the last frame sent."""
        self.flight = Flight(now)

    @property
    def start(self) -> int:
        """Sequence number up to which the broker has everything (`Missed.start`)."""
        return min([self.taken, *(seq - 1 for seq in self.doubts.seqs)])

    def owed_above(self, seq: int) -> int:
        """Return the number above which the broker is to wait for publications, if live ones begin above `seq`."""
        return seq if self.cause is Cause.NEW else min(seq, self.start)

    def lost(self, frames: Iterable[Published], log: MissedLog, now: float) -> None:
        """Mark the broker as lost. `frames` are the publications that it may not have got."""
        self.state, self.since = State.LOST, now
        if self.cause is Cause.NEW:
            self.cause = Cause.CUT_OFF
        self.doubts.remove(self.answered)
        self._doubt(frames, log)

    def _doubt(self, frames: Iterable[Published], log: MissedLog) -> None:
        """Add publications that the broker may not get."""
        self.doubts.add(frames, log.first, self.broker)
        if late := [seq for seq in self.doubts.seqs if seq >= log.first]:
            self.place = min(self.place, log.place_of(min(late)))

    def fate(self, now: float, heard: float) -> Fate:
        """Return the record of a lost broker that a later incarnation of this broker restores. `heard` is as in
        `Fate`."""
        own = self.doubts.of(self.broker)
        away = self.state is State.LOST
        return Fate(now, self.broker, True, own.before, own.seqs, dict(self.baselines), heard, self.taken, away)

    def restore(self, fate: Fate, log: MissedLog) -> None:
        """Restore the state of a broker that an earlier incarnation of this broker had lost."""
        self.cause = Cause.RESTORED
        self.baselines = fate.baselines
        self.doubts.restore(fate.doubts, fate.before, self.broker)
        self.place = log.place_of(self.start + 1)

    def ask(self, number: int, now: float) -> None:
        """Mark the broker as asked in the round `number`. Sending begins anew at the last answered place."""
        self.state, self.round, self.since, self.flight.progress = State.ASKED, number, now, now
        self.wanted, self.reading, self.passed, self.serial = Wanted(), self.place, self.start, 0
        self.flight.frames.clear()
        self.flight.live.clear()

    def inherit(
        self, wanted: Wanted, doubts: Doubts | None, place: Place, taken: int, served: int, until: float = math.inf
    ) -> None:
        """Add what the broker inherits with sessions that were at an owner before; `wanted` are their filters.

        The owner's `doubts` above `served` become doubts of the broker, as far as the sessions want them. The log is
        read again from `place`, for publications above the owner's `taken` that were published `until` a time. What the
        broker has taken for itself stays taken.
        """
        wanted.owe(taken, until)
        if doubts is not None:
            news = {seq: topic for seq, topic in doubts.seqs.items() if seq > served}
            self.doubts.join(doubts, [seq for seq, topic in news.items() if wanted.wants(topic, math.inf, seq)])
        self.place = self.reading = min(self.place, place)
        self.passed = min([self.passed, self.taken, taken, *(seq - 1 for seq in self.doubts.seqs)])

    def go(self, frames: Iterable[Published], log: MissedLog) -> None:
        """Start to send: the broker has named all its filters. `frames` are the publications on their way to it: they
        are sent again, as others in the log must not overtake them."""
        self.state, self.serial = State.GOING, 0
        self._doubt(frames, log)
        self.reading = min(self.reading, self.place)
        self.passed = min([self.passed, *(seq - 1 for seq in self.doubts.seqs)])

    def skip(self, place: Place, seq: int) -> None:
        """Note that the broker wants nothing of the log up to a place, behind the publication `seq`."""
        self.state, self.serial = State.GOING, 0
        self.reading, self.passed = place, seq

    def caught(self, serial: int, now: float) -> None:
        """Handle the broker's answer that it has all frames up to `serial`."""
        for sent in self.flight.answered(serial, now):
            self.place, self.answered = sent.place, sent.passed
            self.taken, self.flight.progress = max(self.taken, self.answered), now
            self.flight.answers.append((now, self.answered))
