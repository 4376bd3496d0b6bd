"""Counts the events of one MQTT frontend.

Sessions count publications, deliveries and drops themselves, on their hot paths. `Counts` has the rare events, and the
counts of sessions that have ended. `saps.frontend.mqtt.totals` sums them up on demand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from saps.agents.user import PublisherAgent


class Counting(Protocol):
    """The counters of a session."""

    delivered: int
    dropped: int

    @property
    def publisher(self) -> PublisherAgent: ...


@dataclass(slots=True)
class Counts:
    """Counts since the start of the broker."""

    published: int = 0
    """Publications from clients whose sessions have ended."""
    delivered: int = 0
    """Deliveries to clients whose sessions have ended."""
    dropped: int = 0
    """Messages dropped by sessions that have ended."""
    handled: int = 0
    """Packets from clients, without publications."""
    answered: int = 0
    """Packets to clients, without publications."""
    connects: int = 0
    """CONNECT packets."""
    refused: int = 0
    """Clients refused by a redirect or a limit: connections, sessions, connection rate."""
    evicted: int = 0
    """Sessions that ended to make room. Their clients were away, and nothing waited for them."""
    unfinished: int = 0
    """Clients disconnected because unfinished packets took too much memory."""
    unlogged: int = 0
    """Log lines left out because one address caused too many."""
    too_slow: int = 0
    """Clients disconnected because their queues were full."""
    expired: int = 0
    """Expired sessions."""
    most: int = 0
    """Most clients connected at the same time."""

    def ended(self, session: Counting) -> None:
        """Add the counts of a session that has ended."""
        self.published += session.publisher.published
        self.delivered += session.delivered
        self.dropped += session.dropped
