"""Shares a broker's work, memory and log lines fairly among clients, users and addresses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from saps.frontend.mqtt.budget import Budget
from saps.frontend.mqtt.codec.reasons import ProtocolError, Reason
from saps.local.token_bucket import Buckets, TokenBucket

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection
    from saps.frontend.mqtt.frontend import Frontend
    from saps.frontend.mqtt.session.session import Session

LOOKS = 64
"""Most sessions that one CONNECT examines to find one to evict."""
LINES, LINES_AT_ONCE = 0.2, 10.0
"""Rate (lines a second) and size of each address's token bucket for log lines. Further lines are only counted."""


class Fairness:
    """Fairness among the clients of one frontend."""

    def __init__(self, frontend: Frontend) -> None:
        limits = frontend.limits
        self._frontend = frontend
        self.unfinished = Budget(limits.maximum_unfinished_total)
        """Bytes of incomplete and waiting packets of all connections."""
        rate = limits.connection_rate
        self._connecting = TokenBucket(rate, max(1.0, rate)) if rate else None
        self._filters = Buckets(limits.subscribe_rate, limits.subscribe_rate) if limits.subscribe_rate else None
        self._lines = Buckets(LINES, LINES_AT_ONCE)
        self._idle: dict[str, None] = {}
        """Clients that are away, longest first; examined ones that could not be evicted go to the end."""

    # ---- connections

    def admit(self, client_id: str, keeps: bool) -> None:
        """Check that one more client fits, and evict a session if necessary.

        `keeps`: the client wants to use or keep a session beyond the connection. Raises `ProtocolError` for a
        redirect or a limit.
        """
        frontend = self._frontend
        frontend.counts.connects += 1
        now, limits = frontend.clock(), frontend.limits
        reason = None
        session = frontend.sessions.get(client_id)
        if frontend.orders.redirect is not None:
            reason = frontend.orders.redirect.refusal
        elif len(frontend.connections) > limits.maximum_connections and (session is None or session.connection is None):
            reason = Reason.SERVER_BUSY
        elif self._connecting is not None and self._connecting.wait(now):
            reason = Reason.CONNECTION_RATE_EXCEEDED
        elif len(frontend.sessions) >= limits.maximum_sessions and session is None and not self.make_room() and keeps:
            reason = Reason.QUOTA_EXCEEDED
        if reason is not None:
            frontend.counts.refused += 1
            raise ProtocolError("", reason)
        if self._connecting is not None:
            self._connecting.spend(1, now)

    # ---- subscribe work

    def wait_to_subscribe(self, connection: Connection) -> float:
        """Return the seconds until the client may subscribe to more filters; 0: now."""
        now = self._frontend.clock()
        return max([bucket.wait(now) for bucket in self._subscribing(connection, now)], default=0.0)

    def subscribed(self, connection: Connection, filters: int) -> None:
        """Charge the client for `filters` new filters."""
        now = self._frontend.clock()
        for bucket in self._subscribing(connection, now):
            bucket.spend(filters, now)

    def _subscribing(self, connection: Connection, now: float) -> Iterator[TokenBucket]:
        if self._filters is not None:
            session = connection.session
            yield self._filters.of(f"address {connection.address}", now)
            if connection.user is not None:
                yield self._filters.of(f"user {connection.user}", now)
            elif session is not None:
                yield self._filters.of(f"client {session.client_id}", now)

    # ---- unfinished packets

    def relieve(self) -> None:
        """Close connections until unfinished packets are within their limit.

        Each time it closes the connection with the most bytes, of the address with the most bytes.
        """
        while self.unfinished.used > self.unfinished.limit:
            of_address = defaultdict[str, int](int)
            for connection in self._frontend.connections:
                of_address[connection.address] += connection.unfinished
            most = max(
                self._frontend.connections,
                key=lambda connection: (of_address[connection.address], connection.unfinished),
                default=None,
            )
            if most is None or not most.unfinished:
                return
            self._frontend.counts.unfinished += 1
            most.close(
                Reason.QUOTA_EXCEEDED, "unfinished packets of all clients exceed limits.maximum_unfinished_total"
            )

    # ---- sessions

    def away(self, session: Session) -> None:
        """Add a session whose client has gone."""
        self._idle[session.client_id] = None

    def here(self, client_id: str) -> None:
        """Remove a client that is back, or whose session has ended."""
        self._idle.pop(client_id, None)

    def make_room(self) -> bool:
        """Evict the session whose client has been away longest, among those with nothing to deliver.

        Examines at most `LOOKS` sessions. Returns False if none of them can be evicted.
        """
        for client_id in list(islice(self._idle, LOOKS)):
            session = self._frontend.sessions[client_id]
            if not (session.queue.copies or session.window.inflight or self._frontend.sessions.is_moving(client_id)):
                self._frontend.counts.evicted += 1
                self._frontend.sessions.end(session)
                return True
            del self._idle[client_id]  # move it behind the others, which are examined first next time
            self._idle[client_id] = None
        return False

    # ---- the log

    def may_log(self, connection: Connection) -> bool:
        """Return whether a log line about the client may be written; if not, count it."""
        now = self._frontend.clock()
        if self._lines.of(connection.address, now).take(now):
            return True
        self._frontend.counts.unlogged += 1
        return False
