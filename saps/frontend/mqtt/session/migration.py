"""Migrates sessions to the brokers that their clients connect to (MQTT 5.0, sections 3.1.4 and 4.1).

On the target, a CONNECT waits until the mesh has located the client's session and moved it here. On the source, the
mesh requests the session of a client that has connected to another broker.
"""

from __future__ import annotations

import logging
from binascii import crc32
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.session.branches import incarnation_of, merge_branch
from saps.frontend.mqtt.session.durable import Base, DurableSession
from saps.frontend.mqtt.session.memory import Memory
from saps.frontend.mqtt.session.session import HALF_DONE, Session
from saps.frontend.mqtt.session.snapshot import (
    Item,
    Settings,
    copies_of,
    described,
    had_of,
    incoming_of,
    items_beside,
    items_of,
    ordered,
    packed,
    snapshot_of,
    unpacked,
)
from saps.frontend.mqtt.session.window import beside
from saps.marks import hit
from saps.mesh import Arrival, Sessions, Trunk, Yields
from saps.routing.batch import Batch, Origin
from saps.storage.journal import Change
from saps.storage.past import Asked
from saps.storage.saved import SavedMessage, SavedSession
from saps.topics import shared

if TYPE_CHECKING:
    from saps.frontend.mqtt.common import Common
    from saps.frontend.mqtt.connection.client_connection import ClientConnection
    from saps.frontend.mqtt.session.sessions import Sessions as SessionTable

logger = logging.getLogger(__name__)

NOWHERE = Base(0, frozenset())
Enter = Callable[[Arrival], None]
"""Callback that goes on with a CONNECT."""
Waiting = tuple["ClientConnection", Enter]


def _nothing() -> None:
    pass


def _nothing_of(session: Session) -> None:
    pass


