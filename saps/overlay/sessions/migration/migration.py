"""Moves a session from one broker to another, so that no message is lost or delivered twice.

The **target**, to which the client has connected, leads. The **source** answers, and answers repeated requests again.

1. `TakeOver`: the source closes the client's connection. From now on it only queues messages for the session.
2. `Pull` of stage 0: the source sends settings and filters, and the target subscribes to the filters. Once the
   subscriptions hold everywhere, the target asks the publishers (`Unsettled`) until members have acknowledged all that
   was published by then, and the source has got what it missed. So earlier publications are at the source, and later
   ones come to the target.
3. `Pull` of stage 1: the source packs the session's messages. The target asks the publishers once more, so that
   publications that take both ways have come. Both brokers know the origin of each message. The target drops those of
   its own that the source has sent or had passed on before.
4. `Arrived`: the target has the whole session, on disk if it stores sessions. The source forgets the session and
   answers `Departed`. Only then does the target serve the client.

So exactly one broker has the session at any time. If the target dies before its `Arrived` has come, the source goes on
with the session. If the source dies before `Departed`, the target goes on: with the session after `Arrived`, without it
before.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

import msgspec

from saps.marks import hit
from saps.mesh import SessionHost, Trunk, Yields
from saps.overlay.frames.calls import SessionLease
from saps.overlay.frames.sessions import Arrived, Departed, Offer, Pull, Snapshot, TakeOver, TakeOverAnswer
from saps.overlay.port import Handlers, Port
from saps.overlay.rendezvous.range_calls import RangeCalls
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.claiming import Claiming
from saps.overlay.sessions.heritage import Heritage
from saps.overlay.sessions.migration.target import MigrationTarget
from saps.overlay.sessions.migration.transfer import Stage
from saps.overlay.sessions.publications import Publications
from saps.overlay.sessions.sessions import Sessions, has_session

logger = logging.getLogger(__name__)

TELL_AGAIN = 2.0
"""Seconds until the holders are asked again whether the session here or another broker's is the later one."""

REMEMBERED = 4096
"""Number of completed migrations that are remembered, to answer a repeated `Arrived`, or a late `TakeOver`."""

MARGIN = 2.0
"""Seconds beyond a target's timeout. A target that has not pulled for so long has given up, and the session stays."""


class _Offer:
    """A session that is moving to another broker."""

    __slots__ = ("asked", "branch", "contents", "description", "passed", "serial", "since", "stamp", "to")

    def __init__(self, to: BrokerRef, serial: int, stamp: int, description: list[bytes], branch: bool) -> None:
        self.stamp = stamp
        """The stamp of the target's claim."""
        self.branch = branch
        """Whether this session is a branch of the target's session."""
        self.to = to
        self.serial = serial
        self.description = description
        self.contents: list[bytes] | None = None
        self.passed: list[int] = []
        self.asked = 0.0
        """Time of the target's last request."""
        self.since: float | None = None
        """Time of the first request for the contents; None before it."""


