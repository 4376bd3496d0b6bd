"""Sends brokers the publications that they missed, at a bounded rate beside live traffic."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from itertools import groupby, islice
from typing import NamedTuple

from saps.marks import hit
from saps.messages import Message
from saps.overlay.delivery.publications import batch_of, first_seq, select, together
from saps.overlay.frames.delivery import Caught, MadeUp, Part, Publish
from saps.overlay.missed.flight import Sent
from saps.overlay.missed.lag import Cause, Lag, State
from saps.overlay.missed.log import MissedLog, Record
from saps.overlay.missed.published import Published
from saps.overlay.port import Port
from saps.overlay.rendezvous.publisher_registry import PublisherRegistry
from saps.overlay.rendezvous.subscriber_registry import Subscriptions
from saps.overlay.ring.keys import BrokerRef

logger = logging.getLogger(__name__)

PACE, TURN = 64, 0.0025
"""Missed publications sent in a turn, and seconds between two turns. A turn may also send as many publications as were
logged since the last one."""
LOOKED_AT = 8 * PACE
"""Most records read for a frame, as not all of them are wanted."""
FRAME_BYTES = 1 << 14
"""Payload bytes at which a frame is full."""

Share = Callable[[dict[str, list[BrokerRef]], Message, Callable[[int], None]], None]


class _Part(NamedTuple):
    """Publications of one record that were missed by the same."""

    body: Publish
    incarnation: BrokerRef | None
    """`MadeUp.origin`"""
    here: bool
    """`MadeUp.here`"""
    sent: bool
    """`MadeUp.sent`"""
    missed_by: tuple[int, ...]
    """`MadeUp.groups`"""
    after: tuple[Part, ...] = ()
    """`MadeUp.after`"""


class Sending:
    """Sends to all brokers in `lags` that are in the state GOING."""

    def __init__(
        self,
        port: Port,
        log: MissedLog,
        publishers: PublisherRegistry,
        subscriptions: Subscriptions,
        lags: dict[BrokerRef, Lag],
        done: Callable[[Lag], None],
        share: Share,
    ) -> None:
        """`done` is called with the lag of each broker that has everything. `share` is
        `saps.overlay.groups.Sharing.publish`."""
        self._port = port
        self._log = log
        self._publishers = publishers
        self._subscriptions = subscriptions
        self._lags = lags
        self._done = done
        self._share_out = share
        self._waiting = False
        """Whether the next turn is scheduled."""
        self._fresh = 0
        """Publications logged since the last turn."""
        self._handed: set[tuple[str, int]] = set()
        """Pairs of shared subscription and sequence number that have been handed to a member."""
        self.made_up = 0
        """Publications sent to brokers that had missed them, since the start."""

    def kept(self, count: int) -> None:
        """Note that `count` publications have been logged, and schedule a turn."""
        self._fresh += count
        if self._lags and not self._waiting:
            self._soon()

    def end(self) -> None:
        """Forget the handed publications, as the log has ended."""
        self._handed.clear()

    def behind(self, broker: BrokerRef, topic: str) -> bool:
        """Return whether the broker gets new publications to the topic through the log, as an earlier one still waits
        there."""
        lag = self._lags.get(broker)
        if lag is None:
            return False
        if lag.doubts.topics.get(topic, 0) > lag.passed:
            return True
        last = self._log.topics.get(topic)
        if lag.state is State.ASKED and lag.cause is not Cause.NEW:
            if last is None and not any(topic in each.doubts.topics for each in self._lags.values()):
                return False
            hit("kept back from a broker that names its filters")
            return True  # sessions that have come to it may have missed what any other has
        if last is None or last[0] <= lag.passed:
            return False
        return bool(lag.wanted.moved) or broker not in self._log.went_to(last[1])

    def owes(self, broker: BrokerRef, topic: str, seq: int) -> bool:
        """Return whether the broker will get this publication from the log, or is being sent it."""
        lag = self._lags.get(broker)
        if lag is None:
            return False
        under_way = (body for sent in lag.flight.frames for body in sent.frame.bodies)
        return self.behind(broker, topic) or any(seq in body.seqs for body in under_way)

    def has_something(self, lag: Lag) -> bool:
        """Return whether the log may contain a publication for the broker."""
        if lag.wanted.moved:
            return True
        for topic, (seq, sent) in self._log.topics.items():
            missed = seq > lag.taken and lag.broker not in self._log.went_to(sent)
            if missed and (lag.wanted.wants(topic, math.inf, seq) or lag.wanted.groups(topic, math.inf, seq)):
                return True
        return False

    def pump(self) -> None:
        """Run one turn: send up to the budget, and schedule the next turn if something is left."""
        if self._waiting:
            return
        going = [lag for lag in self._lags.values() if lag.state is State.GOING]
        budget, self._fresh = PACE + self._fresh, 0
        for number, lag in enumerate(going):
            share = max(1, budget // (len(going) - number))
            budget -= self._advance(lag, share)
        if any(lag.state is State.GOING and not self._is_sent(lag) for lag in self._lags.values()):
            self._soon()

    def _soon(self) -> None:
        self._waiting = True
        self._port.after(TURN, self._turn)

    def _turn(self) -> None:
        self._waiting = False
        self.pump()

    def _is_sent(self, lag: Lag) -> bool:
        return lag.reading >= self._log.last

    def _advance(self, lag: Lag, budget: int) -> int:
        """Send up to `budget` publications to one broker, and report it to `done` if it has everything. Returns the
        number of publications sent."""
        sent = 0
        while sent < budget and not lag.flight.full and self._port.reachable(lag.broker):
            before, serial = lag.reading, lag.serial
            sent += self._send_some(lag, budget - sent)
            if lag.serial == serial:  # the broker wants none of the records read
                if not lag.flight.frames:
                    lag.place, lag.taken = lag.reading, max(lag.taken, lag.passed)
                if before == lag.reading or not self._is_sent(lag):
                    break
        if self._is_sent(lag) and not lag.flight.frames:
            self._done(lag)
        return sent

    def _send_some(self, lag: Lag, most: int) -> int:
        """Send the next wanted publications, in one frame for each incarnation that published them. Returns their
        number."""
        parts: list[_Part] = []
        count = size = 0
        before, now = (lag.reading, lag.passed), self._port.now
        if lag.doubts.before and lag.doubts.before[-1].body.seqs[-1] > lag.passed:
            for early in lag.doubts.before:
                if early.first() > lag.passed:
                    parts += self._doubted(lag, early)
            count = sum(len(part.body.which) for part in parts)
            lag.passed = lag.doubts.before[-1].body.seqs[-1]
        for record, place in islice(self._log.read(lag.reading), LOOKED_AT):
            for part in self._wanted_of(lag, record):
                parts.append(part)
                count += len(part.body.which)
                size += sum(map(len, part.body.payloads))
            lag.reading, lag.passed = place, max(lag.passed, record.body.seqs[-1])
            self._passed(lag, record)
            if count >= most or size >= FRAME_BYTES:
                break
        if parts:
            hit("missed publications made up")
            frames = lag.flight.frames
            if not frames:
                lag.flight.progress = now
            for (incarnation, here, sent, missed_by, after), alike in groupby(parts, key=lambda part: part[1:]):
                lag.serial += 1
                bodies = together(part.body for part in alike)
                frame = MadeUp(lag.round, lag.serial, bodies, incarnation, here, sent, [*missed_by], [*after])
                frames.append(Sent(frame, *before, now))
                logger.debug("sends %s %d frames that it has missed, to %d; for groups %s, here %s", lag.broker.name,
                             len(bodies), lag.passed, missed_by, here)  # fmt: skip
                self._port.send(lag.broker, frame)
            frames[-1] = frames[-1]._replace(place=lag.reading, passed=lag.passed)
            self.made_up += count
        return count

    def _doubted(self, lag: Lag, frame: Published) -> Iterator[_Part]:
        """Yield the publications of a frame in doubt that is older than the log, by whom they are for."""
        body, at, sent = frame
        incarnation = self._log.incarnation_of(frame.first())
        for index, (number, seq) in enumerate(zip(body.which, body.seqs, strict=True)):
            topic, lacking = body.parts[number].topic, lag.doubts.lacking[seq]
            origin, here = incarnation or self._port.me, lag.broker in lacking
            missed_by = lag.wanted.doubted(topic, at, seq, origin, sent - lacking)
            if here or missed_by:
                yield _Part(select(body, [index]), incarnation, here, False, missed_by)

    def _wanted_of(self, lag: Lag, record: Record) -> Iterator[_Part]:
        """Yield the publications of a record that the broker has missed, by whom they are for. Hands those for shared
        subscriptions to the groups."""
        body, broker, wanted, live = record.body, lag.broker, lag.wanted, lag.flight.live
        incarnation = self._log.incarnation_of(first_seq(body))
        origin = incarnation or self._port.me
        sent = [self._log.went_to(each) for each in record.sent]
        news = [broker not in each for each in sent]
        allowed = [bool(self._publishers.permitted(part.topic, [broker])) for part in body.parts]
        found: dict[tuple[bool, bool, tuple[int, ...]], list[int]] = {}
        for index, (number, seq) in enumerate(zip(body.which, body.seqs, strict=True)):
            topic, news_here = body.parts[number].topic, news[number] and seq > lag.taken
            if incarnation is not None and any(map(broker.succeeds, sent[number])):
                news_here = False  # it was published before this one began, whatever the clock there said
            here = news_here and allowed[number] and wanted.wants(topic, record.at, seq)
            missed_by: tuple[int, ...] = ()
            if (lacking := lag.doubts.lacking.get(seq)) is not None:
                here |= broker in lacking
                missed_by = wanted.doubted(topic, record.at, seq, origin, sent[number] - lacking)
            elif allowed[number]:
                missed_by = wanted.missed(topic, record.at, seq, origin, sent[number])
            was_sent = not (here or news[number])
            if here or missed_by:
                found.setdefault((here, was_sent, missed_by), []).append(index)
            if was_sent and incarnation is None:
                live[topic] = seq
            if news_here and allowed[number]:
                for group in wanted.groups(topic, record.at, seq) if body.qos else ():
                    self._share(group, record, index, broker)
        for (here, was_sent, missed_by), indexes in found.items():
            part = select(body, indexes)
            topics = [] if was_sent else [each.topic for each in part.parts if each.topic in live]
            after = tuple(Part(topic, live.pop(topic)) for topic in topics)
            yield _Part(part, incarnation, here, was_sent, missed_by, after)

    def _share(self, group: str, record: Record, index: int, broker: BrokerRef) -> None:
        """Hand a publication to a group whose members were all beyond the cut when it was published."""
        number, seq = record.body.which[index], record.body.seqs[index]
        own = self._subscriptions.registrations.get(group)
        here = own is not None and own.wanted and own.since <= record.at
        if here or (group, seq) in self._handed or (record.groups and group in record.groups[number]):
            return
        self._handed.add((group, seq))
        message = batch_of(select(record.body, [index]), self._port.me).messages[0]
        self._share_out({group: [broker]}, message, lambda taken: None if taken else self._handed.discard((group, seq)))

    def _passed(self, lag: Lag, record: Record) -> None:
        """Make topics live again for the broker whose last logged publication is in this record."""
        logged = self._log.topics
        self._publishers.divide_again(
            part.topic for part in record.body.parts if part.topic in logged and logged[part.topic][0] <= lag.passed
        )

    def on_caught(self, sender: BrokerRef, frame: Caught) -> None:
        """Handle a broker's answer: send it more, or report it to `done` if it has everything."""
        lag = self._lags.get(sender)
        if lag is None or lag.state is not State.GOING or lag.round != frame.round:
            return
        lag.caught(frame.serial, self._port.now)
        if self._is_sent(lag):
            self._advance(lag, 1)
        elif not self._waiting:
            self.pump()

    def link_broke(self, peer: BrokerRef) -> None:
        """Repeat unanswered frames at once, as the link may have lost them: newer publications must not overtake
        them."""
        if (lag := self._lags.get(peer)) is not None and lag.state is State.GOING:
            self._send_again(lag)

    def _send_again(self, lag: Lag) -> None:
        for sent in lag.flight.frames:
            self._port.send(lag.broker, sent.frame)

    def repeat(self, lag: Lag) -> None:
        """Repeat the unanswered frames to a broker that has not answered."""
        lag.flight.progress = self._port.now
        if self._port.reachable(lag.broker):
            self._send_again(lag)
