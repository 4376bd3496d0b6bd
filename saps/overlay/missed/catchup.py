"""Sends brokers that were cut off the publications that they missed, from the log, beside live traffic.

1. A broker is **lost**: declared dead. From now on this broker logs its publications with QoS 1 and 2, and their
   receivers (`saps.overlay.missed.log`).
2. The broker is heard again in the same incarnation. It is **asked** (`Missed`) for its filters and their ages
   (`WantedFilters`).
3. The broker is **going** on. It is sent (`MadeUp`) the logged publications that did not go to it and match a filter
   that it had at the time. They leave in order and at a pace (`saps.overlay.missed.sending`), some frames ahead of its
   answers (`Caught`).
4. A topic is live for the broker again once all its logged publications are sent. Until then new publications to the
   topic go through the log, too.

A broker that restarts continues the log of its earlier incarnation if the log is in files: it asks all brokers that the
earlier incarnation had lost. Publications of that incarnation keep their origin and numbers, so that no broker delivers
one twice.

Two brokers without links to each other may be cut off unnoticed. So after a cut all brokers are told that a log exists
(`Missing`). Each broker that announces a filter unknown here is asked, once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence, Set

import msgspec

from saps.marks import hit
from saps.overlay.delivery.multicast import Multicast
from saps.overlay.delivery.order import Inbox
from saps.overlay.delivery.publications import unaddressed
from saps.overlay.frames.calls import Inherit, Missing
from saps.overlay.frames.delivery import Caught, CaughtUp, MadeUp, Missed, WantedFilters
from saps.overlay.missed.heirs import Heirs
from saps.overlay.missed.lag import TOLD, Cause, Lag, State
from saps.overlay.missed.log import Fate, Head
from saps.overlay.missed.published import Published
from saps.overlay.missed.returned import Returned
from saps.overlay.missed.segments import Segment
from saps.overlay.missed.sending import Sending, Share
from saps.overlay.port import Bodies, Handlers, Port
from saps.overlay.rendezvous.publisher_registry import PublisherRegistry
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.rendezvous.subscriber_registry import Subscriptions
from saps.overlay.ring.keys import ALL_BROKERS, BrokerRef
from saps.routing.batch import Batch
from saps.topics import matches

logger = logging.getLogger(__name__)

LINGER = 30.0
"""Seconds for which the log continues when no broker is lost or behind: some may have been cut off unnoticed."""
LOOK = 1.0
"""Seconds after which an unanswered frame is repeated."""
ASK_ALL = 6.0
"""Seconds from the end of a cut until all brokers are told: by then the rings should have merged."""
TELL_AGAIN = 1.0
"""Seconds until a broadcast that did not reach all brokers is repeated; doubled each time, up to `LINGER`."""


class CatchUp:
    """Catch-up at one broker: as the publishers' broker (log, lags, sending) and as the returned broker."""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        multicast: Multicast,
        publishers: PublisherRegistry,
        inbox: Inbox,
        subscriptions: Subscriptions,
        share: Share,
        lagging: Callable[[], bool],
    ) -> None:
        """`share` is `saps.overlay.groups.Sharing.publish`, `lagging` returns `saps.mesh.Local.lagging`. Sets
        `catch_up` of `multicast` and `publishers` to this object."""
        self._port = port
        self._calls = calls
        self._publishers = publishers
        self._acknowledgements = multicast.acknowledgements
        self.log = multicast.missed
        self.lags: dict[BrokerRef, Lag] = {}
        self._former: set[str] = set()
        """Members of the mesh of an earlier incarnation."""
        self._known: set[BrokerRef] = set()
        """Brokers that have caught up completely since the last cut ended, and the rings have merged."""
        self.heirs = Heirs(port, multicast.missed, publishers, multicast.acknowledgements, self.lags)
        self._rounds = 0
        self._told = 0, 0.0
        """The round in which all brokers were last told, and its time in seconds of the port's clock."""
        self._telling = False
        self._event = -math.inf
        """When a broker was last known to be lost or behind, in seconds of the port's clock; -inf while `_look` does
        not run."""
        self.sending = Sending(port, self.log, publishers, subscriptions, self.lags, self._caught_up, share)
        self.returned = Returned(port, inbox, subscriptions, lagging)
        multicast.catch_up = publishers.catch_up = self

    @property
    def handlers(self) -> Handlers:
        return {
            Missed: lambda sender, frame: self.returned.tell(sender, frame.round, frame.start),
            WantedFilters: self._on_wanted_filters,
            MadeUp: self.returned.on_made_up,
            Caught: self.sending.on_caught,
            CaughtUp: self.returned.on_caught_up,
        }

    @property
    def bodies(self) -> Bodies:
        return {
            Inherit: lambda body, keys: [self.heirs.bequeath(body)],
            Missing: self.returned.missing,
        }

    # ---- the log

    def keeping(self) -> bool:
        """Implement `saps.overlay.missed.absent.Absent`, as the next four methods do."""
        return self.log.active

    def keep(self, batch: Batch, members: Sequence[tuple[BrokerRef, ...]], groups: list[list[str]]) -> None:
        body = unaddressed(batch, [0] * len(members))
        self.log.append(self._port.now, body, members, groups)
        self.sending.kept(len(body.which))

    def behind(self, broker: BrokerRef, topic: str) -> bool:
        return self.sending.behind(broker, topic)

    def owes(self, broker: BrokerRef, topic: str, seq: int) -> bool:
        return self.sending.owes(broker, topic, seq)

    def lacks(self, broker: BrokerRef, topic_filters: list[str]) -> int:
        lag = self.lags.get(broker)
        if lag is None:
            if not any(map(broker.succeeds, self.lags)) or broker in self._known or self._publishers.baselines(broker):
                return 0
            hit("a broker may lack what was logged for its former incarnation")  # it began beyond the cut
            first, late = self.log.first, {*self.log.topics}
        else:
            went_to = self.log.went_to
            last = {topic: seq for topic, (seq, sent) in self.log.topics.items() if broker not in went_to(sent)}
            first = lag.start + 1
            late = {topic for topic, seq in (last | lag.doubts.topics).items() if seq >= first} | lag.flight.topics
        return first if any(matches(each, topic) for each in topic_filters for topic in late) else 0

    def restore(self, found: Iterable[tuple[int, Segment]], wall: float, boot: str = "") -> None:
        """Continue the log of an earlier incarnation. Call this before anything is published.

        `found` are the numbered segments in their order, `wall` is the time of day in seconds since the epoch, `boot`
        is as in `Head`.
        """
        epoch = wall - self._port.now
        self.log.head = lambda: Head(
            self._port.me,
            epoch,
            self._publishers.seq,
            [lag.fate(lag.since, self.heirs.heard(lag.broker)) for lag in self.lags.values()],
            boot,
            self.heirs.served(),
        )
        lost, served, absences = self.log.restore(found, epoch, self._port.now, boot)
        self.heirs.absences = absences
        for each in served:
            self.heirs.restore_served(each)
        for fate in lost:
            lag = self.lags[fate.broker] = Lag(fate.broker, self.log.start, fate.taken, fate.at)
            lag.restore(fate, self.log)
            self.heirs.restore(fate)
        if self.log.active:
            hit("log of an earlier incarnation")
            self._publishers.seq = self.log.incarnations[-1][0]

    def begin(self, former: Iterable[str], young: bool) -> None:
        """Ask the brokers that an earlier incarnation had lost. Call this when this broker has joined the mesh.

        `former` are the names of the members when that incarnation ended. After a loss of power they start at other
        times than this one, so log until all have been heard. `young`: others may be starting again as well."""
        self._former.update(former)
        self._port.after(self.log.age, self._former.clear)
        restored = self.log.active
        if self._former or young or restored:
            self._begin_log()
        if restored:
            for lag in list(self.lags.values()):
                self._ask(lag)
            self.rejoined()

    def lost_elsewhere(self, names: Set[str]) -> None:
        """Log for brokers that others have lost: this one may have nothing for them only as their keys are gone."""
        hit("log for brokers that others have lost")
        self._known = {broker for broker in self._known if broker.name not in names}
        self._begin_log()

    def _drop(self, lag: Lag) -> None:
        """End the catch-up of a broker: it gets nothing more from the log."""
        if self.lags.pop(lag.broker, None) is not None and self.log.active:
            self.log.tell(Fate(self._port.now, lag.broker, False))

    def _begin_log(self) -> None:
        looking, self._event = self._event > -math.inf, self._port.now
        if not self.log.active:
            self.heirs.begin()
            self.log.begin(self._publishers.seq + 1)
            self._publishers.divide_again(self._publishers.streams)
        if not looking:
            self._port.after(LOOK, self._look)

    def _look(self) -> None:
        """Trim the log, repeat unanswered frames and end the log when it is not needed; every `LOOK` seconds."""
        now = self._port.now
        self.log.trim(now, min((lag.place[0] for lag in self.lags.values()), default=None))
        for lag in self.heirs.unneeded():
            self._drop(lag)
        for lag in list(self.lags.values()):
            if lag.state is State.LOST and now - lag.since > self.log.age:
                self._drop(lag)
            elif lag.state is State.ASKED and now - lag.flight.progress >= LOOK and self._port.reachable(lag.broker):
                hit("asked again what a broker wants")
                self._ask(lag)  # in a new round: the ages of filters in the answer count back from the last question
            elif lag.state is State.GOING and now - lag.flight.progress >= LOOK:
                self.sending.repeat(lag)
        if self.lags or not self._former <= self._port.first_heard.keys():
            self._event = now
        elif now - self._event >= LINGER:
            self.log.end()
            self._known.clear()
            self.heirs.clear()
            self.sending.end()
            self._publishers.divide_again(self._publishers.streams)
            self._event = -math.inf
            return
        self._port.after(LOOK, self._look)

    # ---- brokers that are lost, and heard again

    def lost(self, broker: BrokerRef, over: bool, hearsay: bool = False) -> None:
        """Log for a broker that was declared dead, or (`over`) whose later incarnation was heard. `hearsay`: only
        others have reported this incarnation; it counts if it was sent publications, and is given up like one that is
        over. Call this before the publisher registry forgets the broker."""
        pending = self._unacknowledged(broker)
        if hearsay and not pending:
            return
        self._begin_log()
        lag = self.lags.get(broker)
        if lag is None:
            lag = self._behind_since(broker, self._publishers.seq if broker in self._known else 0)
        self.heirs.lost(broker)
        lag.lost(pending, self.log, self._port.now)
        for topic_filter, seq in self._publishers.baselines(broker).items():
            lag.baselines[topic_filter] = min(seq, lag.baselines.get(topic_filter, seq))
        self.log.tell(lag.fate(self._port.now, self.heirs.heard(broker)))
        logger.debug("%s #%d is lost: it has all up to %d", broker.name, broker.incarnation, lag.start)
        if over:
            self._is_over(lag)
        elif hearsay:
            hit("doubts about an incarnation that was never heard")
            self.heirs.gone(lag)

    def _unacknowledged(self, broker: BrokerRef) -> list[Published]:
        """Return the publications on their way to an incarnation: those to its predecessor are none of it."""
        heard = self.heirs.heard(broker)
        return [each for each in self._acknowledgements.unacknowledged(broker) if each.at >= heard]

    def stale_incarnation(self, broker: BrokerRef) -> None:
        """Keep what an incarnation missed for the brokers that adopt its sessions: others reported a later one."""
        lag = self.lags.get(broker)
        if lag is None or lag.state is not State.LOST:
            self.lost(broker, True)
        else:
            self._is_over(lag)
        self._publishers.forget(broker)

    def _is_over(self, lag: Lag) -> None:
        """Note that an incarnation is over: its lag is kept for a while."""
        self.heirs.is_over(lag.broker)
        self.heirs.gone(lag)

    def left(self, broker: BrokerRef, owed: bool) -> None:
        """Handle an orderly Leave, after which the broker's sessions are `owed` what is published, or are not. They
        may have filters that this broker has not heard of: it may not have published to their topics before."""
        if owed or broker in self.lags:
            self.lost(broker, True)

    def give_up(self, name: str) -> None:
        """Stop logging for all lost incarnations of a broker that is gone for good."""
        self._former.discard(name)
        for lag in [lag for lag in self.lags.values() if lag.state is State.LOST and lag.broker.name == name]:
            self._drop(lag)

    def back(self, broker: BrokerRef) -> None:
        """Ask a broker that is heard, if this incarnation was lost."""
        lag = self.lags.get(broker)
        if lag is not None:
            self._ask(lag)

    def _ask(self, lag: Lag) -> None:
        self._rounds += 1
        lag.ask(self._rounds, self._port.now)
        start = min([lag.start, *(each.first() - 1 for each in self._unacknowledged(lag.broker))])
        logger.debug("asks %s what it has missed since %d, in round %d", lag.broker.name, start, lag.round)
        self._port.send(lag.broker, Missed(lag.round, start))  # what is on its way directly is owed

    def noted(self, broker: BrokerRef, topic_filter: str, seq: int) -> None:
        """Note a broker's filter that was unknown, for publications above `seq`. Asks the broker if it may have been
        cut off unnoticed."""
        lag = self.lags.get(broker)
        if lag is not None:
            lag.wanted.add(topic_filter, math.inf, seq)
        elif self.log.active and self.log.messages and broker not in self._known:
            lag = self._behind_since(broker, 0, unnoticed=True)
            self._ask(lag)
            lag.wanted.add(topic_filter, math.inf, seq)

    def owed_above(self, broker: BrokerRef, seq: int) -> int:
        lag = self.lags.get(broker)
        return seq if lag is None else lag.owed_above(seq)

    def _behind_since(self, broker: BrokerRef, seq: int, *, unnoticed: bool = False) -> Lag:
        """Add a lag for a broker that may have missed all publications above `seq`, or above the last one that it is
        known to have. `unnoticed`: it was never lost. A later incarnation of this broker must know of it all the same:
        what is published from now on may be in the log alone."""
        log = self.log
        seq = max(seq, self.heirs.done(broker), log.first - 1)
        place = log.place_of(seq + 1)
        lag = self.lags[broker] = Lag(broker, place, seq, self._port.now)
        if self.heirs.was_there(broker) or broker.name in self._former:
            lag.cause = Cause.CUT_OFF
        if unnoticed:
            fate = lag.fate(self._port.now, self.heirs.heard(broker))
            self.log.tell(msgspec.structs.replace(fate, taken=self._publishers.seq))
        return lag

    def _caught_up(self, lag: Lag) -> None:
        """End the catch-up of a broker that has got everything: it is live again for all topics."""
        self._drop(lag)
        logger.debug("%s has caught up to %d", lag.broker.name, lag.passed)
        if lag.wanted.moved:
            self._port.send(lag.broker, CaughtUp(lag.round))
        if not self._telling:
            self._known.add(lag.broker)
        self.log.tell(self.heirs.caught_up(lag))
        self._publishers.divide_again(self._publishers.streams)

    def rejoined(self) -> None:
        """Handle the end of a cut, or of a part of it: tell all brokers after `ASK_ALL`."""
        self._known.clear()
        if self.log.active and not self._telling:
            self._telling = True
            self._port.after(ASK_ALL, self._tell_all)

    def _tell_all(self) -> None:
        self._telling = False
        if self.log.active and self.log.messages:
            self._rounds += 1
            self._told = self._rounds, self._port.now
            self._tell(self._rounds, TELL_AGAIN)

    def _tell(self, number: int, pause: float) -> None:
        """Tell all brokers that a log exists, and repeat after `pause` seconds until all have heard it."""

        def told(outcome: Outcome) -> None:
            if not outcome.complete and self.log.active and self._told[0] == number and pause <= LINGER:
                self._event = self._port.now
                self._port.after(pause, lambda: self._tell(number, 2 * pause))

        if self._told[0] == number:
            self._calls.call(ALL_BROKERS, Missing(self._port.me, number, self.log.first - 1), told, 1)

    # ---- wanted filters

    def _on_wanted_filters(self, sender: BrokerRef, frame: WantedFilters) -> None:
        lag = self.lags.get(sender)
        if lag is None:
            number, when = self._told
            if frame.number or frame.round != number or sender in self._known or not self.log.active:
                return
            lag = self._behind_since(sender, 0, unnoticed=True)
            if self._port.now - when > TOLD:  # the broadcast was repeated: the ages in the answer count from too early
                hit("asked again what a broker wants that was told long ago")
                self._ask(lag)
                return
            lag.ask(number, when)
        if lag.state is not State.ASKED or lag.round != frame.round or lag.serial != frame.number:
            return
        if not frame.number:
            lag.wanted.delay = self._port.now - lag.since
        lag.serial += 1
        lag.flight.progress = self._port.now
        if frame.former:  # sessions with these filters came to the sender, perhaps while both were cut off
            self.heirs.adopted(lag, frame)
        above = lag.owed_above(self._publishers.seq)
        heard = self._port.first_heard.get(sender.name, (0, -math.inf))[1] if sender.name in self._former else -math.inf
        for wanted in () if frame.former else frame.filters:
            had = lag.baselines.get(wanted.topic_filter, 1 << 63)  # its clock may have stood still
            if lag.since - wanted.age <= heard:
                had = min(had, self.log.earlier)  # it had the filter before this broker heard of it
            lag.wanted.add(wanted.topic_filter, lag.since - wanted.age, had)
            baseline = lag.baselines.get(wanted.topic_filter, above)
            self._publishers.note(wanted.topic_filter, sender, wanted.version, baseline)
        if frame.last:
            if lag.round == self._told[0]:  # of the rounds since then, the broker may have had a later one
                self._rounds += 1
                lag.round = self._rounds
            self.heirs.returned(lag)
            if lag.doubts.seqs or self.sending.has_something(lag):
                lag.go(self._unacknowledged(sender), self.log)
                self._publishers.divide_again(self._publishers.streams)
            else:
                lag.skip(self.log.last, self._publishers.seq)
            self.sending.pump()
