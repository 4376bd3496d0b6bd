"""The taker's side of a hand-over (`saps.overlay.handover`): it asks step by step, and repeats what is not answered."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

from saps.batch import Batch
from saps.mesh import Arrival, SessionHost, Yields
from saps.overlay.calls import Outcome, RangeCalls
from saps.overlay.frames import (
    Arrived,
    Departed,
    Frame,
    Luggage,
    Outstanding,
    ProtocolError,
    Pull,
    TakeOver,
    Tenure,
    Unsettled,
    Yielded,
)
from saps.overlay.keys import ALL_BROKERS, BrokerRef, Range
from saps.overlay.port import Port
from saps.overlay.sessions import Quest, Sessions
from saps.overlay.subscriptions import audience
from saps.topics import shared

logger = logging.getLogger(__name__)

AGAIN = 0.25
"""Seconds after which a question without answer is repeated: a link may have broken."""
POLL = 0.02
"""Seconds until what is not settled yet is asked for again."""
RANGES = 32
"""Ranges of publishers that are asked one by one; above it all brokers are asked at once."""
ATTEMPTS = 4
"""Range calls for one of these questions."""
MOST_PARTS, MOST_BYTES = 1 << 14, 1 << 28
"""Parts, and their bytes, of one stage of a session: it is kept in memory until it is complete."""


class Stage(Enum):
    ASKING = "asking"
    DESCRIBED = "described"
    CLEARING = "clearing"
    SUBSCRIBING = "subscribing"
    PULLING = "pulling"
    PULLED = "pulled"
    ARRIVED = "arrived"


class _Taking:
    """A session that comes here."""

    __slots__ = (
        "elsewhere",
        "filters",
        "heard",
        "marks",
        "parts",
        "pending",
        "quest",
        "request",
        "serial",
        "source",
        "sources",
        "stage",
        "stamp",
    )

    def __init__(self, quest: Quest, stamp: int, sources: list[Tenure]) -> None:
        self.quest = quest
        self.stamp = stamp
        self.sources = sources
        """Whom to ask yet, the latest tenure first."""
        self.source: BrokerRef | None = None
        self.serial = 0
        self.stage = Stage.ASKING
        self.request: Frame | None = None
        """What has been asked and not answered."""
        self.heard = 0.0
        self.parts: list[bytes] = []
        self.filters: list[str] = []
        self.pending: list[tuple[BrokerRef, str]] = []
        self.marks: dict[tuple[BrokerRef, str], int] = {}
        self.elsewhere = False
        """It is on its way to another broker."""


class Taker:
    """The sessions that come to one broker."""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        sessions: Sessions,
        waiting: Callable[[list[str]], bool],
    ) -> None:
        """`waiting` as for `saps.overlay.handover.Handovers`."""
        self._port = port
        self._calls = calls
        self._sessions = sessions
        self._waiting = waiting
        self._serial = 0
        self.takings: dict[int, _Taking] = {}
        self.dropping: dict[int, tuple[BrokerRef, TakeOver]] = {}
        """Sessions that other brokers are to end, until they have said so."""
        self.taken = 0
        """Sessions that have come."""

    @property
    def _host(self) -> SessionHost:
        assert self._sessions.host is not None
        return self._sessions.host

    def take(self, quest: Quest, stamp: int, sources: list[Tenure]) -> None:
        """Have the session from the first of these brokers that has one; the others end theirs."""
        self._next(_Taking(quest, stamp, sources))

    def _next(self, taking: _Taking) -> None:
        quest = taking.quest
        taking.source = None
        while taking.sources:
            source = taking.sources.pop(0).broker
            if self._port.lost(source):
                logger.warning("the session of %r was at %s, which is dead", quest.client, source.name)
                continue
            self._serial += 1
            taking.serial, taking.source, taking.stage = self._serial, source, Stage.ASKING
            taking.heard = self._port.now
            quest.asked.add(source)
            self.takings[taking.serial] = taking
            self._ask(taking, TakeOver(taking.serial, quest.client, taking.stamp, quest.user, quest.keep))
            self._tick(taking, taking.serial)
            return
        self._sessions.finish(quest, Arrival.LATER if taking.elsewhere else Arrival.HERE)

    def _ask(self, taking: _Taking, request: Frame) -> None:
        assert taking.source is not None
        taking.request = request
        self._port.send(taking.source, request)

    def _tick(self, taking: _Taking, serial: int) -> None:
        """Ask once more, and see that it does not take too long."""

        def due() -> None:
            if self.takings.get(serial) is not taking or taking.source is None:
                return
            silent = self._port.now - taking.heard
            if taking.request is not None and taking.stage is not Stage.ARRIVED and silent > self._sessions.patience:
                self._silent(taking)
                return
            if taking.request is not None and silent >= AGAIN:
                self._port.send(taking.source, taking.request)
            self._tick(taking, serial)

        self._port.after(AGAIN, due)

    def _silent(self, taking: _Taking) -> None:
        source, client = taking.source, taking.quest.client
        assert source is not None
        if taking.quest.given is not None:  # nobody waits for it: it stays where it is
            self._stop(taking)
            self._sessions.finish(taking.quest, Arrival.BUSY)
            return
        logger.warning(
            "the session of %r: %s does not answer in %g s; the client is served without, and the session ended there",
            client,
            source.name,
            self._sessions.patience,
        )
        self._stop(taking)
        self.drop(source, client, taking.stamp, taking.quest.user)
        self._next(taking)

    def _stop(self, taking: _Taking) -> None:
        """Nothing comes of it."""
        del self.takings[taking.serial]
        if taking.stage in (Stage.SUBSCRIBING, Stage.PULLING, Stage.PULLED, Stage.ARRIVED):
            self._host.discard(taking.quest.client)
            taking.parts, taking.request = [], None

    def _finish(self, taking: _Taking, arrival: Arrival) -> None:
        """It is over; further sessions of the client are older."""
        del self.takings[taking.serial]
        for tenure in taking.sources:
            self.drop(tenure.broker, taking.quest.client, taking.stamp, taking.quest.user)
        self._sessions.finish(taking.quest, arrival)

    def drop(self, broker: BrokerRef, client: str, stamp: int, user: str | None) -> None:
        """Have a broker end its session."""
        self._serial += 1
        serial, frame = self._serial, TakeOver(self._serial, client, stamp, user, False)
        self.dropping[serial] = broker, frame

        def send() -> None:
            if serial in self.dropping and not self._port.lost(broker):
                self._port.send(broker, frame)
                self._port.after(AGAIN, send)
            else:
                self.dropping.pop(serial, None)

        send()

    def _asked(self, sender: BrokerRef, serial: int) -> _Taking | None:
        """The session that this broker has been asked for."""
        taking = self.takings.get(serial)
        return taking if taking is not None and taking.source == sender else None

    def on_yielded(self, sender: BrokerRef, frame: Yielded) -> None:
        dropping = self.dropping.get(frame.serial)
        if dropping is not None and dropping[0] == sender:
            del self.dropping[frame.serial]
        taking = self._asked(sender, frame.serial)
        if taking is None or taking.stage is not Stage.ASKING:
            return
        taking.heard = self._port.now
        if frame.answer == Yields.SESSION:
            taking.stage = Stage.DESCRIBED
            self._ask(taking, Pull(taking.serial, 0, 0))
        elif frame.answer == Yields.WAIT:
            self._ask_later(taking, taking.request)
        elif frame.answer in (Yields.LATER, Yields.FORBIDDEN):
            del self.takings[taking.serial]
            later = frame.answer == Yields.LATER
            self._sessions.finish(taking.quest, Arrival.LATER if later else Arrival.FORBIDDEN)
        else:
            taking.elsewhere |= frame.answer == Yields.MOVING
            del self.takings[taking.serial]
            self._next(taking)

    def _ask_later(self, taking: _Taking, request: Frame | None) -> None:
        serial, stage = taking.serial, taking.stage

        def due() -> None:
            if self.takings.get(serial) is taking and taking.stage is stage and request is not None:
                self._ask(taking, request)

        self._port.after(POLL, due)

    def on_luggage(self, sender: BrokerRef, frame: Luggage) -> None:
        taking = self._asked(sender, frame.serial)
        wanted = {Stage.DESCRIBED: 0, Stage.PULLING: 1}
        if taking is None or wanted.get(taking.stage) != frame.stage or frame.part != len(taking.parts):
            return
        taking.heard = self._port.now
        if not frame.parts:
            self._ask_later(taking, taking.request)
            return
        if frame.stage and not frame.part:
            taking.marks = dict(zip(taking.pending, frame.passed, strict=False))
        taking.parts.append(frame.data)
        if frame.parts > MOST_PARTS or sum(map(len, taking.parts)) > MOST_BYTES:
            raise ProtocolError(f"{sender.name} has a session that nobody can have")
        if len(taking.parts) < frame.parts:
            self._ask(taking, Pull(frame.serial, frame.stage, len(taking.parts)))
        else:
            taking.request = None
            parts, taking.parts = taking.parts, []
            if taking.stage is Stage.DESCRIBED:
                taking.stage = Stage.CLEARING
                self._clear(taking, parts, self._port.now + self._sessions.patience)
            else:
                taking.stage = Stage.PULLED
                self._settle(taking, lambda: self._reading(taking, lambda: self._unpack(taking, parts)))

    def _reading(self, taking: _Taking, read: Callable[[], None]) -> None:
        """Use what has come; if it makes no sense there is no session."""
        try:
            read()
        except ValueError as error:
            logger.error("the session of %r cannot be read: %s", taking.quest.client, error)
            self._stop(taking)
            self._next(taking)

    def _clear(self, taking: _Taking, parts: list[bytes], limit: float) -> None:
        """Begin when nothing is held here any more: what was acknowledged long ago could come out of it, and the client
        may have had it from a broker two moves before."""
        if self.takings.get(taking.serial) is not taking:
            return
        if self._waiting(["#"]) and self._port.now < limit:
            self._port.after(POLL, lambda: self._clear(taking, parts, limit))
        else:
            self._reading(taking, lambda: self._begin(taking, parts))

    def _begin(self, taking: _Taking, parts: list[bytes]) -> None:
        """Have the session here, and subscribe for it. Raises ValueError."""
        taking.stage, serial, waiting = Stage.SUBSCRIBING, taking.serial, True

        def taken_up() -> None:
            nonlocal waiting
            if not waiting and self.takings.get(serial) is taking:
                self._settle(taking, lambda: self._pull_contents(taking))
            waiting = False

        taking.filters = self._host.receive(taking.quest.client, parts, taken_up)
        taken_up()

    def _unpack(self, taking: _Taking, parts: list[bytes]) -> None:
        """All of the session is there. Raises ValueError."""
        self._host.unpack(taking.quest.client, parts, lambda single: _had_passed(taking, single))
        taking.stage = Stage.ARRIVED
        self._ask(taking, Arrived(taking.serial))

    def on_departed(self, sender: BrokerRef, frame: Departed) -> None:
        taking = self._asked(sender, frame.serial)
        if taking is None or taking.stage is Stage.ASKING:
            return
        if frame.granted and taking.stage is Stage.ARRIVED:
            self._arrived(taking)
        elif not frame.granted:  # it goes on there
            self._stop(taking)
            self._sessions.finish(taking.quest, Arrival.BUSY)

    def _arrived(self, taking: _Taking) -> None:
        self.taken += 1
        if taking.source is not None:
            logger.info("the session of %r has come from %s", taking.quest.client, taking.source.name)
        self._finish(taking, Arrival.MOVED)

    # --- what was published before ------------------------------------------------------------------------------------

    def _settle(self, taking: _Taking, then: Callable[[], None]) -> None:
        """Go on when all members have what was published so far, and this broker has passed on all that it has. Before
        the giver packs, so that it has what did not come here; after, so that what comes by both ways has come."""
        plain = [each for each in taking.filters if shared(each) is None]
        self._settle_upto(taking, plain, {}, self._port.now + self._sessions.patience, then)

    def _settle_upto(
        self,
        taking: _Taking,
        filters: list[str],
        upto: dict[tuple[str, int], int],
        limit: float,
        then: Callable[[], None],
    ) -> None:
        """The same for publications up to these; at the latest at `limit`."""
        if self.takings.get(taking.serial) is not taking:
            return
        places: dict[Range, list[str]] = {}
        for topic_filter in filters:
            places.setdefault(audience(topic_filter), []).append(topic_filter)
        if len(places) > RANGES:
            places = {ALL_BROKERS: filters}
        serial, missing, unsettled = taking.serial, 1 + len(places), False

        def answered(outcome: Outcome) -> None:
            nonlocal unsettled
            unsettled |= not outcome.complete
            for result in outcome.results:
                if isinstance(result, Outstanding):
                    target = upto.setdefault((result.broker, result.incarnation), result.seq)
                    unsettled |= 0 < result.lowest <= target
            one_done()

        def one_done() -> None:
            nonlocal missing
            missing -= 1
            if missing or self.takings.get(serial) is not taking:
                return
            taking.heard = self._port.now
            if (unsettled or self._waiting(filters)) and self._port.now < limit:
                self._port.after(POLL, lambda: self._settle_upto(taking, filters, upto, limit, then))
            else:
                then()

        for place, wanted in places.items():
            self._calls.call(place, Unsettled(wanted), answered, ATTEMPTS)
        one_done()

    def _pull_contents(self, taking: _Taking) -> None:
        queued = self._host.queued(taking.quest.client)
        found = dict.fromkeys((each.publisher, each.topic) for each in queued if isinstance(each.publisher, BrokerRef))
        taking.stage, taking.pending = Stage.PULLING, list(found)
        self._ask(taking, Pull(taking.serial, 1, 0, taking.pending))

    def forget(self, broker: BrokerRef) -> None:
        """A broker died, or has left: what has arrived from it is here, what has not is lost."""
        for taking in list(self.takings.values()):
            if taking.source != broker:
                continue
            if taking.stage is Stage.ARRIVED:
                self._arrived(taking)
                continue
            logger.warning("the session of %r was at %s, which has gone", taking.quest.client, broker.name)
            self._stop(taking)
            self._next(taking)


def _had_passed(taking: _Taking, single: Batch) -> bool:
    """Had this publication passed at the giver before?"""
    origin = single.origin
    if origin is None or not isinstance(single.publisher, BrokerRef):
        return False
    return origin.seq <= taking.marks.get((single.publisher, single.topic), 0)