class SessionMigration:
    """Migrates the sessions of one frontend. (A `saps.mesh.SessionHost`, which has the contracts of its methods.)"""

    def __init__(
        self, common: Common, sessions: SessionTable, mesh: Sessions, admit: Callable[[Session], None] = _nothing_of
    ) -> None:
        """Make the migration of one frontend. `admit` gives a session without a connection the rights of its user."""
        self._common = common
        self._sessions = sessions
        self._mesh = mesh
        self._arrivals: dict[str, list[Waiting]] = {}
        """By client: the waiting CONNECTs, oldest first."""
        self._leaving: dict[str, tuple[float, float]] = {}
        """By client of a session that leaves: the time when the session would end, and when its will would be due."""
        self._coming: set[str] = set()
        """Clients whose sessions are migrating here."""
        self._unclaimed: set[str] = set()
        """Clients whose sessions were adopted here, and that have not connected since."""
        self._beside: dict[str, list[bytes]] = {}
        """By client: the contents of this broker's own branch of a session that is migrating here, to merge later."""
        self._made_up: dict[str, set[Origin]] = {}
        """By client of a session that is on its way here: missed publications that came for it. The broker that it
        leaves may have passed them on to others, but not to it."""
        self._ended: dict[str, None] = {}
        """Clients whose sessions have ended since the last report to the mesh."""
        self._asked: dict[str, int] = {}
        """By client of a waiting CONNECT: the requested session expiry interval in seconds."""
        self.admit = admit

    # ---- the connections' side

    def must_wait(self, client: str, assigned: bool, expiry: int) -> bool:
        """Return whether a CONNECT must wait, because another broker may have a session of the client. If it need not,
        a session here that lasts counts from now on as claimed by this CONNECT.

        `assigned`: this broker has just assigned the client identifier. `expiry`: the requested session expiry interval
        in seconds.
        """
        if assigned and not expiry:
            return False
        waits = client in self._arrivals or client in self._unclaimed or client in self._ended
        if waits or not self._mesh.at_home(client):
            return True
        known = self._sessions.get(client)
        if known is not None and (known.expiry or expiry):  # others may have claimed it, or adopted its copies
            self._asked[client] = expiry
            self._mesh.renew(client)
            del self._asked[client]
        return False

    def wait(self, connection: ClientConnection, client: str, clean_start: bool, expiry: int, enter: Enter) -> None:
        """Locate the client's session and move it here, then call `enter`, perhaps at once."""
        waiting = self._arrivals.get(client)
        if waiting is not None:
            waiting.append((connection, enter))
            return
        self._unclaimed.discard(client)
        self._arrivals[client] = [(connection, enter)]
        self._asked[client] = expiry
        self._mesh.claim(client, connection.user, not clean_start, partial(self._arrived, client))

    def _arrived(self, client: str, arrival: Arrival) -> None:
        present = [(connection, enter) for connection, enter in self._arrivals.pop(client) if not connection.closing]
        for _, enter in present[:-1]:
            enter(Arrival.LATER)
        for _, enter in present[-1:]:
            enter(arrival)
        self._asked.pop(client, None)
        session = self._sessions.get(client)
        if session is None:
            self._mesh.release(client)
        elif client in self._coming and session.connection is None:  # its client has disconnected meanwhile
            self._sessions.away(session)
        self._coming.discard(client)

    def adopt(self, client: str, claim: Callable[[Enter], bool], settle: Callable[[Session], None]) -> bool:
        """Adopt the session of a client that has not connected here.

        `claim` begins the migration, and returns False if that is impossible. `settle` gets the session when it has
        arrived, before its client enters it. A CONNECT that waits for a session that does not arrive must try again.
        Returns False if the session is already here or arriving, or `claim` fails.
        """
        if client in self._arrivals or client in self._sessions:
            return False
        self._arrivals[client] = []

        def adopted(arrival: Arrival) -> None:
            session = self._sessions.get(client)
            if arrival is Arrival.MOVED and session is not None:
                settle(session)
            self._arrived(client, arrival if arrival in (Arrival.MOVED, Arrival.LATER) else Arrival.BUSY)

        if not claim(adopted):
            self._arrivals.pop(client, None)
            return False
        return True

    def moving(self, client: str) -> bool:
        """Return whether the client's session is moving to or from another broker."""
        return client in self._leaving or client in self._coming

    def ended(self, client: str) -> None:
        """Report to the mesh that the client's session has ended, unless a new one begins in this turn."""
        if not self._mesh.claimed(client):
            return
        if not self._ended:
            self._common.timers.at(self._common.clock(), self._tell_ended)
        self._ended[client] = None

    def _tell_ended(self, now: float) -> None:
        ended, self._ended = self._ended, {}
        for client in ended:
            if client not in self._sessions and client not in self._arrivals:
                self._unclaimed.discard(client)
                self._mesh.release(client)

    # ---- a session that leaves

    def clients(self) -> Iterable[str]:
        return list(self._sessions)

    def user(self, client: str) -> str | None:
        session = self._sessions.get(client)
        return None if session is None else session.user

    def lasting(self, client: str) -> bool:
        if client in self._asked:
            return self._asked[client] > 0
        session = self._sessions.get(client)
        return session is not None and session.expiry > 0

    def number(self, client: str) -> int:
        session = self._sessions.get(client)
        return session.number if isinstance(session, DurableSession) and session.lasting else 0

    def birth(self, client: str) -> int:
        session = self._sessions.get(client)
        return session.birth if isinstance(session, DurableSession) and session.lasting else 0

    def renewed(self, client: str) -> None:
        session = self._sessions.get(client)
        if isinstance(session, DurableSession):
            session.persist()

    def rows(self) -> Iterator[Iterator[Change]]:
        for client in list(self._sessions):
            session = self._sessions.get(client)
            if isinstance(session, DurableSession):
                yield session.rows()

    def surrender(self, client: str, user: str | None, keep: bool) -> Yields:
        session = self._sessions.get(client)
        if session is None:
            return Yields.NOTHING
        if session.user != user:
            return Yields.FORBIDDEN
        if session.connection is not None:
            session.connection.close(Reason.SESSION_TAKEN_OVER)
        if self._sessions.get(client) is not session:
            return Yields.NOTHING
        if not keep:
            self._sessions.end(session)
            return Yields.NOTHING
        self._leaving[client] = session.ends_at, 0.0 if session.will is None else session.will.due
        session.ends_at = inf
        if session.will is not None:
            session.will.due = inf
        return Yields.SESSION

    def rest(self, client: str) -> list[bytes]:
        session = self._sessions.get(client)
        inflight = {} if session is None else session.window.inflight
        items = [Item(number) for number, copy in inflight.items() if copy is None or copy[1].qos == 2]
        return packed(items, {}) if items else []

    def filters(self, client: str) -> list[str]:
        return list(self._sessions[client].subscriptions)

    def describe(self, client: str) -> list[bytes]:
        session = self._sessions[client]
        settings = Settings(session.user, session.expiry, session.window.next_id, self.birth(client))
        return described(settings, session.subscriptions.values())

    def pack(self, client: str, force: bool, trunk: Trunk | None = None) -> list[bytes] | None:
        session = self._sessions[client]
        if trunk is None or not isinstance(session, DurableSession):
            return _contents(self._common, session, force)
        base = session.base.get(trunk.broker, NOWHERE)
        known = session.repaired | base.had
        stood_in = client in self._unclaimed and 0 < trunk.number == base.number
        return _contents(self._common, session, force, known, trunk.brings if stood_in else None)

    def depart(self, client: str) -> None:
        session = self._sessions[client]
        del self._leaving[client]
        self._unclaimed.discard(client)
        session.hand_off()
        self._sessions.void_will(session)
        self._sessions.end(session)

    def stay(self, client: str) -> None:
        session = self._sessions[client]
        session.ends_at, due = self._leaving.pop(client)
        if session.will is not None:
            session.will.due = due
        for topic_filter, subscription in session.subscriptions.items():
            if shared(topic_filter) is not None:
                session.hub.subscribe(session, subscription, _nothing)
        self._sessions.away(session)

    # ---- a session that comes

    def receive(self, client: str, parts: list[bytes], subscribed: Callable[[], None]) -> list[str]:
        found = unpacked(parts)
        settings = found[0].settings
        if settings is None:
            raise ValueError("no settings")
        self._beside.pop(client, None)
        if (old := self._sessions.get(client)) is not None:  # an older session of the client, or a branch
            beside = None
            if settings.birth and isinstance(old, DurableSession) and self.birth(client) == settings.birth:
                beside = _contents(self._common, old, True, old.repaired)
            self._sessions.void_will(old)
            self._sessions.end(old)
            if beside is not None:
                self._beside[client] = beside
        session = self._sessions[client] = self._sessions.new_session(client, settings.expiry, settings.birth)
        session.user, session.expiry = settings.user, self._sessions.granted_expiry(settings.expiry, settings.user)
        session.window.next_id, session.ends_at = settings.next_id, self._common.clock() + session.expiry
        self._coming.add(client)
        missing = 1

        def one_done() -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                subscribed()

        for subscription in [each for part in found for each in part.subscriptions]:
            missing += 1
            session.resubscribe(subscription, one_done)
        one_done()
        return list(session.subscriptions)

    def queued(self, client: str) -> list[Batch]:
        return [copy[0] for copy in self._sessions[client].queue.copies or ()]

    def unpack(self, client: str, parts: list[bytes], passed: Callable[[Batch], bool]) -> None:
        found = unpacked(parts)
        session = self._sessions[client]
        items = [item for part in found for item in part.items]
        had, known = had_of(found), {item.origin for item in items if item.origin is not None}
        there = known | Asked(copy[0].origin for copy in session.queue.copies or ()).among(had)
        made_up = self._made_up.pop(client, set())
        queued = [copy for copy in session.queue.copies or () if copy[0].origin not in there]
        waited = [copy for copy in queued if copy[0].origin in made_up or not passed(copy[0])]
        inflight, waiting = copies_of(items, self._common.clock())
        logger.debug("the session of %r is complete: %d in flight and %d waiting came, %d of %d queued here stay",
                     client, len(inflight), len(waiting), len(waited), len(session.queue.copies or ()))  # fmt: skip
        session.adopt(inflight, incoming_of(found), [*waiting, *ordered(waited)])
        if isinstance(session, DurableSession):
            session.remember(had)
            session.came(known, had)
        if (beside := self._beside.pop(client, None)) is not None:
            self.merge(client, beside)

    # ---- a session of a broker that has died

    def inherit(
        self,
        saved: SavedSession,
        messages: dict[int, SavedMessage],
        owner: tuple[str, int],
        subscribed: Callable[[], None],
    ) -> tuple[list[str], Callable[[Arrival], None], Callable[[], None]]:
        client = saved.client_id
        epoch = _epoch(self._common)
        now = self._common.clock() + epoch
        first, second = snapshot_of(saved, messages, now)
        claimed = bool(self._arrivals.setdefault(client, []))
        filters = self.receive(client, first, subscribed)
        session = self._sessions[client]
        # Beyond a cut the session may go on at its owner: a client that goes there must not take messages of the two
        # brokers for one.
        session.window.next_id = beside(saved.last_id, crc32(f"{owner}".encode()))
        if saved.ends is not None:
            session.ends_at = saved.ends - epoch

        def complete() -> None:
            self.unpack(client, second, lambda single: False)
            if isinstance(session, DurableSession):
                had = (item.origin for part in unpacked(second) for item in part.items)
                session.base[owner] = Base(saved.number, frozenset(origin for origin in had if origin is not None))
            if not claimed:
                self._unclaimed.add(client)
            self.admit(session)
            session.obey(session.rights)

        def arrived(arrival: Arrival) -> None:
            if claimed:
                self._arrived(client, arrival)
                return
            waiting, self._arrivals[client] = self._arrivals[client], []
            self._arrived(client, arrival)
            for connection, enter in waiting:  # a new claim is later than the adoption: the old owner must not win
                self.wait(connection, client, False, session.expiry, enter)

        return filters, arrived, complete

    def absorb(self, saved: SavedSession, messages: dict[int, SavedMessage]) -> None:
        client = saved.client_id
        if saved.birth and saved.birth == self.birth(client):
            self.merge(client, snapshot_of(saved, messages, self._common.clock() + _epoch(self._common))[1])

    def make_up(self, clients: Iterable[str], batches: Iterable[Batch], again: bool, late: bool) -> None:
        sessions = {session for client in clients if (session := self._sessions.get(client)) is not None}
        batches = [*batches]
        asked = Asked(single.origin for batch in batches for single in batch.singles)
        memories = {session: Memory(session, late, asked) for session in sessions}
        for batch in batches:
            batch.set_deadlines(self._common.clock())
            for single in batch.singles:
                for target in self._common.hub.index.targets(single.topic):
                    agent = target.agent
                    if not isinstance(agent, Session) or agent not in memories:
                        continue
                    if memories[agent].lacks(single.origin):
                        agent.deliver(single, target)
                        if agent.client_id in self._coming and single.origin is not None:
                            self._made_up.setdefault(agent.client_id, set()).add(single.origin)
                    if again and isinstance(agent, DurableSession) and single.origin is not None:
                        agent.came((single.origin,))

    def merge(self, client: str, parts: list[bytes]) -> None:
        found = unpacked(parts)
        session = self._sessions.get(client)
        if not isinstance(session, DurableSession):
            return
        merge_branch(self._common, session, found)

    def discard(self, client: str) -> None:
        self._coming.discard(client)
        self._made_up.pop(client, None)
        if client in self._beside:  # the branch of before goes on
            self.unpack(client, packed((), {}), lambda single: False)
        else:
            self._sessions.end(self._sessions[client])


