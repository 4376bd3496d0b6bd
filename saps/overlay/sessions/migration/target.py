"""The target of a migration (`saps.overlay.sessions.migration.migration`). It sends its requests step by step, and
repeats unanswered ones."""

from __future__ import annotations

import logging
from collections.abc import Callable

from saps.marks import hit
from saps.mesh import Arrival, SessionHost, Yields
from saps.overlay.delivery.settling import POLL, Settling
from saps.overlay.frames.base import Frame, ProtocolError
from saps.overlay.frames.calls import SessionLease
from saps.overlay.frames.sessions import Arrived, Departed, Pull, Snapshot, TakeOver, TakeOverAnswer
from saps.overlay.port import Port
from saps.overlay.rendezvous.range_calls import RangeCalls
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.claiming import Claiming
from saps.overlay.sessions.migration.transfer import Stage, Transfer
from saps.overlay.sessions.publications import Publications
from saps.overlay.sessions.sessions import Sessions
from saps.routing.batch import Batch

logger = logging.getLogger(__name__)

AGAIN = 0.25
"""Seconds after which an unanswered request is repeated, as a link may have broken."""
MOST_TIMEOUTS = 4
"""Most times `timeout` between two requests: as many as it takes to clear and to settle if neither ends well."""
MOST_ASKED = 16
"""Most brokers that are asked for one session if each names the next one."""
MOST_PARTS, MOST_BYTES = 1 << 14, 1 << 28
"""Most parts of one stage of a session, and most bytes in them. They stay in memory until the stage is complete."""


