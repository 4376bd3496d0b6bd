"""Sends the heirs of a broker's sessions the publications that the broker (the owner) had missed.

- Heirs need nothing that the owner has taken, or that went to the owner's own clients where it was published: the
  copies of its sessions contain it.
- An incarnation of the owner has missed nothing that was published before its predecessor was over.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from saps.marks import hit
from saps.overlay.delivery.acknowledgements import Acknowledgements
from saps.overlay.delivery.publications import first_seq, select, together
from saps.overlay.frames.calls import Bequeathed, Inherit
from saps.overlay.frames.copies import LONG_AGO
from saps.overlay.frames.delivery import Former, Publish, WantedFilters
from saps.overlay.frames.sessions import Bequest
from saps.overlay.missed.absences import UNNOTICED, Absences
from saps.overlay.missed.flight import Flight
from saps.overlay.missed.lag import TOLD, Cause, Doubts, Lag, State, Stay, Wanted
from saps.overlay.missed.log import Fate, MissedLog, Place, Served
from saps.overlay.port import Port
from saps.overlay.rendezvous.publisher_registry import PublisherRegistry
from saps.overlay.ring.keys import BrokerRef

KEPT = 30.0
"""Seconds for which the lag of an incarnation that is over is kept for the heirs of its sessions: from when a later one
was heard, and after brokers that were cut off have caught up."""
ROUNDS = 16
"""Most complete catch-ups of a broker that are remembered."""
ADOPTED = 5.0
"""Seconds from a broker's death by which its heir has asked for what it had missed, unless it had no sessions."""
NOTHING_BUT_DOUBTS = 1 << 63
"""Above all sequence numbers: a filter that counts from here on counts for publications in doubt only."""


class _Left(NamedTuple):
    """What a broker had missed when it was back."""

    lost: float
    """When it was lost, in seconds of the port's clock."""
    answers: list[tuple[float, int]]
    """`Flight.answers`"""
    place: Place
    start: int
    """`Lag.start`"""
    doubts: Doubts
    baselines: dict[str, int]
    taken: int
    """`Lag.taken`"""
    back: float
    """When it was back, in seconds of the port's clock."""


