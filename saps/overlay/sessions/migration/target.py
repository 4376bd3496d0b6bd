"""The target's side of a migration (`saps.overlay.sessions.migration.migration`): it asks step by step, and repeats
what is not answered."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

from saps.local.batch import Batch
from saps.marks import hit
from saps.mesh import Arrival, SessionHost, Yields
from saps.overlay.delivery.settling import POLL, Settling
from saps.overlay.frames.base import Frame, ProtocolError
from saps.overlay.frames.calls import SessionLease
from saps.overlay.frames.sessions import Arrived, Departed, Pull, Snapshot, TakeOver, TakeOverAnswer
from saps.overlay.port import Port
from saps.overlay.rendezvous.range_calls import RangeCalls
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.sessions import Claiming, Sessions
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


class _Transfer:
    """A session that comes here."""

    __slots__ = (
        "branch",
        "claiming",
        "elsewhere",
        "filters",
        "heard",
        "here",
        "kept",
        "marks",
        "parts",
        "pending",
        "request",
        "serial",
        "source",
        "sources",
        "stage",
        "stamp",
    )

    def __init__(self, claiming: Claiming, stamp: int, sources: list[SessionLease]) -> None:
        self.claiming = claiming
        self.stamp = stamp
        self.sources = sources
        """Whom to ask yet, the latest lease first."""
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
        self.branch = claiming.branch
        """The session is here; what comes is what another broker has had for it beside."""
        self.here = False
        """The session itself has come, from the first that had one."""
        self.kept = False
        """If the source dies another broker adopts the session."""


class MigrationTarget:
    """The sessions that come to one broker."""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        sessions: Sessions,
        waiting: Callable[[list[str]], bool],
    ) -> None:
        """`waiting` as for `saps.overlay.sessions.migration.migration.Migrations`."""
        self._port = port
        self._calls = calls
        self._sessions = sessions
        self._waiting = waiting
        self._serial = 0
        self.transfers: dict[int, _Transfer] = {}
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

    def take(self, claiming: Claiming, stamp: int, sources: list[SessionLease]) -> None:
        """Have the session from the first of these brokers that has one; the others end theirs."""
        self._next(_Transfer(claiming, stamp, sources))

    def _next(self, transfer: _Transfer) -> None:
        claiming = transfer.claiming
        transfer.source = None
        while transfer.sources:
            lease = transfer.sources.pop(0)
            source, transfer.kept = lease.broker, lease.kept
            if self._port.lost(source):
                if transfer.kept and not transfer.branch and self._sessions.await_heir(claiming):
                    return
                logger.warning("the session of %r was at %s, which is dead", claiming.client, source.name)
                continue
            self._serial += 1
            transfer.serial, transfer.source, transfer.stage = self._serial, source, Stage.ASKING
            transfer.heard = self._port.now
            claiming.asked.add(source)
            self.transfers[transfer.serial] = transfer
            keep, birth = claiming.keep, 0
            if transfer.branch:
                keep, birth = False, self._host.birth(claiming.client)
            self._ask(transfer, TakeOver(transfer.serial, claiming.client, transfer.stamp, claiming.user, keep, birth))
            self._tick(transfer, transfer.serial)
            return
        self._sessions.finish(claiming, _outcome(transfer, Arrival.LATER if transfer.elsewhere else Arrival.HERE))

    def _ask(self, transfer: _Transfer, request: Frame) -> None:
        assert transfer.source is not None
        transfer.request = request
        self._port.send(transfer.source, request)

    def _tick(self, transfer: _Transfer, serial: int) -> None:
        """Ask once more, and see that it does not take too long."""

        def due() -> None:
            if self.transfers.get(serial) is not transfer or transfer.source is None:
                return
            silent = self._port.now - transfer.heard
            if (
                transfer.request is not None
                and transfer.stage is not Stage.ARRIVED
                and silent > self._sessions.patience
            ):
                self._silent(transfer)
                return
            if transfer.request is not None and silent >= AGAIN:
                self._port.send(transfer.source, transfer.request)
            self._tick(transfer, serial)

        self._port.after(AGAIN, due)

    def _silent(self, transfer: _Transfer) -> None:
        source, client = transfer.source, transfer.claiming.client
        assert source is not None
        if transfer.claiming.given is not None or transfer.branch:  # nobody waits for it: it stays where it is
            self._stop(transfer)
            self._sessions.finish(transfer.claiming, _outcome(transfer, Arrival.BUSY))
            return
        logger.warning(
            "the session of %r: %s does not answer in %g s; the client is served without, and the session ended there",
            client,
            source.name,
            self._sessions.patience,
        )
        self._stop(transfer)
        self.drop(source, client, transfer.stamp, transfer.claiming.user)
        self._next(transfer)

    def _stop(self, transfer: _Transfer) -> None:
        """Nothing comes of it."""
        del self.transfers[transfer.serial]
        if not transfer.branch and transfer.stage in (Stage.SUBSCRIBING, Stage.PULLING, Stage.PULLED, Stage.ARRIVED):
            self._host.discard(transfer.claiming.client)
            transfer.parts, transfer.request = [], None

    def interrupt(self, client: str) -> None:
        """Another broker is not asked for the client's session any more."""
        for transfer in [each for each in self.transfers.values() if each.claiming.client == client]:
            if transfer.stage is Stage.ASKING and not transfer.branch:
                hit("question for a session that is adopted here")
                self._stop(transfer)

    def _finish(self, transfer: _Transfer, arrival: Arrival) -> None:
        """It is over; further sessions of the client are older."""
        del self.transfers[transfer.serial]
        for lease in transfer.sources:
            self.drop(lease.broker, transfer.claiming.client, transfer.stamp, transfer.claiming.user)
        self._sessions.finish(transfer.claiming, arrival)

    def gather(self, broker: BrokerRef, client: str, stamp: int) -> None:
        """Have a broker end its session, which is a branch of the one here, when what it had beside is here."""
        claiming = Claiming(client, self._host.user(client), True, _nobody)
        claiming.branch = True
        self._next(_Transfer(claiming, stamp, [SessionLease(client, broker, 0)]))

    def ends(self, broker: BrokerRef, client: str) -> bool:
        """Is a broker being told to end its session?"""
        dropped = any(to == broker and frame.client == client for to, frame in self.dropping.values())
        return dropped or any(
            each.branch and each.source == broker and each.claiming.client == client for each in self.transfers.values()
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

    def _asked(self, sender: BrokerRef, serial: int) -> _Transfer | None:
        """The session that this broker has been asked for."""
        transfer = self.transfers.get(serial)
        return transfer if transfer is not None and transfer.source == sender else None

    def on_take_over_answer(self, sender: BrokerRef, frame: TakeOverAnswer) -> None:
        dropping = self.dropping.get(frame.serial)
        if dropping is not None and dropping[0] == sender:
            del self.dropping[frame.serial]
        transfer = self._asked(sender, frame.serial)
        if transfer is None or transfer.stage is not Stage.ASKING:
            return
        transfer.heard = self._port.now
        if frame.answer == Yields.SESSION and transfer.branch and not self._host.birth(transfer.claiming.client):
            hit("session gone before its branch came")  # the branch stays where it is, for whoever has the session
            self._stop(transfer)
            self._sessions.finish(transfer.claiming, _outcome(transfer, Arrival.BUSY))
        elif frame.answer == Yields.SESSION and transfer.branch:
            transfer.stage, transfer.request = Stage.SUBSCRIBING, None
            transfer.filters = self._host.filters(transfer.claiming.client)
            self._settle(transfer, lambda: self._pull_contents(transfer))
        elif frame.answer == Yields.SESSION:
            transfer.stage = Stage.DESCRIBED
            self._ask(transfer, Pull(transfer.serial, 0, 0))
        elif frame.answer == Yields.WAIT:
            transfer.claiming.waited = True
            self._ask_later(transfer, transfer.request)
        elif frame.answer in (Yields.LATER, Yields.FORBIDDEN):
            del self.transfers[transfer.serial]
            later = frame.answer == Yields.LATER
            self._sessions.finish(transfer.claiming, Arrival.LATER if later else Arrival.FORBIDDEN)
        else:
            transfer.elsewhere |= frame.answer == Yields.MOVING
            del self.transfers[transfer.serial]
            if not (transfer.claiming.waited and not transfer.branch and self._sessions.await_heir(transfer.claiming)):
                self._next(transfer)

    def _ask_later(self, transfer: _Transfer, request: Frame | None) -> None:
        serial, stage = transfer.serial, transfer.stage

        def due() -> None:
            if self.transfers.get(serial) is transfer and transfer.stage is stage and request is not None:
                self._ask(transfer, request)

        self._port.after(POLL, due)

    def on_snapshot(self, sender: BrokerRef, frame: Snapshot) -> None:
        transfer = self._asked(sender, frame.serial)
        wanted = {Stage.DESCRIBED: 0, Stage.PULLING: 1}
        if transfer is None or wanted.get(transfer.stage) != frame.stage or frame.part != len(transfer.parts):
            return
        transfer.heard = self._port.now
        if not frame.parts:
            self._ask_later(transfer, transfer.request)
            return
        if frame.stage and not frame.part:
            transfer.marks = dict(zip(transfer.pending, frame.passed, strict=False))
        transfer.parts.append(frame.data)
        if frame.parts > MOST_PARTS or sum(map(len, transfer.parts)) > MOST_BYTES:
            raise ProtocolError(f"{sender.name} sends an impossible session")
        if len(transfer.parts) < frame.parts:
            self._ask(transfer, Pull(frame.serial, frame.stage, len(transfer.parts)))
        else:
            transfer.request = None
            parts, transfer.parts = transfer.parts, []
            if transfer.stage is Stage.DESCRIBED:
                transfer.stage = Stage.CLEARING
                self._clear(transfer, parts, self._port.now + self._sessions.patience)
            else:
                transfer.stage = Stage.PULLED
                if transfer.branch:
                    self._reading(transfer, lambda: self._merge(transfer, parts))
                else:
                    self._settle(transfer, lambda: self._reading(transfer, lambda: self._unpack(transfer, parts)))

    def _reading(self, transfer: _Transfer, read: Callable[[], None]) -> None:
        """Use what has come; if it makes no sense there is no session."""
        try:
            read()
        except ValueError as error:
            logger.error("the session of %r cannot be read: %s", transfer.claiming.client, error)
            self._stop(transfer)
            self._next(transfer)

    def _clear(self, transfer: _Transfer, parts: list[bytes], limit: float) -> None:
        """Begin when nothing is held here any more: what was acknowledged long ago could come out of it, and the client
        may have had it from a broker two moves before. And when what is here of before has gone where it is going."""
        if self.transfers.get(transfer.serial) is not transfer:
            return
        client, migrations = transfer.claiming.client, self._sessions.migrations
        if (self._waiting(["#"]) or migrations.offer(client)) and self._port.now < limit:
            self._port.after(POLL, lambda: self._clear(transfer, parts, limit))
        else:
            migrations.source.keep(client)
            self._reading(transfer, lambda: self._begin(transfer, parts))

    def _begin(self, transfer: _Transfer, parts: list[bytes]) -> None:
        """Have the session here, and subscribe for it. Raises ValueError."""
        transfer.stage, serial, waiting = Stage.SUBSCRIBING, transfer.serial, True

        def taken_up() -> None:
            nonlocal waiting
            if not waiting and self.transfers.get(serial) is transfer:
                self._settle(transfer, lambda: self._pull_contents(transfer))
            waiting = False

        transfer.filters = self._host.receive(transfer.claiming.client, parts, taken_up)
        taken_up()

    def _unpack(self, transfer: _Transfer, parts: list[bytes]) -> None:
        """All of the session is there. Raises ValueError."""
        self._host.unpack(transfer.claiming.client, parts, lambda single: _had_passed(transfer, single))
        transfer.stage = Stage.ARRIVED
        self._ask(transfer, Arrived(transfer.serial))

    def _merge(self, transfer: _Transfer, parts: list[bytes]) -> None:
        """The session here has what its branch had beside. Raises ValueError."""
        self._host.merge(transfer.claiming.client, parts)
        transfer.stage = Stage.ARRIVED
        self._ask(transfer, Arrived(transfer.serial))

    def on_departed(self, sender: BrokerRef, frame: Departed) -> None:
        transfer = self._asked(sender, frame.serial)
        if transfer is None or transfer.stage is Stage.ASKING:
            return
        if frame.granted and transfer.stage is Stage.ARRIVED:
            self._arrived(transfer)
        elif not frame.granted:  # it goes on there
            self._stop(transfer)
            self._sessions.finish(transfer.claiming, _outcome(transfer, Arrival.BUSY))

    def _arrived(self, transfer: _Transfer) -> None:
        self.taken += 1
        if transfer.branch:
            self.merged += 1
        elif transfer.source is not None:
            logger.info("the session of %r has come from %s", transfer.claiming.client, transfer.source.name)
        if transfer.sources and self._host.birth(transfer.claiming.client):  # what they have of it beside comes first
            del self.transfers[transfer.serial]
            transfer.branch = transfer.here = True
            self._next(transfer)
        else:
            self._finish(transfer, Arrival.MOVED)

    # --- what was published before ------------------------------------------------------------------------------------

    def _settle(self, transfer: _Transfer, then: Callable[[], None]) -> None:
        """Go on when all members have what was published so far, and this broker has passed on all that it has. Before
        the source packs, so that it has what did not come here; after, so that what comes by both ways has come."""
        plain, serial = [each for each in transfer.filters if shared(each) is None], transfer.serial

        def there() -> bool:
            return self.transfers.get(serial) is transfer

        def settled() -> None:
            transfer.heard = self._port.now
            then()

        limit = self._port.now + self._sessions.patience
        Settling(self._port, self._calls, self._waiting, plain, limit, there, settled)

    def _pull_contents(self, transfer: _Transfer) -> None:
        queued = [] if transfer.branch else self._host.queued(transfer.claiming.client)
        found = dict.fromkeys((each.publisher, each.topic) for each in queued if isinstance(each.publisher, BrokerRef))
        transfer.stage, transfer.pending = Stage.PULLING, list(found)
        self._ask(transfer, Pull(transfer.serial, 1, 0, transfer.pending))

    def forget(self, broker: BrokerRef) -> None:
        """A broker died, or has left: what has arrived from it is here, what has not is lost."""
        for transfer in list(self.transfers.values()):
            if transfer.source != broker:
                continue
            if transfer.stage is Stage.ARRIVED:
                self._arrived(transfer)
                continue
            logger.warning("the session of %r was at %s, which has gone", transfer.claiming.client, broker.name)
            self._stop(transfer)
            if not (transfer.kept and not transfer.branch and self._sessions.await_heir(transfer.claiming)):
                self._next(transfer)


def _outcome(transfer: _Transfer, otherwise: Arrival) -> Arrival:
    return Arrival.MOVED if transfer.here else otherwise


def _had_passed(transfer: _Transfer, single: Batch) -> bool:
    """Had this publication passed at the source before?"""
    origin = single.origin
    if origin is None or not isinstance(single.publisher, BrokerRef):
        return False
    return origin.seq <= transfer.marks.get((single.publisher, single.topic), 0)


def _nobody(arrival: Arrival) -> None:
    """Of what nobody waits for."""