def _epoch(common: Common) -> float:
    """Return the zero of the frontend's clock in seconds since the epoch, from the journal.

    Raises `RuntimeError` without a journal, as only stored sessions can be inherited."""
    journal = common.storage.journal
    if journal is None:
        raise RuntimeError("a session was inherited by a broker that stores none")
    return journal.epoch


def _contents(
    common: Common,
    session: Session,
    force: bool,
    known: frozenset[Origin] = frozenset(),
    brings: dict[tuple[str, int], int] | None = None,
) -> list[bytes] | None:
    """Pack a session as `SessionMigration.pack` does, without the publications `known`. `brings` is given for a branch
    that has only stood in for its trunk, and is as in `saps.mesh.Trunk`."""
    incoming = session.incoming or {}
    if -1 in incoming.values() and not force:
        return None
    for topic_filter in session.subscriptions:
        if shared(topic_filter) is not None:  # a leaving member gets no new messages of its group
            session.hub.unsubscribe(session, topic_filter)
    # This broker goes on repeating unconfirmed publications. The client publishes those again that an earlier
    # incarnation may have published only in part.
    taken = {packet_id: max(1, reached) for packet_id, reached in incoming.items() if reached != HALF_DONE}
    if brings is not None:
        hit("branch that stood in for a session")
        beside = items_beside(session, incarnation_of(common), common.clock(), brings)
        return packed((item for item in beside if item.origin not in known), {})
    items = list(items_of(session, incarnation_of(common), common.clock()))
    if not isinstance(session, DurableSession):
        return packed(items, taken)
    pending = [item.origin for item in items if item.origin is not None and item.origin in known]
    fresh = (item for item in items if item.packet_id or item.origin not in known)
    return packed(fresh, taken, session.past, pending)
