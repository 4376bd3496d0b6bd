"""What is known of a broker that has missed something: how far it has got, and what it wants."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Container, Iterable
from enum import Enum

from saps.local.subscriptions import FilterNode
from saps.overlay.delivery.publications import first_seq, select
from saps.overlay.frames.delivery import MadeUp, Publish
from saps.overlay.missed.log import Fate, MissedLog, Place
from saps.overlay.ring.keys import BrokerRef
from saps.topics import shared


class State(Enum):
    """Of a broker that has missed something."""

    LOST = "lost"
    ASKED = "asked"
    GOING = "going"


class Wanted:
    """Filters, and from when on each counts: a moment, or a sequence number."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, int]] = {}
        self._plain = FilterNode()
        self._shared = FilterNode()
        self._topics: dict[str, list[str]] = {}
        """The plain filters that match a topic."""
        self.adopted: dict[BrokerRef, Wanted] = {}
        """Wanted too, if the broker has not been sent it: whoever wants this has adopted its sessions."""

    def of(self, owner: BrokerRef) -> Wanted:
        """What is wanted because the broker has missed it."""
        return self.adopted.setdefault(owner, Wanted())

    def add(self, topic_filter: str, at: float, seq: int) -> None:
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

    def inherits(self, topic: str, at: float, seq: int, sent: Container[BrokerRef]) -> bool:
        """Has a broker whose sessions are adopted missed it? `sent`: who has been sent it."""
        return any(owner not in sent and wanted.wants(topic, at, seq) for owner, wanted in self.adopted.items())

    def wants(self, topic: str, at: float, seq: int) -> bool:
        """Does a filter match that counted then?"""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = self._plain.match(topic)
        return any(self._counted(topic_filter, at, seq) for topic_filter in found)

    def groups(self, topic: str, at: float, seq: int) -> list[str]:
        """The shared subscriptions that match and counted then."""
        found = (group for groups in self._shared.match(topic) for group in groups)
        return [group for group in found if self._counted(group, at, seq)]

    def _counted(self, topic_filter: str, at: float, seq: int) -> bool:
        since, after = self._since[topic_filter]
        return at >= since or seq > after


class Doubts:
    """Publications that went to a broker, perhaps in vain."""

    def __init__(self) -> None:
        self.seqs: dict[int, str] = {}
        """With their topics."""
        self.before: list[Publish] = []
        """Those of them that are not in the log."""
        self.topics: dict[str, int] = {}
        """The last number of each topic."""

    def add(self, bodies: Iterable[Publish], first: int) -> None:
        """These, too. `first`: the first number in the log."""
        for body in bodies:
            fresh = [index for index, seq in enumerate(body.seqs) if seq not in self.seqs]
            self.seqs |= {body.seqs[index]: body.parts[body.which[index]].topic for index in fresh}
            if early := [index for index in fresh if body.seqs[index] < first]:
                self.before.append(select(body, early))
        self.before.sort(key=first_seq)
        self.topics = {}
        for seq, topic in self.seqs.items():
            self.topics[topic] = max(seq, self.topics.get(topic, 0))

    def remove(self, upto: int) -> None:
        """It has those up to this number."""
        self.seqs = {seq: topic for seq, topic in self.seqs.items() if seq > upto}
        self.before = [body for body in self.before if body.seqs[-1] in self.seqs]


class Lag:
    """A broker that has missed something."""

    def __init__(self, broker: BrokerRef, place: Place, seq: int, now: float) -> None:
        self.broker = broker
        self.state = State.LOST
        self.since = now
        """When it was lost, or asked."""
        self.place = place
        """All before it has been taken, also of what is wanted for adopted sessions."""
        self.taken = seq
        """The last sequence number up to which it has all for filters of its own."""
        self.answered = 0
        """Up to this one it has said that it has taken it."""
        self.doubts = Doubts()
        self.restored = False
        """An earlier life of this broker had lost it."""
        self.round = 0
        self.wanted = Wanted()
        self.baselines: dict[str, int] = {}
        """Filters it had when it was lost, and the number from which on, exclusively, each counts."""
        self.reading = place
        self.passed = seq
        """Of what is published up to this number, all it wants is sent."""
        self.serial = 0
        """Of the next part of its wishes, then of the last frame sent."""
        self.unanswered: deque[tuple[MadeUp, Place, int]] = deque()
        """With `place` and `taken` once they are answered."""
        self.progress = now
        """When it was asked, sent something after a pause, or answered."""

    @property
    def start(self) -> int:
        """As in `Missed`."""
        return min([self.taken, *(seq - 1 for seq in self.doubts.seqs)])

    def lost(self, bodies: Iterable[Publish], log: MissedLog, now: float) -> None:
        """It is taken for dead, and may not have these."""
        self.state, self.since = State.LOST, now
        self.doubts.remove(self.answered)
        self.doubts.add(bodies, log.first)
        if late := [seq for seq in self.doubts.seqs if seq >= log.first]:
            self.place = min(self.place, log.place_of(min(late)))

    def fate(self, now: float) -> Fate:
        """As a later life of this broker finds it."""
        return Fate(now, self.broker, True, list(self.doubts.before), dict(self.doubts.seqs), dict(self.baselines))

    def restore(self, fate: Fate) -> None:
        """It was lost to an earlier life of this broker."""
        self.restored = True
        self.baselines = fate.baselines
        self.doubts.seqs = fate.doubts
        self.doubts.before = fate.before
        self.doubts.add((), 0)

    def ask(self, number: int, now: float) -> None:
        """It is asked what it wants, in the round of this number. What is sent begins anew."""
        self.state, self.round, self.since, self.progress = State.ASKED, number, now, now
        self.wanted, self.reading, self.passed, self.serial = Wanted(), self.place, self.start, 0
        self.unanswered.clear()

    def inherit(self, owner: BrokerRef, doubts: Doubts | None, place: Place, taken: int) -> None:
        """It has adopted the sessions of a broker: what that one has perhaps not got is in doubt here, too. Reads the
        log from `place` on, behind what that one has `taken`; what it has taken for itself stays taken."""
        wanted = self.wanted.of(owner)
        if doubts is not None:
            fresh = {seq: topic for seq, topic in doubts.seqs.items() if seq not in self.doubts.seqs}
            seqs = {seq: topic for seq, topic in fresh.items() if wanted.wants(topic, math.inf, seq)}
            self.doubts.seqs |= seqs
            for body in doubts.before:
                if indexes := [index for index, seq in enumerate(body.seqs) if seq in seqs]:
                    self.doubts.before.append(select(body, indexes))
            self.doubts.add((), 0)
        self.place = self.reading = min(self.place, place)
        self.passed = min([self.passed, self.taken, taken, *(seq - 1 for seq in self.doubts.seqs)])

    def go(self) -> None:
        """It has said what it wants."""
        self.state, self.serial = State.GOING, 0

    def caught(self, serial: int, now: float) -> None:
        """It has what was sent up to this frame."""
        while self.unanswered and self.unanswered[0][0].serial <= serial:
            _, self.place, self.answered = self.unanswered.popleft()
            self.taken, self.progress = max(self.taken, self.answered), now
