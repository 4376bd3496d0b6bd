"""What a sender keeps about one topic's tree: what is under way, who must still answer, how long that takes."""

from __future__ import annotations

from collections import deque

import msgspec

from saps.ofm.datapath.congestion import Progress, Window
from saps.ofm.datapath.loads import Unacknowledged, Waiting
from saps.ofm.datapath.settings import DatapathSettings
from saps.overlay.delivery.ofm_members import Served
from saps.overlay.frames.delivery import Publish
from saps.overlay.rendezvous.streams import Stream
from saps.overlay.ring.keys import BrokerRef

LONGEST = 2.0
"""Seconds; an answer that is later counts as lost."""


class RoundTrip:
    """An estimate of a time-out from measured times (Jacobson 1988; RFC 6298, section 2)."""

    def __init__(self, least: float) -> None:
        self._least = least
        self._mean = 0.0
        self._deviation = 0.0

    def measured(self, seconds: float) -> None:
        """Take a measured time into account."""
        if not self._mean:
            self._mean, self._deviation = seconds, seconds / 2
        else:
            self._deviation += (abs(seconds - self._mean) - self._deviation) / 4
            self._mean += (seconds - self._mean) / 8

    def late(self) -> None:
        """An answer has not come in time: perhaps the estimate is too short, and what is repeated makes it worse."""
        self.measured(min(2 * self.timeout, LONGEST))

    @property
    def timeout(self) -> float:
        """Seconds after which an answer is late."""
        return max(self._least, self._mean + 4 * self._deviation)


class Flight(msgspec.Struct):
    """A datagram that has not come back. `body` is None for a high-water mark."""

    sent: float
    mark: bytes
    """By which its loopback packet is known (`saps.ofm.keys.sealing.mark_of`)."""
    body: Publish | None = None
    members: tuple[BrokerRef, ...] = ()
    origin: BrokerRef | None = None
    """Of the publications, if it is in another domain; None: this broker."""


class Path:
    """The tree of one topic, as this broker's publications use it."""

    def __init__(self, stream: Stream, served: Served, settings: DatapathSettings) -> None:
        self.stream = stream
        self.served = served
        self.window = Window()
        self.progress = Progress()
        self.held_since: float | None = None
        """Since when it is waited for members that are behind; None: it is not."""
        self.waiting = Waiting()
        self.overheads: dict[BrokerRef, int] = {}
        """Of each origin: bytes of a datagram without publications, at most."""
        self.flying: dict[int, Flight] = {}
        """By serial, in the order sent."""
        self.history: deque[Publish] = deque(maxlen=settings.history)
        """What was in the last datagrams."""
        self.pending: deque[Unacknowledged] = deque()
        """Own publications."""
        self.relayed: dict[BrokerRef, deque[Unacknowledged]] = {}
        """Those of origins in other domains."""
        self.told_for: dict[BrokerRef, int] = {}
        """Origin in another domain -> number of its last publication that has left along the tree."""
        self.round_trip = RoundTrip(settings.loopback)
        self.answer_time = RoundTrip(settings.repeat)
        self.late: dict[int, Flight] = {}
        """Those that were given up when the tree failed: if they come back after all, the time-out was too short."""
        self.returned = 0
        """Serial of the last datagram that has come back."""
        self.wake_at = float("inf")
        self.marking = False
        self.members: tuple[BrokerRef, ...] = ()
        """Those the last publication was for."""
        self.last: Publish | None = None
        """The last own publications."""
        self.last_at = 0.0
        self.told = False
        """A datagram has told the last number in the present pause."""
        self.silent: dict[BrokerRef, int] = {}
        """Publications in a row that a member has not acknowledged in time."""
        self.without: frozenset[tuple[str, int]] = frozenset()
        """Name and incarnation of members that the tree does not reach, for now."""
        self.rejoin = settings.retry
        """Seconds until they are sent to along the tree again."""
        self.retry = settings.retry
        self.failed_at: float | None = None
        """When nothing came back; None while the tree is in use."""
        self.used_since = 0.0
        """When it came into use again after it had failed, if it had."""

    @property
    def queues(self) -> list[deque[Unacknowledged]]:
        """What members must still acknowledge, in the order sent, by origin."""
        return [self.pending, *self.relayed.values()]

    @property
    def usable(self) -> Served:
        """The tree, for those whom it is known to reach."""
        if not self.without:
            return self.served
        return self.served._replace(brokers=self.served.brokers - self.without)
