"""The taker's side of a hand-over (`saps.overlay.sessions.migration.migration`): it asks step by step, and repeats
what is not answered."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

from saps.local.batch import Batch
from saps.mesh import Arrival, SessionHost, Yields
from saps.overlay.delivery.settling import POLL, Settling
from saps.overlay.frames.kinds import (
    Arrived,
    Departed,
    Frame,
    Luggage,
    ProtocolError,
    Pull,
    TakeOver,
    Tenure,
    Yielded,
)
from saps.overlay.port import Port
from saps.overlay.rendezvous.range_calls import RangeCalls
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.sessions import Quest, Sessions
from saps.topics import shared

logger = logging.getLogger(__name__)

AGAIN = 0.25
"""Seconds after which a question without answer is repeated: a link may have broken."""
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
        "branch",
        "elsewhere",
        "filters",
        "heard",
        "here",
        "kept",
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
        self.branch = quest.branch
        """The session is here; what comes is what another broker has had for it beside."""
        self.here = False
        """The session itself has come, from the first that had one."""
        self.kept = False
        """If the source dies another broker adopts the session."""


class Taker:
    """The sessions that come to one broker."""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        sessions: Sessions,
        waiting: Callable[[list[str]], bool],
    ) -> None:
        """`waiting` as for `saps.overlay.sessions.migration.migration.Handovers`."""
        self._port = port
        self._calls = calls
        self._sessions = sessions
        self._waiting = waiting
        self._serial = 0
        self.takings: dict[int, _Taking] = {}
        self.dropping: dict[int, tuple[BrokerRef, TakeOver]] = {}
        """Sessions that other brokers are to end, until they have said so."""
        self.taken = 0
        """Sessions that have come, or what a branch had."""
        self.merged = 0
        """Of those, branches."""

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
            tenure = taking.sources.pop(0)
            source, taking.kept = tenure.broker, tenure.kept
            if self._port.lost(source):
                if taking.kept and not taking.branch and self._sessions.await_heir(quest):
                    return
                logger.warning("the session of %r was at %s, which is dead", quest.client, source.name)
                continue
            self._serial += 1
            taking.serial, taking.source, taking.stage = self._serial, source, Stage.ASKING
            taking.heard = self._port.now
            quest.asked.add(source)
            self.takings[taking.serial] = taking
            keep, birth = quest.keep, 0
            if taking.branch:
                keep, birth = False, self._host.birth(quest.client)
            self._ask(taking, TakeOver(taking.serial, quest.client, taking.stamp, quest.user, keep, birth))
            self._tick(taking, taking.serial)
            return
        self._sessions.finish(quest, _outcome(taking, Arrival.LATER if taking.elsewhere else Arrival.HERE))

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
        if taking.quest.given is not None or taking.branch:  # nobody waits for it: it stays where it is
            self._stop(taking)
            self._sessions.finish(taking.quest, _outcome(taking, Arrival.BUSY))
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
        if not taking.branch and taking.stage in (Stage.SUBSCRIBING, Stage.PULLING, Stage.PULLED, Stage.ARRIVED):
            self._host.discard(taking.quest.client)
            taking.parts, taking.request = [], None

    def _finish(self, taking: _Taking, arrival: Arrival) -> None:
        """It is over; further sessions of the client are older."""
        del self.takings[taking.serial]
        for tenure in taking.sources:
            self.drop(tenure.broker, taking.quest.client, taking.stamp, taking.quest.user)
        self._sessions.finish(taking.quest, arrival)

    def gather(self, broker: BrokerRef, client: str, stamp: int) -> None:
        """Have a broker end its session, which is a branch of the one here, when what it had beside is here."""
        quest = Quest(client, self._host.user(client), True, _nobody)
        quest.branch = True
        self._next(_Taking(quest, stamp, [Tenure(client, broker, 0)]))

    def ends(self, broker: BrokerRef, client: str) -> bool:
        """Is a broker being told to end its session?"""
        dropped = any(to == broker and frame.client == client for to, frame in self.dropping.values())
        return dropped or any(
            each.branch and each.source == broker and each.quest.client == client for each in self.takings.values()
        )

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
        if frame.answer == Yields.SESSION and taking.branch:
            taking.stage, taking.request = Stage.SUBSCRIBING, None
            taking.filters = self._host.filters(taking.quest.client)
            self._settle(taking, lambda: self._pull_contents(taking))
        elif frame.answer == Yields.SESSION:
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
            raise ProtocolError(f"{sender.name} sends an impossible session")
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
                if taking.branch:
                    self._reading(taking, lambda: self._merge(taking, parts))
                else:
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
        may have had it from a broker two moves before. And when what is here of before has gone where it is going."""
        if self.takings.get(taking.serial) is not taking:
            return
        client, handovers = taking.quest.client, self._sessions.handovers
        if (self._waiting(["#"]) or handovers.giving(client)) and self._port.now < limit:
            self._port.after(POLL, lambda: self._clear(taking, parts, limit))
        else:
            handovers.giver.keep(client)
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

    def _merge(self, taking: _Taking, parts: list[bytes]) -> None:
        """The session here has what its branch had beside. Raises ValueError."""
        self._host.merge(taking.quest.client, parts)
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
            self._sessions.finish(taking.quest, _outcome(taking, Arrival.BUSY))

    def _arrived(self, taking: _Taking) -> None:
        self.taken += 1
        if taking.branch:
            self.merged += 1
        elif taking.source is not None:
            logger.info("the session of %r has come from %s", taking.quest.client, taking.source.name)
        if taking.sources and self._host.birth(taking.quest.client):  # what they have of it beside comes first
            del self.takings[taking.serial]
            taking.branch = taking.here = True
            self._next(taking)
        else:
            self._finish(taking, Arrival.MOVED)

    # --- what was published before ------------------------------------------------------------------------------------

    def _settle(self, taking: _Taking, then: Callable[[], None]) -> None:
        """Go on when all members have what was published so far, and this broker has passed on all that it has. Before
        the giver packs, so that it has what did not come here; after, so that what comes by both ways has come."""
        plain, serial = [each for each in taking.filters if shared(each) is None], taking.serial

        def there() -> bool:
            return self.takings.get(serial) is taking

        def settled() -> None:
            taking.heard = self._port.now
            then()

        limit = self._port.now + self._sessions.patience
        Settling(self._port, self._calls, self._waiting, plain, limit, there, settled)

    def _pull_contents(self, taking: _Taking) -> None:
        queued = [] if taking.branch else self._host.queued(taking.quest.client)
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
            if not (taking.kept and not taking.branch and self._sessions.await_heir(taking.quest)):
                self._next(taking)


def _outcome(taking: _Taking, otherwise: Arrival) -> Arrival:
    return Arrival.MOVED if taking.here else otherwise


def _had_passed(taking: _Taking, single: Batch) -> bool:
    """Had this publication passed at the giver before?"""
    origin = single.origin
    if origin is None or not isinstance(single.publisher, BrokerRef):
        return False
    return origin.seq <= taking.marks.get((single.publisher, single.topic), 0)


def _nobody(arrival: Arrival) -> None:
    """Of what nobody waits for."""
