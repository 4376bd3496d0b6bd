"""What one MQTT frontend counts.

Publications, deliveries and drops are counted by the sessions, which do so anyway on their hot paths; here is what
the sessions that are over have counted, and what is rare. The sum is made when somebody looks
(`saps.frontend.mqtt.systree.totals`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from saps.agents.user import PublisherAgent


class Counting(Protocol):
    """A session, as far as it counts."""

    delivered: int
    dropped: int

    @property
    def publisher(self) -> PublisherAgent: ...


@dataclass(slots=True)
class Counts:
    """Since the start of the broker."""

    published: int = 0
    """Publications from clients whose sessions are over."""
    delivered: int = 0
    dropped: int = 0
    handled: int = 0
    """Packets from clients, but for publications."""
    answered: int = 0
    """Packets to clients, but for publications."""
    connects: int = 0
    """CONNECT packets."""
    refused: int = 0
    """Clients turned away because of a limit: connections, sessions, connection rate."""
    evicted: int = 0
    """Sessions that ended because there were too many: of clients that were away, with nothing to deliver."""
    unfinished: int = 0
    """Clients disconnected because unfinished packets took too much memory."""
    unlogged: int = 0
    """Log lines about clients that were not written, because there were too many of one address."""
    too_slow: int = 0
    """Clients disconnected because their queues were full."""
    expired: int = 0
    """Sessions that ended because their clients did not come back."""
    most: int = 0
    """Most clients connected at the same time."""

    def ended(self, session: Counting) -> None:
        """The session is over: keep what it has counted."""
        self.published += session.publisher.published
        self.delivered += session.delivered
        self.dropped += session.dropped