class MigrationSource:
    """The sessions that move from one broker to others. It answers the targets' requests, which may be repeated."""

    def __init__(
        self,
        port: Port,
        sessions: Sessions,
        publications: Publications,
    ) -> None:
        self._port = port
        self._sessions = sessions
        self._publications = publications
        self.leaving: dict[str, _Offer] = {}
        """The migrations under way by client."""
        self._done: OrderedDict[tuple[BrokerRef, int], None] = OrderedDict()
        """Completed migrations (target, serial), the oldest first."""
        self._gone: OrderedDict[str, BrokerRef] = OrderedDict()
        """By client: the broker to which its session moved last from here, the oldest move first."""
        self.given = 0
        """Number of sessions that have moved away."""

    @property
    def _host(self) -> SessionHost:
        assert self._sessions.host is not None
        return self._sessions.host

    def on_take_over(self, sender: BrokerRef, frame: TakeOver) -> None:
        """Answer a target's request for a session, or for the end of a session."""
        host = self._sessions.host
        rest = [] if host is None or frame.keep else host.rest(frame.client)
        answer = self._yield(sender, frame)
        logger.debug("%s asks for the session of %r: %s", sender.name, frame.client, Yields(answer).name)
        rest = rest if answer == Yields.NOTHING else []
        self._port.send(sender, TakeOverAnswer(frame.serial, answer, self._whither(frame.client, answer), rest))

    def _whither(self, client: str, answer: int) -> BrokerRef | None:
        """Return the broker to which a session has gone that is not here. The one that asks may have come from beyond a
        cut, and not know."""
        return self._gone.get(client) if answer == Yields.NOTHING else None

    def _yield(self, sender: BrokerRef, frame: TakeOver) -> int:
        """Begin to hand a session over, if there is one and no later claim forbids it. Return the answer (`Yields`)."""
        client, sessions = frame.client, self._sessions
        if sessions.host is None:
            return Yields.NOTHING
        offer = self.leaving.get(client)
        if offer is not None:
            if offer.to == sender and offer.serial == frame.serial:
                return Yields.SESSION
            if offer.to != sender and not self._port.lost(offer.to):
                return Yields.LATER if offer.stamp > frame.stamp else Yields.MOVING
            self.keep(client)
        mine = sessions.leases.get(client, 0)
        if (claiming := sessions.claimings.get(client)) is not None:
            claiming.later = max(claiming.later, frame.stamp if claiming.user == frame.user else 0)
            # Several heirs of a broker that seemed dead have claims with the same stamp: they must not all wait.
            return Yields.LATER if (mine, self._port.me.name) > (frame.stamp, sender.name) else Yields.WAIT
        branch = bool(frame.birth) and sessions.host.birth(client) == frame.birth
        if mine > frame.stamp or (branch and sessions.take_back(client, frame.stamp)):
            return Yields.LATER
        if sessions.migrations.transfer(client, asked=False):
            hit("session asked for while a branch of it comes")  # what the branch brings must not come after the rest
            return Yields.WAIT
        answer = sessions.host.surrender(client, frame.user, frame.keep or branch)
        if answer is Yields.NOTHING and sessions.copied.restores(client):
            answer = Yields.WAIT
        elif answer is Yields.NOTHING:
            sessions.withdraw(client)
        elif answer is Yields.SESSION:
            description = sessions.host.describe(client)
            offer = self.leaving[client] = _Offer(sender, frame.serial, frame.stamp, description, branch)
            self._look(client, offer, self._port.now)
            sessions.leases[client] = max(0, frame.stamp - 2)  # stamp - 1 would mark an adopted session's owner
        return answer

    def _look(self, client: str, offer: _Offer, asked: float) -> None:
        """Keep the session here if the target sends no request for `timeout` + `MARGIN` seconds."""

        def look() -> None:
            if self.leaving.get(client) is offer and offer.asked == asked:
                self.keep(client)
                self._sessions.sync_one(client)
            elif self.leaving.get(client) is offer:
                self._look(client, offer, offer.asked)

        offer.asked = asked
        self._port.after(self._sessions.timeout + MARGIN, look)

    def keep(self, client: str) -> None:
        """Cancel the migration of the client's session, if one is under way: the session stays here."""
        if self.leaving.pop(client, None) is not None:
            self._host.stay(client)

    def declined(self, sender: BrokerRef, serial: int) -> None:
        """Keep the branch that a target does not take."""
        client = self._given_to(sender, serial)
        if client is not None and self.leaving[client].branch:
            self.keep(client)
            self._sessions.sync_one(client)

    def _given_to(self, sender: BrokerRef, serial: int) -> str | None:
        """Return the client of a migration under way, or None."""
        for client, offer in self.leaving.items():
            if offer.to == sender and offer.serial == serial:
                return client
        return None

    def on_pull(self, sender: BrokerRef, frame: Pull) -> None:
        """Send one part of a session, or no parts while the contents are not settled.

        Without such a migration the answer is `Departed`, not granted: the session stayed here or has gone."""
        client = self._given_to(sender, frame.serial)
        if client is None:
            self._port.send(sender, Departed(frame.serial, False))
            return
        offer = self.leaving[client]
        offer.asked = self._port.now
        if frame.stage and offer.contents is None:
            self._pack(client, offer, frame)
        parts = offer.contents if frame.stage else offer.description
        if parts is None:
            self._port.send(sender, Snapshot(frame.serial, frame.stage, frame.part, 0, b""))
        elif frame.part < len(parts):
            passed = offer.passed if frame.stage and not frame.part else []
            part = Snapshot(frame.serial, frame.stage, frame.part, len(parts), parts[frame.part], passed)
            if not (frame.stage or frame.part or offer.branch):
                heritage = self._sessions.migrations.heritage
                part = msgspec.structs.replace(part, heritage=heritage.of(client), cut=heritage.cut)
            self._port.send(sender, part)

    def _pack(self, client: str, offer: _Offer, frame: Pull) -> None:
        """Pack the session's contents, unless matching publications wait here; after `timeout` seconds regardless.

        `frame.asked` has pairs of broker and topic; for each the number of the last publication passed on here is
        noted."""
        now = self._port.now
        if offer.since is None:
            offer.since = now
        late = now - offer.since > self._sessions.timeout
        if self._publications.waiting(self._host.filters(client)) and not late:
            return
        brings = {(name, incarnation): above for name, incarnation, above in frame.brings}
        trunk = Trunk((offer.to.name, offer.to.incarnation), frame.trunk, brings)
        offer.contents = self._host.pack(client, late, trunk if offer.branch else None)
        offer.passed = [self._publications.passed(origin, topic) for origin, topic in frame.asked]

    def on_arrived(self, sender: BrokerRef, frame: Arrived) -> None:
        """Forget a session that has arrived at its target, and grant it; a repeated frame gets the same answer."""
        client = self._given_to(sender, frame.serial)
        if client is not None:
            del self.leaving[client]
            logger.debug("the session of %r has left for %s", client, sender.name)
            self._host.depart(client)
            self.given += 1
            self._done[sender, frame.serial] = None
            self._gone.pop(client, None)
            self._gone[client] = sender
            for moves in (self._done, self._gone):
                if len(moves) > REMEMBERED:
                    moves.popitem(last=False)
        self._port.send(sender, Departed(frame.serial, (sender, frame.serial) in self._done))

    def forget(self, broker: BrokerRef) -> None:
        """Keep the sessions that were moving to a broker that has died or left.

        Its claims are over: nobody adopts a session that it never had. So the session here counts as the later one."""
        for client, offer in list(self.leaving.items()):
            if offer.to == broker:
                self.keep(client)
                if not offer.branch:
                    self._sessions.leases[client] = offer.stamp + 1
                self._sessions.sync_one(client)


