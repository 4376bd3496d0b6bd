"""Redirects clients at a limited rate, and keeps their wills meanwhile.

A redirected client has not died. Its will waits until the client has had time to connect to another broker, and is
published if it is connected nowhere by then. When the broker leaves before that, the will's guardians do the same
(`saps.overlay.wills`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from saps.agents.api import Answers
from saps.drain.agent import DRAIN
from saps.frontend.mqtt.connection.client_connection import ClientConnection
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.session.session import Session
from saps.messages import Message
from saps.overlay.wills import LEFT

if TYPE_CHECKING:
    from saps.drain.offering import Call


class ClientEviction:
    """Redirects the clients of a draining broker."""

    def __init__(self, frontend: Frontend, call: Call) -> None:
        self._frontend = frontend
        self._call = call
        self._queue: deque[ClientConnection] = deque()
        self._allowed = 0.0
        self.wills: dict[str, tuple[Message, float]] = {}
        """By client: the will, and the time by which the client must be connected elsewhere."""

    def begin(self) -> None:
        self._queue.clear()
        self._allowed = 0.0

    @property
    def connected(self) -> bool:
        """Whether any client is still connected."""
        return any(connection.session is not None for connection in self._frontend.connections)

    def send_away(self, count: float, away: Callable[[str], None]) -> None:
        """Redirect `count` more clients on average. `away` is called with each that has a session to fetch."""
        self._allowed = min(self._allowed + count, max(1.0, count))
        while self._allowed >= 1 and (connection := self._next()) is not None:
            self._allowed -= 1
            self._part(connection, away)

    def _next(self) -> ClientConnection | None:
        """Return the next connected client, in rotation, or None."""
        queue = self._queue
        if not queue:
            queue.extend(each for each in self._frontend.connections if each.session is not None)
        while queue:
            connection = queue.popleft()
            if not connection.closing:
                return connection
        return None

    def _part(self, connection: ClientConnection, away: Callable[[str], None]) -> None:
        frontend, session = self._frontend, connection.session
        assert session is not None
        assert frontend.orders.redirect is not None
        if session.will is not None:
            self.keep_will(session, frontend.clock() + max(LEFT, min(session.will.delay, session.expiry)))
        connection.close(frontend.orders.redirect.leave_ack)
        if frontend.sessions.get(session.client_id) is session:
            away(session.client_id)

    def keep_will(self, session: Session, due: float) -> None:
        """Keep a session's will, to publish it if the client is connected nowhere at the time `due`."""
        will = self._frontend.sessions.lay_aside_will(session)
        if will is not None:
            self.wills[session.client_id] = will, due

    def see_to_wills(self, now: float) -> None:
        """Publish the wills that are due of clients that are connected nowhere."""
        due = {client: will for client, (will, when) in self.wills.items() if when <= now}
        if not due:
            return
        for client in due:
            del self.wills[client]

        def answered(answers: Answers) -> None:
            found = {client for _, clients in answers.of(list[str]) for client in clients}
            for client, will in due.items():
                if client not in found:
                    self._frontend.hub.bequeath(will)
                session = self._frontend.sessions.get(client)
                if session is None or session.will is None:  # else it has a new one
                    self._frontend.hub.guard_will(client, None)

        self._call(f"!{DRAIN}", "connected", (list(due),), answered)