class Heirs:
    """Serves heirs from the log of one broker, as the publishers' broker."""

    def __init__(
        self,
        port: Port,
        log: MissedLog,
        publishers: PublisherRegistry,
        acknowledgements: Acknowledgements,
        lags: dict[BrokerRef, Lag],
    ) -> None:
        self._port = port
        self._log = log
        self._publishers = publishers
        self._acknowledgements = acknowledgements
        self._lags = lags
        self._over: dict[str, tuple[int, float]] = {}
        """By broker name: the last incarnation that is over, and when that was heard, in seconds of the port's clock.
        Later incarnations have missed nothing before that time."""
        self._begun = 0.0
        """When the log began, in seconds of the port's clock; 0 for a log of earlier incarnations."""
        self._served: dict[BrokerRef, list[tuple[float, Flight]]] = {}
        """By broker: when it was asked for its last complete catch-ups, and their answers."""
        self.absences = Absences()
        """When other brokers were lost, also to an earlier incarnation of this one."""
        self._lost: dict[BrokerRef, float] = {}
        """When each broker that is lost, and not back, was lost, in seconds of the port's clock."""
        self._left: dict[BrokerRef, _Left] = {}
        """What the brokers that are back had missed."""
        self._gone: dict[BrokerRef, float] = {}
        """Since when brokers that are lost are known not to come back, in seconds of the port's clock."""
        self._asked: set[BrokerRef] = set()
        """Owners for whose heirs this broker has been asked."""
        self._needed = -math.inf
        """When a broker that may come back, or was back, was last behind, in seconds of the port's clock."""

    @property
    def awaited(self) -> bool:
        """Whether an heir may still ask for what a broker has missed that was lost just now."""
        recent = (
            lag
            for lag in self._lags.values()
            if lag.state is State.LOST and lag.broker not in self._asked and self._port.now - lag.since < ADOPTED
        )
        return any(lag.doubts.seqs or (lag.baselines and self._log.messages) for lag in recent)

    def is_over(self, broker: BrokerRef) -> None:
        """Record that an incarnation is over, as a later one was heard. The failure detector and the publishers' side
        may both report it; the first report counts."""
        if self._over.get(broker.name, (-1, 0.0))[0] < broker.incarnation:
            self._over[broker.name] = broker.incarnation, self._port.now

    def restore(self, fate: Fate) -> None:
        """Record what an earlier incarnation of this broker knew of a lost broker."""
        if fate.heard > -math.inf:
            self._over[fate.broker.name] = fate.broker.incarnation - 1, fate.heard

    def begin(self) -> None:
        """Note that the log begins."""
        self._begun = self._port.now

    def was_there(self, broker: BrokerRef) -> bool:
        """Return whether a broker was heard before the log began, so that it may have been cut off since."""
        return self._port.first_heard.get(broker.name, (0, math.inf))[1] < self._begun

    @property
    def ever_lost(self) -> set[BrokerRef]:
        """The brokers that were lost since the log began; some may be back."""
        return {*self._lost, *self._left}

    def has_successor(self, broker: BrokerRef) -> bool:
        """Return whether a later incarnation of a broker was heard, perhaps as the first one."""
        if self._port.first_heard.get(broker.name, (0, 0.0))[0] > broker.incarnation:
            return True
        return self._over.get(broker.name, (-1, 0.0))[0] >= broker.incarnation

    def unneeded(self) -> list[Lag]:
        """Return the lags of incarnations that are over, if no heir needs them any more. Brokers that were cut off may
        have their sessions. Call it every second."""
        now, lags = self._port.now, self._lags
        for broker, lag in lags.items():
            if broker not in self._gone and self.has_successor(broker):
                hit("an incarnation that is over was asked what it wants")
                self.gone(lag)
        lost = {broker for broker, lag in lags.items() if lag.state is State.LOST}  # the others were heard after all
        self._gone = {broker: at for broker, at in self._gone.items() if broker in lost}
        if not lags.keys() <= self._gone.keys():
            self._needed = now
        found = [lags[broker] for broker, at in self._gone.items() if now - at >= KEPT]
        if found and now - self._needed < KEPT:
            hit("lag of a former incarnation kept during a cut")
            return []
        return found

    def gone(self, lag: Lag) -> None:
        """Note that an incarnation does not come back."""
        if lag.state is not State.LOST:
            lag.state, lag.since = State.LOST, self._port.now
        self._gone.setdefault(lag.broker, self._port.now)

    @property
    def cut_off(self) -> list[str]:
        """The names of brokers that are cut off from here."""
        lost = (lag.broker for lag in self._lags.values() if lag.state is State.LOST)
        return [each.name for each in lost if not self.has_successor(each)]

    def heard(self, broker: BrokerRef) -> float:
        """Return when an earlier incarnation of this one was over, in seconds of the port's clock; -inf: none was."""
        incarnation, heard = self._over.get(broker.name, (broker.incarnation, -math.inf))
        return heard if broker.incarnation > incarnation else -math.inf

    def clear(self) -> None:
        """Forget everything, as the log has ended."""
        self._over.clear()
        self.absences.clear()
        self._lost.clear()
        self._left.clear()
        self._served.clear()
        self._gone.clear()
        self._asked.clear()

    def lost(self, broker: BrokerRef) -> None:
        """Record when a broker was lost."""
        self._lost.setdefault(broker, self._port.now)
        self.absences.began(broker, self._port.now)

    def returned(self, lag: Lag) -> None:
        """Record what a lost broker that is back has missed, before it is sent: the sessions that have moved away from
        it meanwhile have missed the same, and the brokers that have them now may be back later."""
        live = (seq for each in self._acknowledgements.unacknowledged(lag.broker) for seq in each.body.seqs)
        lag.flight.before = min([self._publishers.seq, *(seq - 1 for seq in live if seq not in lag.doubts.seqs)])
        self.absences.ended(lag.broker, self._port.now)
        if (lost := self._lost.pop(lag.broker, None)) is not None:
            doubts = Doubts()
            doubts.join(lag.doubts, [*lag.doubts.seqs])
            self._left[lag.broker] = _Left(
                lost, lag.flight.answers, lag.place, lag.start, doubts, lag.baselines, lag.taken, self._port.now
            )

    def restore_served(self, served: Served) -> None:
        """Record a catch-up with an earlier incarnation of this broker."""
        flight = Flight()
        flight.answers, flight.before = [(served.at, served.upto)], served.before
        self._served.setdefault(served.broker, []).append((served.asked, flight))

    def served(self) -> list[Served]:
        """Return what a later incarnation of this broker has to know of the catch-ups."""
        return [
            Served(flight.answers[-1][0], broker, asked, flight.answers[-1][1], flight.before)
            for broker, seen in self._served.items()
            for asked, flight in seen
        ]

    def done(self, broker: BrokerRef) -> int:
        """Return the sequence number up to which a broker has everything; 0 if that is unknown."""
        return max((flight.answers[-1][1] for _, flight in self._served.get(broker, ())), default=0)

    def caught_up(self, lag: Lag) -> Served:
        """Record that a broker has everything, also for the sessions that had come to it when it was asked. Returns the
        record for a later incarnation of this broker."""
        lag.flight.answers.append((self._port.now, lag.passed))
        seen = self._served.setdefault(lag.broker, [])
        seen.append((lag.since, lag.flight))
        del seen[:-ROUNDS]
        return Served(self._port.now, lag.broker, lag.since, lag.passed, lag.flight.before)

    def adopted(self, lag: Lag, frame: WantedFilters) -> None:
        """Handle a returned broker's report that sessions have come to it, perhaps during the cut, by adoption or
        because their clients have moved: the broker inherits what their former brokers have missed."""
        stays = [self._stay(lag, *each) for each in pairwise([*frame.former, frame.former[-1]])]
        for number, former in enumerate(frame.former):
            if former.owed and former.broker.name != self._port.me.name:
                self._inherits(lag, frame, number, stays)

    def _inherits(self, lag: Lag, frame: WantedFilters, number: int, stays: list[Stay]) -> None:
        """Add what a broker inherits with a group of sessions from one of their former brokers."""
        former, stay, after = frame.former[number], stays[number], stays[min(number + 1, len(stays) - 1)]
        owner, filters = former.broker, [each.topic_filter for each in frame.filters]
        served, sure = max(map(self._served_at, stays))
        owed = [each.owed for each in frame.former]
        left, at = self._left.get(owner), lag.since - former.age
        if left is not None and left.lost - UNNOTICED <= at <= _end(left.answers):
            hit("moved away from a broker that is back")
            wanted = lag.wanted.of(frame.number, stays, owed)
            for topic_filter in filters:
                wanted.add(topic_filter, math.inf, max(served, left.baselines.get(topic_filter, self._log.earlier)))
            lag.inherit(wanted, left.doubts, left.place, max(served, left.start), sure)
            return
        missed = self._lags.get(owner)
        first, _ = self._port.first_heard.get(owner.name, (math.inf, 0.0))
        if missed is not None or first > owner.incarnation:
            wanted, (place, taken) = lag.wanted.of(frame.number, stays, owed), self._missed(owner)
            self._owed(owner, filters, wanted, served)
            until = after.came + TOLD if missed is None else math.inf  # later its heir got what was published
            doubts = None if missed is None else missed.doubts
            lag.inherit(wanted, doubts, place, max(served, taken), sure, until)
        elif late := self._acknowledgements.late(owner, stay.left, stay.left + lag.wanted.delay):
            # it was never lost, or is served
            hit("moved away from a broker that got publications late")
            doubts, wanted = Doubts(), lag.wanted.of(frame.number, stays, owed)
            doubts.add(late, self._log.first, owner)
            for topic_filter in filters:
                wanted.add(topic_filter, math.inf, NOTHING_BUT_DOUBTS)
            place = self._log.place_of(min(doubts.seqs))
            lag.inherit(wanted, doubts, place, NOTHING_BUT_DOUBTS, sure)

    def _served_at(self, stay: Stay) -> tuple[int, int]:
        """Return the number up to which a broker has got all that it had missed, in catch-ups for which it was asked
        when sessions were there, by the time that they left it; and the number up to which nothing is in doubt any
        more: what went to it live during a catch-up may be."""
        lag, seen = self._lags.get(stay.broker), [*self._served.get(stay.broker, ())]
        if lag is not None:
            seen.append((lag.since, lag.flight))
        found = 0, 0
        for asked, flight in seen:
            place = bisect_right(flight.answers, (stay.left, math.inf))
            if place and stay.came <= asked <= flight.answers[place - 1][0]:
                upto = flight.answers[place - 1][1]
                found = max(found, (upto, min(upto, flight.before)))
        return found

    def _stay(self, lag: Lag, former: Former, heir: Former) -> Stay:
        """Return when sessions came to a former broker, at the latest, and left it for `heir`, at the earliest: what is
        sent twice they know, and what they lack is lost. The last broker is its own `heir`."""
        came, gone = lag.since + lag.wanted.delay - former.came, lag.since - former.age
        if former is heir:
            gone = math.inf  # they are still there, and get what is published from now on
        elif former.age >= LONG_AGO / 2:  # it was taken for dead
            gone += LONG_AGO  # the copies lack what it got later, if it was lost to the heir only
            if former.broker.name == self._port.me.name:
                if former.broker != self._port.me:
                    gone = math.inf  # an earlier incarnation of this broker: its own clients got what it published
            elif (lost := self.absences.lost_at(former.broker, lag.since - heir.came)) is not None:
                gone = lost
        return Stay(former.broker, came, gone)

    def bequeath(self, inherit: Inherit) -> Bequeathed:
        """Send an heir this broker's publications that the owner has missed. Returns the number of `Bequest` frames
        sent."""
        owner, me = inherit.owner, self._port.me.name
        self._asked.add(owner)
        bodies = self.missed_by(owner, inherit.topic_filters) if owner.name != me else []
        frames = 0
        for origin, part in groupby(bodies, key=lambda body: self._log.incarnation_of(first_seq(body))):
            for body in together(part):
                frames += 1
                self._port.send(inherit.heir, Bequest(inherit.serial, inherit.turn, body, origin))
        return Bequeathed(me, frames)

    def missed_by(self, owner: BrokerRef, topic_filters: Iterable[str]) -> list[Publish]:
        """Return the publications that an owner may not have got, in order of their sequence numbers."""
        lag, left, wanted = self._lags.get(owner), self._just_back(owner), Wanted()
        doubts: Doubts | None
        if left is not None:
            hit("heir of a broker that is back")
            place, taken, doubts, since = left.place, left.taken, left.doubts, self.heard(owner)
            for topic_filter in topic_filters:
                wanted.add(topic_filter, math.inf, left.baselines.get(topic_filter, self._log.earlier))
        else:
            place, taken = self._missed(owner)
            doubts, since = None if lag is None else lag.doubts, self._since(owner, lag)
            self._owed(owner, topic_filters, wanted)
        if doubts is None:
            frames, unsure = self._acknowledgements.unacknowledged(owner), set[int]()
        else:
            frames, unsure = doubts.before, set(doubts.seqs)
        bodies = [frame.body for frame in frames]
        known = {seq for body in bodies for seq in body.seqs}
        for record, _ in self._log.read(place):
            indexes = [
                index
                for index, (number, seq) in enumerate(zip(record.body.which, record.body.seqs, strict=True))
                if (seq in unsure or (seq > taken and owner not in self._log.went_to(record.sent[number])))
                and seq not in known and record.at >= since
                and wanted.wants(record.body.parts[number].topic, record.at, seq)
            ]  # fmt: skip
            if indexes:
                bodies.append(select(record.body, indexes))
        bodies.sort(key=first_seq)
        return bodies

    def _just_back(self, owner: BrokerRef) -> _Left | None:
        """Return what an owner had missed if it is back since a short time: its sessions may have left it for the heir,
        which took it for dead, before that came."""
        lag, left = self._lags.get(owner), self._left.get(owner)
        if left is None or self._port.now - left.back >= UNNOTICED or (lag is not None and lag.state is State.LOST):
            return None
        return left

    def _since(self, owner: BrokerRef, lag: Lag | None) -> float:
        """Return the earliest time at which a publication that the owner has missed can have been published, in seconds
        of the port's clock."""
        first, _ = self._port.first_heard.get(owner.name, (math.inf, 0.0))
        since = -math.inf if lag is not None or owner.incarnation < first else self._port.now - UNNOTICED
        return max(since, self.heard(owner))

    def _missed(self, owner: BrokerRef) -> tuple[Place, int]:
        """Return where in the log, and above which sequence number, the publications that an owner has missed begin.

        An owner without a lag had all publications of this broker's earlier incarnations: else their log would say so.
        """
        lag = self._lags.get(owner)
        if lag is not None:
            return lag.place, lag.taken
        taken = max(self._log.earlier, self.done(owner), self._log.first - 1)
        return self._log.place_of(taken + 1), taken

    def _owed(self, owner: BrokerRef, topic_filters: Iterable[str], wanted: Wanted, served: int = 0) -> Wanted:
        """Add to `wanted` the filters of an owner's sessions, each with the number above which it counts, `served` at
        least. Returns `wanted`."""
        lag = self._lags.get(owner)
        if lag is None:
            had, least = self._publishers.baselines(owner), max(served, self._missed(owner)[1])
        else:
            had, least = lag.baselines, served
        for topic_filter in topic_filters:
            if topic_filter in had:
                wanted.add(topic_filter, math.inf, max(had[topic_filter], least))
            elif lag is not None and lag.cause is Cause.RESTORED and not served:
                # announced to an earlier incarnation, at an unknown time
                wanted.add(topic_filter, self._since(owner, lag), NOTHING_BUT_DOUBTS)
            else:
                wanted.add(topic_filter, math.inf, max(least, self._log.earlier))
        return wanted


def _end(answers: Sequence[tuple[float, int]]) -> float:
    """Return when a broker gave its last answer so far."""
    return answers[-1][0] if answers else math.inf
