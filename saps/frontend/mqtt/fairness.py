"""Shares a broker's work, memory and log lines fairly among clients, users and addresses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from saps.frontend.mqtt.budget import Budget
from saps.frontend.mqtt.codec.reasons import ProtocolError, Reason
from saps.frontend.mqtt.common import Common
from saps.frontend.mqtt.connection.client_connection import ClientConnection
from saps.frontend.mqtt.orders import Orders
from saps.frontend.mqtt.session.sessions import Sessions
from saps.routing.token_bucket import Buckets, TokenBucket

LINES, LINES_AT_ONCE = 0.2, 10.0
"""Rate (lines a second) and size of each address's token bucket for log lines. Further lines are only counted."""


class Fairness:
    """Fairness among the clients of one frontend."""

    def __init__(self, common: Common, connections: set[ClientConnection], sessions: Sessions, orders: Orders) -> None:
        """`connections` and `sessions` are those of the frontend, and change."""
        limits = common.limits
        self._common = common
        self._connections = connections
        self._sessions = sessions
        self._orders = orders
        self.unfinished = Budget(limits.maximum_unfinished_total)
        """Bytes of incomplete and waiting packets of all connections."""
        rate = limits.connection_rate
        self._connecting = TokenBucket(rate, max(1.0, rate)) if rate else None
        self._filters = Buckets(limits.subscribe_rate, limits.subscribe_rate) if limits.subscribe_rate else None
        self._lines = Buckets(LINES, LINES_AT_ONCE)

    # ---- connections

    def admit(self, client_id: str, keeps: bool) -> None:
        """Check that one more client fits, and evict a session if necessary.

        `keeps`: the client wants to use or keep a session beyond the connection. Raises `ProtocolError` for a
        redirect or a limit.
        """
        common, sessions = self._common, self._sessions
        common.counts.connects += 1
        now, limits = common.clock(), common.limits
        reason = None
        session = sessions.get(client_id)
        if self._orders.redirect is not None:
            reason = self._orders.redirect.refusal
        elif len(self._connections) > limits.maximum_connections and (session is None or session.connection is None):
            reason = Reason.SERVER_BUSY
        elif self._connecting is not None and self._connecting.wait(now):
            reason = Reason.CONNECTION_RATE_EXCEEDED
        elif len(sessions) >= limits.maximum_sessions and session is None and not sessions.make_room() and keeps:
            reason = Reason.QUOTA_EXCEEDED
        if reason is not None:
            common.counts.refused += 1
            raise ProtocolError("", reason)
        if self._connecting is not None:
            self._connecting.spend(1, now)

    # ---- subscribe work

    def wait_to_subscribe(self, connection: ClientConnection) -> float:
        """Return the seconds until the client may subscribe to more filters; 0: now."""
        now = self._common.clock()
        return max([bucket.wait(now) for bucket in self._subscribing(connection, now)], default=0.0)

    def subscribed(self, connection: ClientConnection, filters: int) -> None:
        """Charge the client for `filters` new filters."""
        now = self._common.clock()
        for bucket in self._subscribing(connection, now):
            bucket.spend(filters, now)

    def _subscribing(self, connection: ClientConnection, now: float) -> Iterator[TokenBucket]:
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
            for connection in self._connections:
                of_address[connection.address] += connection.unfinished
            most = max(
                self._connections,
                key=lambda connection: (of_address[connection.address], connection.unfinished),
                default=None,
            )
            if most is None or not most.unfinished:
                return
            self._common.counts.unfinished += 1
            most.close(
                Reason.QUOTA_EXCEEDED, "unfinished packets of all clients exceed limits.maximum_unfinished_total"
            )

    # ---- the log

    def may_log(self, connection: ClientConnection) -> bool:
        """Return whether a log line about the client may be written; if not, count it."""
        now = self._common.clock()
        if self._lines.of(connection.address, now).take(now):
            return True
        self._common.counts.unlogged += 1
        return False
