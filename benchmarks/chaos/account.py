"""The book of all publications and arrivals, and the judgement over it. Pure: it is told the time.

A message is owed to a subscriber unless a fault that could *lose* it between the brokers of its publisher and of the
subscriber was there between its publication and its acknowledgement: docs/guarantees.md promises nothing for those. It
is owed once and in order unless such a fault, or one that sessions outlive, *touched* the two. A fault is there from
its strike until messages flow everywhere again, and go on to. What is not owed is counted apart.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from benchmarks.chaos.schedule import Kind, Step
from benchmarks.switchover import record

FLIGHT = 1.0
"""Seconds a QoS 0 message, which nobody acknowledges, is taken to be under way."""
ROAMING = "*"
"""Stands for the broker of a subscriber that goes from one to the next: whatever is touched, it is."""
DETAILS = 20
"""How many wrong deliveries of QoS 1 and 2 are kept with their details."""


class Reach(NamedTuple):
    """Whom a fault touches: all pairs with one of `brokers`, and those with one end in each of two `sides`."""

    brokers: frozenset[str] = frozenset()
    sides: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    kept: bool = False
    """Sessions outlive it: QoS 1 and 2 published elsewhere than at `brokers` comes, later, perhaps twice."""

    def touches(self, a: str, b: str) -> bool:
        """What is published at `a` may not reach `b`, or not as it should."""
        one, other = self.sides
        if b == ROAMING:
            return bool(self.brokers) or a in one or a in other
        return bool({a, b} & self.brokers) or (a in one and b in other) or (a in other and b in one)

    def loses(self, a: str, b: str) -> bool:
        """What is published at `a` may never reach `b`."""
        return self.touches(a, b) and (not self.kept or a in self.brokers)


def reach_of(step: Step, brokers: Iterable[str], sides: tuple[frozenset[str], frozenset[str]]) -> Reach:
    """Whom a fault touches among these brokers, in two clusters. A short pause, a slow link, a clock that jumps, and
    whatever befalls the programs of OpenFlow multicast touch nobody: everything has to arrive, later. Nor does a slow
    disk, a broker without descriptors for new connections, or one that joins and leaves without devices of its own.
    Nothing is lost while a database is away, but clients that wait for it are disconnected, and publish again."""
    match step.kind:
        case Kind.RING | Kind.DATABASE:
            return Reach(sides=(frozenset(brokers), frozenset(brokers)), kept=True)
        case Kind.PARTITION | Kind.CUT | Kind.ONE_WAY | Kind.LOSS | Kind.MANGLE:
            return Reach(sides=sides, kept=True)
        case Kind.KILL | Kind.REBOOT | Kind.WIPE | Kind.GONE | Kind.DAMAGE | Kind.FREEZE | Kind.POWER:
            return Reach(frozenset({step.broker}), kept=True)
        case Kind.BLACKOUT:
            return Reach(frozenset(brokers), kept=True)
        case Kind.PAUSE | Kind.SLOW | Kind.CLOCK | Kind.CONTROLLER | Kind.OFGATE | Kind.SPARK:
            return Reach()
        case Kind.STROBE | Kind.SYNC | Kind.DESCRIPTORS | Kind.GUEST:
            return Reach()
    return Reach(frozenset({step.broker}))


class Incident(msgspec.Struct, kw_only=True):
    """A fault that was carried out. Times in seconds from the beginning of the run."""

    step: Step
    reach: Reach
    struck: float
    repaired: float = math.inf
    recovered: float = math.inf
    """The first moment after the repair from which all that was published arrived everywhere."""
    flowing: float = math.inf
    """When the newest messages of all publishers had arrived everywhere."""
    outages: list[float] = []
    """For each publisher and subscriber it did not touch, the longest time in which nothing arrived."""


class Stream:
    """One publisher's messages, numbered from 1."""

    def __init__(self, name: str, broker: str, qos: int) -> None:
        self.name, self.broker, self.qos = name, broker, qos
        self.handed = array("d")
        """When each message was first handed to the connection, or should have been if there was none."""
        self.done = array("d")
        """When each was acknowledged; infinite until then, and `FLIGHT` later with QoS 0."""

    @property
    def last(self) -> int:
        """The number of the last message."""
        return len(self.handed)

    def hand(self, now: float) -> int:
        """A new message: its number."""
        self.handed.append(now)
        self.done.append(math.inf if self.qos else now + FLIGHT)
        return len(self.handed)

    def acknowledged(self, number: int, now: float) -> None:
        """PUBACK or PUBREC has come."""
        self.done[number - 1] = min(now, self.done[number - 1])


class Arrivals(record.Flow):
    """One stream at one subscriber."""

    __slots__ = ("again", "late")

    def __init__(self) -> None:
        super().__init__(1)
        self.again: list[tuple[int, float]] = []
        """Numbers that came once more, and when."""
        self.late: list[tuple[int, float]] = []
        """Numbers that came for the first time after a later one, and when."""

    def _take(self, number: int) -> None:
        late, again = self.out_of_order, self.duplicated
        super()._take(number)
        if self.out_of_order > late:
            self.late.append((number, self.arrived))
        elif self.duplicated > again:
            self.again.append((number, self.arrived))

    def without(self, last: int) -> list[int]:
        """Those up to `last` that have not come."""
        return [*sorted(number for number in self.missing if number <= last), *range(self.last + 1, last + 1)]


