"""What the connections of one MQTT server share: sessions, timers, limits, and who has something to send."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from saps.frontend.mqtt.codec.reasons import ProtocolError, Reason
from saps.frontend.mqtt.connection.redirect import Detour
from saps.frontend.mqtt.connection.turn import Turn
from saps.frontend.mqtt.counts import Counts
from saps.frontend.mqtt.fairness import Fairness
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.session.budget import Budget
from saps.frontend.mqtt.session.durable import DurableSession
from saps.frontend.mqtt.session.session import Session
from saps.frontend.mqtt.timers import Timer, Timers
from saps.local.hub import Hub
from saps.local.token_bucket import TokenBucket
from saps.messages import Message
from saps.storage.journal import Journal

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection
    from saps.frontend.mqtt.connection.outbound import Outbound
    from saps.frontend.mqtt.session.migration import Roaming
    from saps.frontend.mqtt.systree import SysTree

FOREVER = 0xFFFFFFFF
"""The session expiry interval that means: never (3.1.2.11.2)."""


class Frontend:
    """The common state of all connections. Pure: the driver hands in the clock, the random numbers and two wake-ups."""

    def __init__(
        self,
        hub: Hub,
        limits: Limits,
        clock: Callable[[], float],
        rng: Random,
        arm_timer: Callable[[float], None] = lambda when: None,
    ) -> None:
        """`arm_timer(when)`: call `timers.run` then."""
        self.hub = hub
        self.limits = limits
        self.clock = clock
        self.rng = rng
        self.timers = Timers(arm_timer)
        self.sessions: dict[str, Session] = {}
        self.connections: set[Connection] = set()
        self.gone: Connection | None = None
        """Stands for all whose transport is gone."""
        self.turn = Turn()
        self.blocked: list[Outbound] = []
        """Clients that could not take a message while the current input was handled."""
        self.names: dict[bytes, str] = {}
        """The valid topics that have been published to, by their bytes (`saps.frontend.mqtt.codec.publish_cut`)."""
        self.publishers_paused = False
        self.detour: Detour | None = None
        """Nobody is let in: clients are to go elsewhere (`saps.drain`)."""
        self.leaving = False
        """The broker is about to leave the mesh."""
        self.budget = Budget(limits.maximum_queued_total)
        """What is kept for all slow clients together."""
        self.counts = Counts()
        rate = limits.connection_rate
        self.connecting = TokenBucket(rate, max(1.0, rate)) if rate else None
        self.fairness = Fairness(self)
        self.journal: Journal | None = None
        """Where sessions are stored, if they are."""
        self.refusal: Reason | None = None
        """Why nothing new that would have to be stored is taken at present."""
        self.broken = False
        """Nothing at all can be stored, not even the changes of what is there."""
        self.roaming: Roaming | None = None
        """Where sessions follow their clients from broker to broker."""
        self.status: SysTree | None = None
        """The ``$SYS`` tree, if there is one."""

    def admit(self, client_id: str, keeps: bool) -> None:
        """Is there room for one client more? `keeps`: it wants its session to outlive the connection. Raises
        `ProtocolError` if not."""
        self.counts.connects += 1
        now, limits = self.clock(), self.limits
        reason = None
        session = self.sessions.get(client_id)
        if self.detour is not None:
            reason = self.detour.refusal
        elif len(self.connections) > limits.maximum_connections and (session is None or session.connection is None):
            reason = Reason.SERVER_BUSY
        elif self.connecting is not None and self.connecting.wait(now):
            reason = Reason.CONNECTION_RATE_EXCEEDED
        elif (
            len(self.sessions) >= limits.maximum_sessions
            and session is None
            and not self.fairness.make_room()
            and keeps
        ):
            reason = Reason.QUOTA_EXCEEDED
        if reason is not None:
            self.counts.refused += 1
            raise ProtocolError("", reason)
        if self.connecting is not None:
            self.connecting.spend(1, now)

    def pause_publishers(self, paused: bool) -> None:
        """While paused, clients that publish are not read: the mesh is congested."""
        self.publishers_paused = paused
        for connection in list(self.connections):
            connection.intake.update()

    # ---- sessions

    def assign_client_id(self) -> str:
        """A client identifier nobody uses (3.2.2.3.7)."""
        while True:
            client_id = f"saps-{self.rng.getrandbits(64):016x}"
            if client_id not in self.sessions:
                return client_id

    def open(self, connection: Connection, client_id: str, clean_start: bool, expiry: int) -> tuple[Session, bool]:
        """The client's session, and whether it was there before. Takes it over from an earlier connection (3.1.4)."""
        session = self.sessions.get(client_id)
        if session is not None and session.connection is not None:
            session.connection.taken_over()
            session = self.sessions.get(client_id)
        if session is not None and clean_start:
            self.end(session)
            session = None
        present = session is not None
        if session is None:
            session = self.sessions[client_id] = self.new_session(client_id, expiry)
        self.fairness.here(client_id)
        self.void_will(session)
        session.expiry = self.granted_expiry(expiry, connection.user)
        session.attach(connection)
        self._cancel_timers(session)
        session.user = connection.user
        if session.rights is not connection.rights:
            session.rights = connection.rights
            self.hub.forget_agent_routes(session)
        return session, present

    def new_session(self, client_id: str, expiry: int, birth: int = 0) -> Session:
        """A session without a connection, for the caller to keep. `expiry`: seconds that it may outlive one; where it
        has been elsewhere, `birth`: its own name."""
        journal = self.journal
        if journal is None or not (expiry or journal.disk):
            return Session(self.hub, client_id, self.limits, self.budget)
        name = birth or self.rng.getrandbits(62) + 1
        return DurableSession(self.hub, client_id, self.limits, self.budget, journal, name)

    def granted_expiry(self, expiry: int, user: str | None) -> int:
        """The session expiry interval the client gets, in seconds."""
        most = self.limits.maximum_session_expiry
        return min(expiry, most if user is not None else min(most, self.limits.anonymous_session_expiry))

    def is_moving(self, client_id: str) -> bool:
        """Is the session on its way to or from another broker?"""
        return self.roaming is not None and self.roaming.moving(client_id)

    def detach(self, session: Session, with_will: bool) -> None:
        """The session's connection is gone. `with_will`: the client did not say goodbye (3.1.2.5)."""
        now = self.clock()
        session.detach()
        if not with_will:
            self.void_will(session)
        session.will_due = now + min(session.will_delay, session.expiry)
        session.ends_at = now + session.expiry
        self.away(session)

    def away(self, session: Session) -> None:
        """The session goes on without a connection, and its will waits: each until its time has come."""
        now = self.clock()
        self._cancel_timers(session)
        timers: list[Timer] = []
        if session.will is not None and session.will_due > now:
            timers.append(self.timers.at(session.will_due, lambda now: self._publish_delayed_will(session, now)))
        else:
            self._publish_will(session)
        if session.ends_at <= now:
            self.end(session)
            return
        session.give_back()
        session.persist()
        self.fairness.away(session)
        timers.append(self.timers.at(session.ends_at, lambda now: self._expire(session, now)))
        session.timers = timers

    def _cancel_timers(self, session: Session) -> None:
        for timer in session.timers:
            self.timers.cancel(timer)
        session.timers = []

    def end(self, session: Session) -> None:
        """The session is over; a will that still waits is published (3.1.3.2.2)."""
        if self.sessions.get(session.client_id) is session:
            del self.sessions[session.client_id]
            self.fairness.here(session.client_id)
            self._cancel_timers(session)
            self._publish_will(session)
            session.close()
            self.counts.ended(session)
            if self.roaming is not None:
                self.roaming.ended(session.client_id)

    def close(self) -> None:
        """The broker stops: end the sessions that are in memory only, without their wills. One that is on its way to or
        from another broker is left to those who carry it."""
        for session in list(self.sessions.values()):
            if not (session.stored or self.is_moving(session.client_id)):
                session.will = None
                self.end(session)

    def _expire(self, session: Session, now: float) -> None:
        if session.connection is None and session.ends_at <= now:
            self.counts.expired += 1
            self.end(session)

    def _publish_delayed_will(self, session: Session, now: float) -> None:
        if session.connection is None and session.will_due <= now:
            self._publish_will(session)

    def void_will(self, session: Session) -> None:
        """There is no will any more; but when the broker leaves, its guardians keep it for a while."""
        if session.will is not None:
            session.will = None
            session.persist()
            if not self.leaving:
                self.hub.entrust(session.client_id, None)

    def lay_aside_will(self, session: Session) -> Message | None:
        """Take a session's will for the caller to see to; its guardians go on keeping it."""
        will, session.will = session.will, None
        if will is not None:
            session.persist()
        return will

    def _publish_will(self, session: Session) -> None:
        will = session.will
        self.void_will(session)
        if will is not None:
            session.publisher.publish(will)
