"""The datagrams of one tree that have not come back to their sender, and what that tells about the tree.

The loopback packet (SAPS 2016, 3.1.2) is the acknowledgement: it clocks the window, and its absence is a loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from saps.ofm.datapath.congestion import Window
from saps.overlay.frames.delivery import Publish
from saps.overlay.ring.keys import BrokerRef

LONGEST = 2.0
"""Longest round trip in seconds. A later answer counts as lost."""
REORDERED = 3
"""Datagrams sent later that must be back before a missing one counts as lost (RFC 5681, section 3.2)."""
OVERDUE = 1.25
"""Round trips that a datagram must be out before `REORDERED` applies: later ones may only have overtaken it (RFC 8985,
section 6.2)."""
SPAN = 0.5
"""Least time in seconds over which `Meter` counts."""


class RoundTrip:
    """A timeout estimated from measured round trips (Jacobson 1988; RFC 6298, section 2)."""

    def __init__(self, least: float) -> None:
        self._least = least
        self.mean = 0.0
        """Smoothed round trip in seconds; 0 before the first measurement."""
        self._deviation = 0.0

    def measured(self, seconds: float) -> None:
        """Take a measured round trip into account."""
        if not self.mean:
            self.mean, self._deviation = seconds, seconds / 2
        else:
            self._deviation += (abs(seconds - self.mean) - self._deviation) / 4
            self.mean += (seconds - self.mean) / 8

    def late(self) -> None:
        """Raise the timeout after a missing answer: the estimate may be too short, and repeats would make that
        worse."""
        self.measured(min(2 * self.timeout, LONGEST))

    @property
    def timeout(self) -> float:
        """Seconds after which an answer is late."""
        return max(self._least, self.mean + 4 * self._deviation)


class Meter:
    """Publications a second, over the last `SPAN` to twice `SPAN` seconds."""

    def __init__(self) -> None:
        self._began = self._before_began = -math.inf
        self._count = self._before = 0

    def add(self, count: int, now: float) -> None:
        """Count `count` more publications."""
        if now - self._began >= SPAN:
            recent = now - self._began < 2 * SPAN
            self._before, self._before_began = (self._count, self._began) if recent else (0, now)
            self._count, self._began = 0, now
        self._count += count

    def rate(self, now: float) -> float:
        """Return the publications a second, infinite if too little time has been measured, or none lately."""
        elapsed = now - self._before_began
        lately = now - self._began < 2 * SPAN
        return (self._before + self._count) / elapsed if lately and elapsed >= SPAN / 2 else math.inf


class Flight(msgspec.Struct):
    """A datagram that has not come back. `body` is None if it has no publications."""

    sent: float
    mark: bytes
    """The mark that identifies its loopback packet (`saps.ofm.keys.sealing.mark_of`)."""
    body: Publish | None = None
    members: tuple[BrokerRef, ...] = ()
    origin: BrokerRef | None = None
    """The origin of the publications if it is in another domain. None for this broker."""
    again: bool = False
    """Whether the datagram repeats a lost one."""
    late: bool = False
    """Whether the datagram was given up before it came back."""


class Flights:
    """The datagrams under way on one tree. Times are in seconds of one clock; serials are those of
    `saps.ofm.datapath.datagram`."""

    def __init__(self, loopback: float) -> None:
        """`loopback` is the least timeout of a loopback packet in seconds."""
        self.window = Window()
        self.round_trip = RoundTrip(loopback)
        self.meter = Meter()
        """Rate of the publications that have come back."""
        self._out: dict[int, Flight] = {}
        """Serial -> datagram under way, in the order sent."""
        self._late: dict[int, Flight] = {}
        """Serial -> datagram that was given up. If it comes back after all, the timeout was too short."""
        self.latest = 0
        """Highest serial of the datagrams that have come back."""

    def __len__(self) -> int:
        return len(self._out)

    def depart(self, serial: int, flight: Flight) -> None:
        """Note that a datagram leaves."""
        self._out[serial] = flight

    def back(self, serials: Sequence[int], now: float) -> list[Flight]:
        """Note that datagrams have come back, and return those that were still waited for or given up. The datagrams of
        one call count as one measured round trip, that of the first."""
        under_way, publications = len(self._out), 0
        found: list[Flight] = []
        for serial in serials:
            flight = self._out.pop(serial, None) or self._late.pop(serial, None)
            if flight is not None:
                found.append(flight)
                if flight.body is not None:
                    publications += len(flight.body.which)
        if found:
            self.window.returned(under_way - len(self._out), under_way)
            self.round_trip.measured(now - found[0].sent)
            self.meter.add(publications, now)
            self.latest = max(self.latest, *serials)
        return found

    def overtaken(self, now: float, newest: int) -> Iterator[Flight]:
        """Remove and yield the datagrams that are lost because later ones are back. `newest` is the serial of the last
        datagram sent."""
        recent = now - OVERDUE * self.round_trip.mean
        while self._out:
            serial, flight = next(iter(self._out.items()))
            if serial > self.latest - REORDERED or flight.sent > recent:
                return
            yield self._lost(serial, newest)

    def overdue(self, now: float, newest: int) -> Iterator[Flight]:
        """Remove and yield the datagrams that are overdue although a later one is back: they are lost. Ends at the
        first datagram with nothing later back."""
        too_old = now - self.round_trip.timeout + 1e-9
        while self._out:
            serial, flight = next(iter(self._out.items()))
            if flight.sent > too_old or serial >= self.latest:
                return
            yield self._lost(serial, newest)

    def _lost(self, serial: int, newest: int) -> Flight:
        self.window.lost(serial, newest)
        return self._out.pop(serial)

    def is_silent(self, now: float) -> bool:
        """Return whether the oldest datagram is overdue. After `overdue` this means that nothing comes back any
        more."""
        oldest = next(iter(self._out.values()), None)
        return oldest is not None and oldest.sent <= now - self.round_trip.timeout + 1e-9

    @property
    def due(self) -> float:
        """Time at which the oldest datagram should be back. Infinite if none is under way."""
        oldest = next(iter(self._out.values()), None)
        return float("inf") if oldest is None else oldest.sent + self.round_trip.timeout

    def give_up(self) -> tuple[list[Flight], list[Flight]]:
        """Stop waiting for what is under way. Returns the datagrams under way, and those given up before, which are
        forgotten now."""
        before, self._late, self._out = self._late, self._out, {}
        for flight in self._late.values():
            flight.late = True
        return list(self._late.values()), list(before.values())