class Count(msgspec.Struct, kw_only=True):
    """What became of the messages of one QoS."""

    qos: int
    published: int = 0
    delivered: int = 0
    """At one subscriber each; what came twice counts once."""
    lost: int = 0
    doubled: int = 0
    disordered: int = 0
    unowed_lost: int = 0
    """Not delivered, and not owed: a fault had cut the two off from each other, or ended one."""
    unowed_doubled: int = 0
    unowed_disordered: int = 0


class Came:
    """All that came to one subscriber, in order."""

    def __init__(self) -> None:
        self.streams = array("I")
        """Each one's place among `names`."""
        self.numbers = array("I")
        self.times = array("d")
        self.names: dict[str, int] = {}

    def add(self, stream: str, number: int, now: float) -> None:
        """One more."""
        self.streams.append(self.names.setdefault(stream, len(self.names)))
        self.numbers.append(number)
        self.times.append(now)


def _place(number: int, absent: Sequence[int], last: int) -> str:
    """Where in its stream a lost message stood (after Jepsen's NATS test): `absent` are all that did not come."""
    index = bisect_left(absent, number)
    if absent[index] == index + 1:
        return "beginning"
    return "end" if last - number == len(absent) - 1 - index else "middle"


class Recorder:
    """Of all streams at all subscribers."""

    def __init__(
        self, streams: Iterable[Stream], subscribers: Iterable[tuple[str, str]], history: dict[str, Came] | None = None
    ) -> None:
        """`subscribers`: name and broker of each. All have their SUBACK before the first publication. `history`: gets
        every arrival, by subscriber."""
        self.streams = {stream.name: stream for stream in streams}
        self.brokers = dict(subscribers)
        self.flows = {(name, stream): Arrivals() for name in self.brokers for stream in self.streams}
        self.incidents: list[Incident] = []
        self.anew: dict[str, list[float]] = {}
        """When subscribers found no session where they connected, by name."""
        self._apart: dict[str, list[tuple[float, Incident]]] = {}
        """The cuts in which they did, each with the time up to which they had got all, by name."""
        self._last: dict[str, float] = {}
        """When the last message came to each subscriber."""
        self.ends = frozenset({Kind.WIPE, Kind.GONE})
        """The faults after which a broker has nothing of what it kept for those beyond a cut."""
        self.details: list[str] = []
        self.places: Counter[str] = Counter()
        """From where in their streams the owed messages of QoS 1 and 2 are lost: beginning, middle, end."""
        self.history = history

    def arrived(self, subscriber: str, stream: str, number: int, now: float) -> None:
        """A message has come. Raises `KeyError` or `ValueError` if nobody published it."""
        if not 0 < number <= self.streams[stream].last:
            raise ValueError(f"{stream} #{number} was never published")
        self.flows[subscriber, stream].take([number], now)
        self._last[subscriber] = now
        if self.history is not None:
            self.history.setdefault(subscriber, Came()).add(stream, number, now)

    def began_anew(self, subscriber: str, now: float) -> None:
        """A subscriber found no session where it connected. What waited for it in the other one may end with that."""
        self.anew.setdefault(subscriber, []).append(now)
        had = self._last.get(subscriber, 0.0)
        self._apart.setdefault(subscriber, []).extend((min(had, cut.struck), cut) for cut in self._between(now, now))

    def watch(self, now: float) -> None:
        """Look for outages from now on."""
        for flow in self.flows.values():
            flow.since(now)

    def strike(self, step: Step, reach: Reach, now: float) -> Incident:
        """A fault comes now."""
        incident = Incident(step=step, reach=reach, struck=now)
        self.incidents.append(incident)
        return incident

    def close(self, incidents: Sequence[Incident], recovered: float, now: float) -> None:
        """After these, which overlapped, all flows again now; what was published since `recovered` has arrived."""
        outages = [
            max(flow.gap, now - flow.arrived)
            for stream, subscriber, flow in self._all()
            if self.brokers[subscriber] != ROAMING
            and not any(each.reach.touches(stream.broker, self.brokers[subscriber]) for each in incidents)
        ]
        for incident in incidents:
            incident.recovered, incident.flowing, incident.outages = recovered, now, outages

    def complete(self, upto: dict[str, int]) -> bool:
        """Of each stream named, all up to a number has been acknowledged, and has come unless it is not owed."""
        return all(done < math.inf for name, last in upto.items() for done in self.streams[name].done[:last]) and (
            self.all_come(upto)
        )

    def all_come(self, upto: dict[str, int]) -> bool:
        """Of each stream named, all up to a number has come unless it is not owed."""
        return not any(
            self.owed(self.streams[name], subscriber, n)
            for name, last in upto.items()
            for subscriber in self.brokers
            for n in self.flows[subscriber, name].without(last)
        )

    def owed(self, stream: Stream, subscriber: str, number: int) -> bool:
        """The message has to come, once and in order."""
        begin, end = stream.handed[number - 1], stream.done[number - 1]
        how = Reach.loses if stream.qos else Reach.touches
        if end == math.inf or self._touched(how, stream, subscriber, begin, end):
            return False
        return not any(
            each.step.kind in self.ends
            and stream.broker in each.reach.brokers
            and begin <= each.struck <= cut.recovered
            for cut in self._between(begin, end)
            if cut.reach.touches(stream.broker, self.brokers[subscriber])
            for each in self.incidents
        )

    def may_begin_anew(self, client: str, now: float) -> bool:
        """A client that goes to a broker that is cut off from its own may find no session there: nobody promises
        one. Of its two sessions one ends after the cut, with what has come to it alone."""
        return self.brokers.get(client) == ROAMING and any(True for _ in self._between(now, now))

    def _between(self, begin: float, end: float) -> Iterator[Incident]:
        """Yield the cuts that were there in a time."""
        for each in self.incidents:
            if (
                (any(each.reach.sides) or each.step.kind is Kind.SWITCH)
                and each.step.kind is not Kind.DATABASE
                and each.struck <= end
                and begin <= each.recovered
            ):
                yield each

    def last_gap(self, upto: dict[str, int], since: float) -> float:
        """When the last of these messages was published that has not come somewhere; 0 if all since `since` have."""
        found = 0.0
        for (_, name), flow in self.flows.items():
            missing = [number for number in flow.missing if number <= upto.get(name, 0)]
            handed = self.streams[name].handed[max(missing) - 1] if missing else 0.0
            found = max(found, handed if handed >= since else 0.0)
        return found

    def judge(self) -> list[Count]:
        """The counts of each QoS; the first wrong deliveries of QoS 1 and 2 go to `details`."""
        counts = {qos: Count(qos=qos) for qos in sorted({stream.qos for stream in self.streams.values()})}
        for stream in self.streams.values():
            counts[stream.qos].published += stream.last
        for stream, subscriber, flow in self._all():
            count = counts[stream.qos]
            count.delivered += flow.delivered
            absent = flow.without(stream.last)
            for number in absent:
                if self.owed(stream, subscriber, number):
                    count.lost += 1
                    place = _place(number, absent, stream.last)
                    self.places[place] += bool(stream.qos)
                    self._detail(f"lost from the {place}", stream, subscriber, number)
                else:
                    count.unowed_lost += 1
            wrong, unowed = self._odd("doubled", stream, subscriber, flow.again)
            count.doubled, count.unowed_doubled = count.doubled + wrong, count.unowed_doubled + unowed
            wrong, unowed = self._odd("out of order", stream, subscriber, flow.late)
            count.disordered, count.unowed_disordered = count.disordered + wrong, count.unowed_disordered + unowed
        return list(counts.values())

    def _odd(self, what: str, stream: Stream, subscriber: str, came: Sequence[tuple[int, float]]) -> tuple[int, int]:
        """How many of these came as they should not have, and how many as nobody promised otherwise."""
        # A roaming subscriber drops its connections, at times before the broker has read its PUBACK.
        repeats = what == "doubled" and stream.qos == 1 and self.brokers[subscriber] == ROAMING
        wrong = 0
        for number, at in came:
            begin, end = stream.handed[number - 1], stream.done[number - 1]
            # A copy of QoS 1 may be the repetition for a client that comes back: before what is new arrives everywhere.
            touched = self._touched(Reach.touches, stream, subscriber, at, at, flowing=stream.qos == 1)
            touched = touched or self._touched(Reach.touches, stream, subscriber, begin, end)
            if end < math.inf and not (touched or repeats):
                wrong += 1
                self._detail(what, stream, subscriber, number)
        return wrong, len(came) - wrong

    def _touched(
        self,
        how: Callable[[Reach, str, str], bool],
        stream: Stream,
        subscriber: str,
        begin: float,
        end: float,
        *,
        flowing: bool = False,
    ) -> bool:
        """A fault was there in a time, and did this to the two. `flowing`: it is over when the newest have arrived."""
        at = self.brokers[subscriber]
        if any(since <= end and begin <= cut.recovered for since, cut in self._apart.get(subscriber, ())):
            return True
        # Faults that overlap are over together, before the next ones come: those of a time stand side by side.
        for number in range(bisect_right(self.incidents, end, key=lambda each: each.struck) - 1, -1, -1):
            incident = self.incidents[number]
            if (incident.flowing if flowing else incident.recovered) < begin:
                return False
            if how(incident.reach, stream.broker, at):
                return True
        return False

    def _detail(self, what: str, stream: Stream, subscriber: str, number: int) -> None:
        if stream.qos and len(self.details) < DETAILS:
            handed, done = stream.handed[number - 1], stream.done[number - 1]
            self.details.append(
                f"{what}: {stream.name} #{number} (QoS {stream.qos}) at {subscriber}, {handed:.2f} to {done:.2f} s"
            )

    def _all(self) -> Iterator[tuple[Stream, str, Arrivals]]:
        for (subscriber, name), flow in self.flows.items():
            yield self.streams[name], subscriber, flow