class MigrationTarget:
    """The sessions that move to one broker."""

    def __init__(self, port: Port, calls: RangeCalls, sessions: Sessions, publications: Publications) -> None:
        self._port = port
        self._calls = calls
        self._sessions = sessions
        self._publications = publications
        self._serial = 0
        self.transfers: dict[int, Transfer] = {}
        self.dropping: dict[int, tuple[BrokerRef, TakeOver]] = {}
        """By serial: brokers that have been told to end a session and have not answered, with the frame."""
        self.taken = 0
        """Number of sessions and branches that have come."""
        self.merged = 0
        """Number of branches among them."""

    @property
    def _host(self) -> SessionHost:
        assert self._sessions.host is not None
        return self._sessions.host

    def take(self, claiming: Claiming, stamp: int, sources: list[SessionLease]) -> None:
        """Fetch a claimed session, as `saps.overlay.sessions.migration.migration.Migrations.take` says."""
        self._next(Transfer(claiming, stamp, sources))

    def _next(self, transfer: Transfer) -> None:
        """Ask the next live broker for the session; end the claim if there is none."""
        claiming = transfer.claiming
        transfer.lease = None
        while sources := transfer.sources or claiming.beside():
            lease, *transfer.sources = sources
            source = lease.broker
            claiming.asked.add(source)
            if self._port.lost(source):
                if lease.kept and not transfer.branch and self._sessions.await_heir(claiming):
                    return
                logger.warning("the session of %r was at %s, which is dead", claiming.client, source.name)
                continue
            self._serial += 1
            transfer.serial, transfer.lease, transfer.stage = self._serial, lease, Stage.ASKING
            transfer.heard = self._port.now
            self.transfers[transfer.serial] = transfer
            keep, birth = claiming.keep, 0
            if transfer.branch:
                keep, birth = False, self._host.birth(claiming.client)
            self._ask(transfer, TakeOver(transfer.serial, claiming.client, transfer.stamp, claiming.user, keep, birth))
            self._tick(transfer, transfer.serial)
            return
        if claiming.silent and not (transfer.here or transfer.elsewhere):
            self._sessions.give_up(claiming)
        else:
            self._sessions.finish(claiming, _outcome(transfer, Arrival.LATER if transfer.elsewhere else Arrival.HERE))

    def _ask(self, transfer: Transfer, request: Frame) -> None:
        assert transfer.source is not None
        transfer.request = request
        logger.debug(
            "the session of %r, %s from %s: %s", transfer.claiming.client, transfer.stage.value, transfer.source.name,
            type(request).__name__,
        )  # fmt: skip
        self._port.send(transfer.source, request)

    def _tick(self, transfer: Transfer, serial: int) -> None:
        """Repeat an unanswered request every `AGAIN` seconds; give the source up after `timeout` seconds. Without a
        request ask for a part that there is not: the source keeps the session if it hears nothing."""

        def due() -> None:
            if self.transfers.get(serial) is not transfer or transfer.source is None:
                return
            silent = self._port.now - transfer.heard
            if transfer.request is not None and transfer.stage is not Stage.ARRIVED and silent > self._sessions.timeout:
                self._silent(transfer)
                return
            if silent >= AGAIN and (transfer.request is not None or silent < MOST_TIMEOUTS * self._sessions.timeout):
                self._port.send(transfer.source, transfer.request or Pull(serial, 0, MOST_PARTS))
            self._tick(transfer, serial)

        self._port.after(AGAIN, due)

    def _silent(self, transfer: Transfer) -> None:
        """Give up a silent source, and ask the next broker. A session that the client wants stays there: this broker
        may be the one that has stood still."""
        claiming, source = transfer.claiming, transfer.source
        assert source is not None
        self._stop(transfer)
        if claiming.given is not None or transfer.branch:  # no CONNECT waits
            self._sessions.finish(claiming, _outcome(transfer, Arrival.BUSY))
            return
        logger.warning(
            "the session of %r: %s does not answer in %g s", claiming.client, source.name, self._sessions.timeout
        )
        if claiming.keep:
            claiming.silent.append(source)
        else:
            self.drop(source, claiming.client, transfer.stamp, claiming.user)
        self._next(transfer)

    def _stop(self, transfer: Transfer) -> None:
        """Cancel a migration, and discard the incomplete session here."""
        del self.transfers[transfer.serial]
        if not transfer.branch and transfer.stage in (Stage.SUBSCRIBING, Stage.PULLING, Stage.PULLED, Stage.ARRIVED):
            self._host.discard(transfer.claiming.client)
        transfer.parts, transfer.request = [], None

    def interrupt(self, client: str) -> None:
        """Stop asking other brokers for the client's session, since this broker adopts it.

        A migration beyond that stage goes on."""
        for transfer in [each for each in self.transfers.values() if each.claiming.client == client]:
            if transfer.stage is Stage.ASKING and not transfer.branch:
                hit("question for a session that is adopted here")
                self._stop(transfer)

    def _finish(self, transfer: Transfer, arrival: Arrival) -> None:
        """End a migration and its claim; the brokers not asked yet have older sessions, which end."""
        del self.transfers[transfer.serial]
        for lease in transfer.sources:
            self.drop(lease.broker, transfer.claiming.client, transfer.stamp, transfer.claiming.user)
        self._sessions.finish(transfer.claiming, arrival)

    def reunite(self, claiming: Claiming, stamp: int) -> None:
        """Merge the branches of a session that was adopted here, then end its claim. `stamp` is that of the claim."""
        transfer = Transfer(claiming, stamp, [])
        transfer.branch = transfer.here = True
        self._next(transfer)

    def gather(self, broker: BrokerRef, client: str, stamp: int) -> None:
        """Merge a broker's branch of the client's session into the session here; afterwards the branch ends.

        `stamp` is that of the lease here."""
        claiming = Claiming(client, self._host.user(client), True, _nobody, self._port.now)
        claiming.branch = True
        self._next(Transfer(claiming, stamp, [SessionLease(client, broker, 0)]))

    def asks(self, broker: BrokerRef, client: str) -> bool:
        """Return whether the client's session is being fetched from a broker."""
        return any(each.source == broker and each.claiming.client == client for each in self.transfers.values())

    def ends(self, broker: BrokerRef, client: str) -> bool:
        """Return whether a broker has been told to end its session, or its session is fetched as a branch."""
        dropped = any(to == broker and frame.client == client for to, frame in self.dropping.values())
        return dropped or any(
            each.branch and each.source == broker and each.claiming.client == client for each in self.transfers.values()
        )

    def drop(self, broker: BrokerRef, client: str, stamp: int, user: str | None) -> None:
        """Tell a broker to end its session of the client, every `AGAIN` seconds until it answers or is lost."""
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

    def _asked(self, sender: BrokerRef, serial: int) -> Transfer | None:
        """Return the migration with this serial number if `sender` is its source, else None."""
        transfer = self.transfers.get(serial)
        return transfer if transfer is not None and transfer.source == sender else None

    def on_take_over_answer(self, sender: BrokerRef, frame: TakeOverAnswer) -> None:
        """Handle the answer of a source: pull its session, ask again, ask the next broker, or end the claim."""
        transfer, dropping = self._asked(sender, frame.serial), self.dropping.get(frame.serial)
        if dropping is not None and dropping[0] == sender:
            del self.dropping[frame.serial]
            self._sessions.migrations.release(dropping[1].client, frame.rest)
        elif transfer is not None and transfer.branch:
            self._sessions.migrations.release(transfer.claiming.client, frame.rest)
        if transfer is None or transfer.stage is not Stage.ASKING:
            return
        transfer.heard = self._port.now
        client = transfer.claiming.client
        here = self._host.birth(client) and not self._sessions.migrations.offer(client)
        if frame.answer == Yields.SESSION and transfer.branch and not here:
            hit("session gone before its branch came")  # the branch stays there, for the broker that has the session
            self._port.send(sender, Departed(frame.serial, False))
            self._stop(transfer)
            self._sessions.finish(transfer.claiming, _outcome(transfer, Arrival.BUSY))
        elif frame.answer == Yields.SESSION and transfer.branch:
            transfer.stage, transfer.request = Stage.SUBSCRIBING, None
            transfer.filters = self._host.filters(transfer.claiming.client)
            self._settle(transfer, lambda answered: self._pull_contents(transfer, answered))
        elif frame.answer == Yields.SESSION:
            transfer.stage = Stage.DESCRIBED
            self._ask(transfer, Pull(transfer.serial, 0, 0))
        elif frame.answer == Yields.WAIT or (frame.answer == Yields.MOVING and transfer.here):
            transfer.claiming.waited = True
            self._ask_later(transfer, transfer.request)
        elif frame.answer in (Yields.LATER, Yields.FORBIDDEN):
            del self.transfers[transfer.serial]
            later = frame.answer == Yields.LATER
            self._sessions.finish(transfer.claiming, Arrival.LATER if later else Arrival.FORBIDDEN)
        else:
            transfer.elsewhere |= frame.answer == Yields.MOVING
            del self.transfers[transfer.serial]
            self._follow(transfer, frame.gone)
            if not (transfer.claiming.waited and not transfer.branch and self._sessions.await_heir(transfer.claiming)):
                self._next(transfer)

    def _follow(self, transfer: Transfer, gone: BrokerRef | None) -> None:
        """Ask the broker next to which the session has gone, unless it has been asked."""
        client, asked = transfer.claiming.client, transfer.claiming.asked
        if gone is not None and gone.name != self._port.me.name and gone not in asked and len(asked) < MOST_ASKED:
            hit("session gone to another broker")
            transfer.sources.insert(0, SessionLease(client, gone, 0, transfer.kept))

    def _ask_later(self, transfer: Transfer, request: Frame | None) -> None:
        """Repeat a request after `POLL` seconds, if the migration is still at the same stage."""
        serial, stage = transfer.serial, transfer.stage

        def due() -> None:
            if self.transfers.get(serial) is transfer and transfer.stage is stage and request is not None:
                self._ask(transfer, request)

        self._port.after(POLL, due)

    def on_snapshot(self, sender: BrokerRef, frame: Snapshot) -> None:
        """Take the next part of a session, and go on when the stage is complete.

        Raises `ProtocolError` for a session with too many parts or bytes."""
        transfer = self._asked(sender, frame.serial)
        wanted = {Stage.DESCRIBED: 0, Stage.PULLING: 1}
        if transfer is None or wanted.get(transfer.stage) != frame.stage or frame.part != len(transfer.parts):
            return
        packed = (transfer.heard + self._port.now) / 2
        transfer.heard = self._port.now
        if not frame.parts:
            self._ask_later(transfer, transfer.request)
            return
        if not (frame.stage or frame.part):
            transfer.heritage = frame.heritage, frame.cut, packed
        if frame.stage and not frame.part:
            transfer.marks = dict(zip(transfer.marks, frame.passed, strict=False))
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
                self._clear(transfer, parts, self._port.now + self._sessions.timeout)
            else:
                transfer.stage = Stage.PULLED
                if transfer.branch:
                    self._reading(transfer, lambda: self._merge(transfer, parts))
                else:
                    self._settle(transfer, lambda _: self._reading(transfer, lambda: self._unpack(transfer, parts)))

    def _reading(self, transfer: Transfer, read: Callable[[], None]) -> None:
        """Run `read` on received parts; if they are malformed, log it and ask the next broker."""
        try:
            read()
        except ValueError as error:
            logger.error("the session of %r cannot be read: %s", transfer.claiming.client, error)
            self._stop(transfer)
            self._next(transfer)

    def _clear(self, transfer: Transfer, parts: list[bytes], limit: float) -> None:
        """Begin the session when no publication waits here and an older session of the client has left; at `limit` in
        any case.

        A waiting publication may have been acknowledged long ago. The client may have it from a broker two moves
        before, and would get it twice."""
        if self.transfers.get(transfer.serial) is not transfer:
            return
        client, migrations = transfer.claiming.client, self._sessions.migrations
        if (self._publications.waiting(["#"]) or migrations.offer(client)) and self._port.now < limit:
            self._port.after(POLL, lambda: self._clear(transfer, parts, limit))
        else:
            migrations.source.keep(client)
            self._reading(transfer, lambda: self._begin(transfer, parts))

    def _begin(self, transfer: Transfer, parts: list[bytes]) -> None:
        """Begin the session here and subscribe to its filters. Raises `ValueError` for malformed parts."""
        transfer.stage, serial, waiting = Stage.SUBSCRIBING, transfer.serial, True

        def taken_up() -> None:
            nonlocal waiting
            if not waiting and self.transfers.get(serial) is transfer:
                self._settle(transfer, lambda answered: self._pull_contents(transfer, answered))
            waiting = False

        transfer.filters = self._host.receive(transfer.claiming.client, parts, taken_up)
        self._sessions.migrations.heritage.add(transfer.claiming.client, *transfer.heritage)
        taken_up()

    def _unpack(self, transfer: Transfer, parts: list[bytes]) -> None:
        """Complete the session with its contents, and send `Arrived`. Raises `ValueError` for malformed parts."""
        self._host.unpack(transfer.claiming.client, parts, lambda single: _had_passed(transfer, single))
        transfer.stage = Stage.ARRIVED
        self._ask(transfer, Arrived(transfer.serial))

    def _merge(self, transfer: Transfer, parts: list[bytes]) -> None:
        """Merge a branch into the session here, and send `Arrived`. Raises `ValueError` for malformed parts."""
        self._host.merge(transfer.claiming.client, parts)
        transfer.stage = Stage.ARRIVED
        self._ask(transfer, Arrived(transfer.serial))

    def on_departed(self, sender: BrokerRef, frame: Departed) -> bool:
        """Handle the source's last answer: the session is granted, or it goes on at the source. Returns False if the
        frame is no answer to this broker."""
        transfer = self._asked(sender, frame.serial)
        if transfer is None or transfer.stage is Stage.ASKING:
            return False
        if frame.granted and transfer.stage is Stage.ARRIVED:
            self._arrived(transfer)
        elif not frame.granted:  # the session goes on at the source
            self._stop(transfer)
            self._sessions.finish(transfer.claiming, _outcome(transfer, Arrival.BUSY))
        return True

    def _arrived(self, transfer: Transfer) -> None:
        """Count a session that has come, and fetch its branches at other brokers before the claim ends."""
        self.taken += 1
        if transfer.branch:
            self.merged += 1
        elif transfer.source is not None:
            logger.info("the session of %r has come from %s", transfer.claiming.client, transfer.source.name)
        if (transfer.sources or transfer.claiming.beside()) and self._host.birth(transfer.claiming.client):
            # their branches come first
            del self.transfers[transfer.serial]
            transfer.branch = transfer.here = True
            self._next(transfer)
        else:
            self._finish(transfer, Arrival.MOVED)

    # --- what was published before ------------------------------------------------------------------------------------

    def _settle(self, transfer: Transfer, then: Callable[[frozenset[str] | None], None]) -> None:
        """Run `then` when members have acknowledged all publications so far and none waits here; after `timeout`
        seconds in any case.

        Before the source packs, this ensures that the source has what did not come here. Afterwards it ensures that
        publications that take both ways have come, so that duplicates are found."""
        serial = transfer.serial

        def there() -> bool:
            return self.transfers.get(serial) is transfer

        def settled(answered: frozenset[str] | None) -> None:
            transfer.heard = self._port.now
            logger.debug(
                "the session of %r: %s", transfer.claiming.client, "unsettled" if answered is None else "settled"
            )
            then(answered)

        waiting, limit = self._publications.waiting, self._port.now + self._sessions.timeout
        Settling(self._port, self._calls, waiting, transfer.plain, limit, there, settled, transfer.source)

    def _pull_contents(self, transfer: Transfer, answered: frozenset[str] | None) -> None:
        """Pull the contents. The request names the publishers and topics of the messages queued here: the source tells
        which of them it has passed on. That for a branch names the brokers whose publications come here anyway."""
        client, transfer.stage = transfer.claiming.client, Stage.PULLING
        if transfer.branch:
            number, brings = self._host.number(client), self._publications.brings(transfer.plain)
            self._ask(transfer, Pull(transfer.serial, 1, 0, [], number, brings))
            return
        self._sessions.migrations.heritage.pulled(client, answered or frozenset())
        if answered is None and transfer.source is not None:  # other brokers make up what was published there
            hit("own publications made up for a session that comes before all is settled")
            own = self._publications.missed_by(transfer.source, transfer.plain)
            self._host.make_up([client], own, again=True, late=False)
        queued = self._host.queued(client)
        found = ((each.publisher, each.topic) for each in queued if isinstance(each.publisher, BrokerRef))
        transfer.marks = dict.fromkeys(found, 0)
        self._ask(transfer, Pull(transfer.serial, 1, 0, list(transfer.marks)))

    def forget(self, broker: BrokerRef) -> None:
        """Handle the death or leaving of a source: a session that has arrived goes on here.

        For any other session the client waits for an heir, if there are copies, or the next broker is asked."""
        for transfer in list(self.transfers.values()):
            if transfer.source != broker:
                continue
            if transfer.stage is Stage.ARRIVED:
                self._arrived(transfer)
                continue
            logger.warning("the session of %r was at %s, which has gone", transfer.claiming.client, broker.name)
            if transfer.kept or transfer.stage is not Stage.ASKING:
                transfer.claiming.since = self._port.now  # it had the session: the wait for its heir begins anew
            self._stop(transfer)
            if not (transfer.kept and not transfer.branch and self._sessions.await_heir(transfer.claiming)):
                self._next(transfer)


def _outcome(transfer: Transfer, otherwise: Arrival) -> Arrival:
    return Arrival.MOVED if transfer.here else otherwise


def _had_passed(transfer: Transfer, single: Batch) -> bool:
    """Return whether the source had passed this publication on to the session before."""
    origin = single.origin
    if origin is None or not isinstance(single.publisher, BrokerRef):
        return False
    return origin.seq <= transfer.marks.get((single.publisher, single.topic), 0)


def _nobody(arrival: Arrival) -> None:
    """Ignore the outcome of a claim that nobody waits for."""
