"""The table of a broker's sessions. It opens and expires sessions, and publishes wills when they are due."""

from __future__ import annotations

from functools import partial
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from saps.agents.user import Rights
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.permission import PermissionRequest
from saps.frontend.mqtt.session.durable import DurableSession
from saps.frontend.mqtt.session.session import Session
from saps.frontend.mqtt.timers import Timer
from saps.messages import Message
from saps.routing.batch import Batch

if TYPE_CHECKING:
    from saps.frontend.mqtt.common import Common
    from saps.frontend.mqtt.connection.client_connection import ClientConnection
    from saps.frontend.mqtt.session.migration import SessionMigration


LOOKS = 64
"""Most sessions that one CONNECT examines to find one to evict."""


class Sessions(dict[str, Session]):
    """The sessions of one broker, by client identifier."""

    def __init__(self, common: Common, rng: Random) -> None:
        super().__init__()
        self._common = common
        self._rng = rng
        self._timers: dict[str, list[Timer]] = {}
        """By client that is away: the timers of its session's expiry and its will."""
        self._idle: dict[str, None] = {}
        """Clients that are away, longest first; examined ones that could not be evicted go to the end."""
        self.leaving = False
        """Whether the broker is about to leave the mesh."""
        self.migration: SessionMigration | None = None
        """Migrates sessions between brokers; None without it."""

    def assign_client_id(self) -> str:
        """Return a new client identifier that no session has (3.2.2.3.7)."""
        while True:
            client_id = f"saps-{self._rng.getrandbits(64):016x}"
            if client_id not in self:
                return client_id

    def open(
        self, connection: ClientConnection, client_id: str, clean_start: bool, expiry: int, rights: Rights | None
    ) -> tuple[Session, bool]:
        """Open the client's session for a connection, and return it and whether it existed before.

        The connection takes the session over from an earlier connection (3.1.4). `expiry`: the requested session expiry
        interval in seconds. `rights`: the client's rights; None: all.
        """
        session = self.get(client_id)
        if session is not None and session.connection is not None:
            session.connection.close(Reason.SESSION_TAKEN_OVER)
            session = self.get(client_id)
        if session is not None and clean_start:
            self.end(session)
            session = None
        present = session is not None
        if session is None:
            session = self[client_id] = self.new_session(client_id, expiry)
        self._idle.pop(client_id, None)
        self.void_will(session)
        session.expiry = self.granted_expiry(expiry, connection.user)
        session.attach(connection)
        self._cancel_timers(session)
        session.user = connection.user
        if session.rights is not rights:
            session.obey(rights)
            self._common.hub.forget_agent_routes(session)
        return session, present

    def new_session(self, client_id: str, expiry: int, birth: int = 0) -> Session:
        """Make a session without a connection; the caller must add it to the table.

        `expiry`: session expiry interval in seconds. `birth`: the identity of a session from another broker.
        """
        journal = self._common.storage.journal
        if journal is None or not (expiry or journal.disk):
            return Session(self._common.hub, client_id, self._common.limits, self._common.queued)
        name = birth or self._rng.getrandbits(62) + 1
        return DurableSession(self._common.hub, client_id, self._common.limits, self._common.queued, journal, name)

    def granted_expiry(self, expiry: int, user: str | None) -> int:
        """Return the session expiry interval that the limits grant, in seconds."""
        most = self._common.limits.maximum_session_expiry
        return min(expiry, most if user is not None else min(most, self._common.limits.anonymous_session_expiry))

    def is_moving(self, client_id: str) -> bool:
        """Return whether the session is moving to or from another broker."""
        return self.migration is not None and self.migration.moving(client_id)

    def detach(self, session: Session, with_will: bool) -> None:
        """Detach a session from its connection. `with_will`: keep the will, as no DISCONNECT has voided it
        (3.1.2.5)."""
        now = self._common.clock()
        session.detach()
        if not with_will:
            self.void_will(session)
        if session.will is not None:
            session.will.due = now + min(session.will.delay, session.expiry)
        session.ends_at = now + session.expiry
        self.away(session)

    def away(self, session: Session) -> None:
        """Set the timers for the expiry and the will of a session without a connection."""
        now = self._common.clock()
        self._cancel_timers(session)
        timers: list[Timer] = []
        if session.will is not None and session.will.due > now:
            timers.append(self._common.timers.at(session.will.due, partial(self._publish_delayed_will, session)))
        else:
            self._publish_will(session)
        if session.ends_at <= now:
            self.end(session)
            return
        session.give_back()
        session.persist()
        self._idle[session.client_id] = None
        timers.append(self._common.timers.at(session.ends_at, partial(self._expire, session)))
        self._timers[session.client_id] = timers

    def _cancel_timers(self, session: Session) -> None:
        for timer in self._timers.pop(session.client_id, ()):
            self._common.timers.cancel(timer)

    def end(self, session: Session) -> None:
        """End a session, and publish its waiting will (3.1.3.2.2)."""
        if self.get(session.client_id) is session:
            del self[session.client_id]
            self._idle.pop(session.client_id, None)
            self._cancel_timers(session)
            self._publish_will(session)
            session.close()
            self._common.counts.ended(session)
            if self.migration is not None:
                self.migration.ended(session.client_id)

    def make_room(self) -> bool:
        """End the session whose client has been away longest, among those with nothing to deliver.

        Examines at most `LOOKS` sessions. Returns False if none of them can be evicted.
        """
        for client_id in list(islice(self._idle, LOOKS)):
            session = self[client_id]
            if not (session.queue.copies or session.window.inflight or self.is_moving(client_id)):
                self._common.counts.evicted += 1
                self.end(session)
                return True
            del self._idle[client_id]  # move it behind the others, which are examined first next time
            self._idle[client_id] = None
        return False

    def close(self) -> None:
        """End the sessions that are not stored, without their wills, as the broker stops.

        Sessions that are moving to or from another broker are left to the migration.
        """
        for session in list(self.values()):
            if not (session.stored or self.is_moving(session.client_id)):
                session.will = None
                self.end(session)

    def _expire(self, session: Session, now: float) -> None:
        if session.connection is None and session.ends_at <= now:
            self._common.counts.expired += 1
            self.end(session)

    def _publish_delayed_will(self, session: Session, now: float) -> None:
        if session.connection is None and session.will is not None and session.will.due <= now:
            self._publish_will(session)

    def void_will(self, session: Session) -> None:
        """Delete a session's will. Its guardians delete it, too, unless this broker is leaving."""
        if session.will is not None:
            session.will = None
            session.persist()
            if not self.leaving:
                self._common.hub.guard_will(session.client_id, None)

    def lay_aside_will(self, session: Session) -> Message | None:
        """Remove a session's will and return it, or None; the caller must publish it. Its guardians keep it."""
        will, session.will = session.will, None
        if will is not None:
            session.persist()
        return None if will is None else will.message

    def _publish_will(self, session: Session) -> None:
        will = session.will
        self.void_will(session)
        if will is not None:
            self._publish_permitted(
                session, PermissionRequest(self._common.timers, self._common.clock, "publish"), will.message
            )

    def _publish_permitted(self, session: Session, permission: PermissionRequest, message: Message) -> None:
        """Publish a message in the name of a session, once its rights are settled. The session may have ended."""
        asker = None if session.rights is None else session.rights.asker
        if asker is None or permission.settled(
            asker, [message.topic], partial(self._publish_permitted, session, permission, message)
        ):
            session.publisher.published += 1
            session.hub.publish(Batch.of(message), session)
