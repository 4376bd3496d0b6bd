"""Sums up the counts of a frontend's sessions, for ``$SYS``, metrics and the status agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from saps.frontend.mqtt.frontend import Frontend


class Totals(NamedTuple):
    """The counts of all sessions since the start, and the current state of the open ones."""

    published: int
    delivered: int
    dropped: int
    connected: int
    away: int
    subscriptions: int
    inflight: int
    queued: int


def totals(frontend: Frontend) -> Totals:
    """Return the totals. Costs about a microsecond for each session."""
    counts = frontend.counts
    published, delivered, dropped = counts.published, counts.delivered, counts.dropped
    connected = subscriptions = inflight = queued = 0
    for session in frontend.sessions.values():
        published += session.publisher.published
        delivered += session.delivered
        dropped += session.dropped
        connected += session.connection is not None
        subscriptions += len(session.subscriptions)
        inflight += len(session.window.inflight)
        queued += len(session.queue.copies or ())
    away = len(frontend.sessions) - connected
    return Totals(published, delivered, dropped, connected, away, subscriptions, inflight, queued)
