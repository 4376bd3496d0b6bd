"""The datagrams of one tree that have not come back to their sender, and what that tells about the tree.

The loopback packet (SAPS 2016, 3.1.2) is the acknowledgement: it clocks the window, its absence is a loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from saps.ofm.datapath.congestion import Window
from saps.overlay.frames.delivery import Publish
from saps.overlay.ring.keys import BrokerRef

LONGEST = 2.0
"""Seconds; an answer that is later counts as lost."""
REORDERED = 3
"""A datagram is lost if one that was sent so many later is back (RFC 5681, section 3.2)."""
PATIENCE = 1.25
"""Round trips after which that counts: others may only have overtaken it (RFC 8985, section 6.2)."""
SPAN = 0.5
"""Seconds over which `Meter` counts, at least."""


class RoundTrip:
    """An estimate of a time-out from measured times (Jacobson 1988; RFC 6298, section 2)."""

    def __init__(self, least: float) -> None:
        self._least = least
        self.mean = 0.0
        """Seconds."""
        self._deviation = 0.0

    def measured(self, seconds: float) -> None:
        """Take a measured time into account."""
        if not self.mean:
            self.mean, self._deviation = seconds, seconds / 2
        else:
            self._deviation += (abs(seconds - self.mean) - self._deviation) / 4
            self.mean += (seconds - self.mean) / 8

    def late(self) -> None:
        """An answer has not come in time: perhaps the estimate is too short, and what is repeated makes it worse."""
        self.measured(min(2 * self.timeout, LONGEST))

    @property
    def timeout(self) -> float:
        """Seconds after which an answer is late."""
        return max(self._least, self.mean + 4 * self._deviation)


class Meter:
    """Publications a second, over the last `SPAN` to twice `SPAN` seconds."""

    def __init__(self) -> None:
        self._began = self._before_began = 0.0
        self._count = self._before = 0

    def add(self, count: int, now: float) -> None:
        """So many more."""
        if now - self._began >= SPAN:
            recent = now - self._began < 2 * SPAN
            self._before, self._before_began = (self._count, self._began) if recent else (0, now)
            self._count, self._began = 0, now
        self._count += count

    def rate(self, now: float) -> float:
        """How many a second; infinite before there is anything to go by."""
        elapsed = now - self._before_began
        return (self._before + self._count) / elapsed if elapsed >= SPAN / 2 else float("inf")


class Flight(msgspec.Struct):
    """A datagram that has not come back. `body` is None if it has no publications."""

    sent: float
    mark: bytes
    """By which its loopback packet is known (`saps.ofm.keys.sealing.mark_of`)."""
    body: Publish | None = None
    members: tuple[BrokerRef, ...] = ()
    origin: BrokerRef | None = None
    """Of the publications, if it is in another domain; None: this broker."""
    again: bool = False
    """It repeats one that was lost."""
    late: bool = False
    """It was given up before it came back."""


class Flights:
    """Of one tree. Times in seconds of one clock; serials are those of `saps.ofm.datapath.datagram`."""

    def __init__(self, loopback: float) -> None:
        """`loopback`: the least time within which a datagram must come back."""
        self.window = Window()
        self.round_trip = RoundTrip(loopback)
        self.meter = Meter()
        """Of publications that have come back."""
        self._out: dict[int, Flight] = {}
        """By serial, in the order sent."""
        self._late: dict[int, Flight] = {}
        """Those that were given up: if they come back after all, the time-out was too short."""
        self.latest = 0
        """Serial of the last datagram that has come back."""

    def __len__(self) -> int:
        return len(self._out)

    def depart(self, serial: int, flight: Flight) -> None:
        """It leaves."""
        self._out[serial] = flight

    def back(self, serials: Sequence[int], now: float) -> list[Flight]:
        """These have come back. Gives those of them that are still waited for. What comes back together counts as one
        measured time, that of the first."""
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
        """Those that are lost, as later ones are back. `newest`: the serial of the last datagram sent."""
        recent = now - PATIENCE * self.round_trip.mean
        while self._out:
            serial, flight = next(iter(self._out.items()))
            if serial > self.latest - REORDERED or flight.sent > recent:
                return
            yield self._lost(serial, newest)

    def overdue(self, now: float, newest: int) -> Iterator[Flight]:
        """Those that have not come in time, although a later one has: they are lost. Ends at the first behind which
        nothing is back."""
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
        """Is the oldest overdue? After `overdue` this means that nothing comes back any more."""
        oldest = next(iter(self._out.values()), None)
        return oldest is not None and oldest.sent <= now - self.round_trip.timeout + 1e-9

    @property
    def due(self) -> float:
        """When the oldest should be back; infinite if none is under way."""
        oldest = next(iter(self._out.values()), None)
        return float("inf") if oldest is None else oldest.sent + self.round_trip.timeout

    def give_up(self) -> tuple[list[Flight], list[Flight]]:
        """Do not wait for what is under way. Gives it, and what had been given up before: that is forgotten now."""
        before, self._late, self._out = self._late, self._out, {}
        for flight in self._late.values():
            flight.late = True
        return list(self._late.values()), list(before.values())
