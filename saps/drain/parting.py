"""Sending clients away, at a pace, and seeing to their wills.

A client that is sent elsewhere has not died. So its will waits until it has had time to connect to another broker, and
is published if it is at none then: the same that its guardians do when a broker leaves (`saps.overlay.wills`), who see
to the wills whose time has not come when the broker goes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from saps.agents.api import Answers
from saps.drain.agent import DRAIN
from saps.frontend.mqtt.connection.connection import Connection
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.session.session import Session
from saps.messages import Message
from saps.overlay.wills import LEFT

if TYPE_CHECKING:
    from saps.drain.offering import Call


class ClientEviction:
    """The clients of one broker that is drained."""

    def __init__(self, frontend: Frontend, call: Call) -> None:
        self._frontend = frontend
        self._call = call
        self._queue: deque[Connection] = deque()
        self._allowed = 0.0
        self.wills: dict[str, tuple[Message, float]] = {}
        """By client, with the time at which it is to be found elsewhere."""

    def begin(self) -> None:
        self._queue.clear()
        self._allowed = 0.0

    @property
    def connected(self) -> bool:
        """There are clients yet."""
        return any(connection.session is not None for connection in self._frontend.connections)

    def send_away(self, count: float, away: Callable[[str], None]) -> None:
        """Send away so many clients more, on average. `away` is told of each that may come for its session."""
        self._allowed = min(self._allowed + count, max(1.0, count))
        while self._allowed >= 1 and (connection := self._next()) is not None:
            self._allowed -= 1
            self._part(connection, away)

    def _next(self) -> Connection | None:
        """A client that is connected, each in its turn."""
        queue = self._queue
        if not queue:
            queue.extend(each for each in self._frontend.connections if each.session is not None)
        while queue:
            connection = queue.popleft()
            if not connection.closing:
                return connection
        return None

    def _part(self, connection: Connection, away: Callable[[str], None]) -> None:
        frontend, session = self._frontend, connection.session
        assert session is not None
        assert frontend.orders.redirect is not None
        if session.will is not None:
            self.keep_will(session, frontend.clock() + max(LEFT, min(session.will.delay, session.expiry)))
        connection.close(frontend.orders.redirect.leave_ack)
        if frontend.sessions.get(session.client_id) is session:
            away(session.client_id)

    def keep_will(self, session: Session, due: float) -> None:
        """Take over a session's will: to be published if the client is connected nowhere at that time."""
        will = self._frontend.sessions.lay_aside_will(session)
        if will is not None:
            self.wills[session.client_id] = will, due

    def see_to_wills(self, now: float) -> None:
        """Publish those that are due, of clients that are nowhere."""
        due = {client: will for client, (will, when) in self.wills.items() if when <= now}
        if not due:
            return
        for client in due:
            del self.wills[client]

        def answered(answers: Answers) -> None:
            found: set[Any] = set()
            for answer in answers:
                found.update(answer.value if isinstance(answer.value, list) else ())
            for client, will in due.items():
                if client not in found:
                    self._frontend.hub.bequeath(will)
                session = self._frontend.sessions.get(client)
                if session is None or session.will is None:  # else it has a new one
                    self._frontend.hub.expect_acknowledgement(client, None)

        self._call(f"!{DRAIN}", "connected", (list(due),), answered)