class Migrations:
    """The migrations to and from one broker."""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        sessions: Sessions,
        publications: Publications,
    ) -> None:
        self._port = port
        self._sessions = sessions
        self._offering: set[str] = set()
        """Clients of older sessions here that other brokers have been told of (`Offer`) in the last `TELL_AGAIN`
        seconds."""
        self.heritage = Heritage(port, publications, lambda: sessions.host)
        self.target = MigrationTarget(port, calls, sessions, publications)
        self.source = MigrationSource(port, sessions, publications)

    def offer(self, client: str) -> bool:
        """Return whether the client's session is moving to another broker."""
        return client in self.source.leaving

    def transfer(self, client: str, asked: bool = True) -> bool:
        """Return whether the client's session is moving here, or, with `asked`, whether a broker is asked for it."""
        transfers = (each for each in self.target.transfers.values() if each.claiming.client == client)
        return any(asked or transfer.stage is not Stage.ASKING for transfer in transfers)

    def fetches(self, claiming: Claiming) -> bool:
        """Return whether a migration for this claim is under way."""
        return any(each.claiming is claiming for each in self.target.transfers.values())

    def take(self, claiming: Claiming, stamp: int, sources: list[SessionLease]) -> None:
        """Fetch a claimed session from the first of these brokers that has one, and make the others end theirs.

        `stamp` is that of the claim, `sources` the leases of other brokers, the latest first."""
        self.target.take(claiming, stamp, sources)

    def awaited(self) -> dict[str, BrokerRef]:
        """Return, by name, the brokers whose failure must be noticed, since a migration waits for them."""
        found = {offer.to.name: offer.to for offer in self.source.leaving.values()}
        found.update((t.source.name, t.source) for t in self.target.transfers.values() if t.source is not None)
        found.update((broker.name, broker) for broker, _ in self.target.dropping.values())
        return found

    @property
    def handlers(self) -> Handlers:
        return {
            TakeOver: self.source.on_take_over,
            TakeOverAnswer: self.target.on_take_over_answer,
            Pull: self.source.on_pull,
            Snapshot: self.target.on_snapshot,
            Arrived: self.source.on_arrived,
            Departed: self._on_departed,
            Offer: self._on_offer,
        }

    def release(self, client: str, rest: list[bytes]) -> None:
        """Have the session here release what its client has from another one of its own, which has ended: it would take
        later messages with these identifiers for the same ones."""
        if rest and self._sessions.host is not None:
            hit("released for a session that has ended elsewhere")
            try:
                self._sessions.host.merge(client, rest)
            except ValueError as error:
                logger.error("what is left of the session of %r cannot be read: %s", client, error)

    def _on_departed(self, sender: BrokerRef, frame: Departed) -> None:
        if not self.target.on_departed(sender, frame) and not frame.granted:
            self.source.declined(sender, frame.serial)

    def tell(self, broker: BrokerRef, client: str) -> None:
        """Report the session here to a broker with a later one, which ends this one, or with the older one that was
        adopted here, which may take it back.

        Frames may be lost, so the holders are asked again after `TELL_AGAIN` seconds, while the session is here."""
        self._port.send(broker, Offer(client))
        if client not in self._offering:
            self._offering.add(client)
            self._port.after(TELL_AGAIN, lambda: self._look(client))

    def _look(self, client: str) -> None:
        """Report the client's session to the holders again if it is still here."""
        self._offering.discard(client)
        if client in self._sessions.leases and not self.offer(client):
            self._sessions.sync_one(client)

    def _on_offer(self, sender: BrokerRef, frame: Offer) -> None:
        sessions, client = self._sessions, frame.client
        if client in sessions.claimings or not has_session(sessions.host, client):
            self.offered(sender, client)
        else:  # the holders tell which of the two sessions is the later one
            sessions.sync_one(client)

    def offered(self, sender: BrokerRef, client: str) -> None:
        """Make a broker end its older session of a client.

        A claim under way only notes the broker. If there is no session here either, the holders are told. A branch of
        the session here is fetched before it ends."""
        sessions = self._sessions
        if sessions.host is None or self.offer(client):
            return
        if (claiming := sessions.claimings.get(client)) is not None:
            claiming.offered[sender] = None
            if not self.target.asks(sender, client):  # it may have been asked while it was dead
                claiming.asked.discard(sender)
        elif client not in sessions.leases:
            sessions.withdraw(client)
        elif self.target.ends(sender, client):
            return
        elif sessions.host.birth(client):
            self.target.gather(sender, client, sessions.leases[client])
        else:
            logger.warning("ended an older session of %r at %s: a later one is here", client, sender.name)
            self.target.drop(sender, client, sessions.leases[client], sessions.host.user(client))

    def keep_all(self) -> None:
        """Cancel all migrations from this broker: their sessions stay."""
        for client in list(self.source.leaving):
            self.source.keep(client)

    def forget(self, broker: BrokerRef) -> None:
        """End the migrations to and from a broker that has died or left."""
        self.source.forget(broker)
        self.target.forget(broker)
