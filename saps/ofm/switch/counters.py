"""Counters and meters of a software switch (OpenFlow 1.3.5, 5.7 and 5.8). A meter has one drop band."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from saps.ofm.flows.tables import Meter
from saps.ofm.switch.packets import Packet
from saps.routing.token_bucket import TokenBucket


@dataclass(slots=True)
class Count:
    """A counter of packets and bytes."""

    packets: int = 0
    bytes: int = 0

    def add(self, packet: Packet) -> None:
        """Count one packet."""
        self.packets += 1
        self.bytes += packet.size

    def reset(self) -> None:
        """Reset both counters to 0."""
        self.packets = self.bytes = 0


@dataclass(slots=True)
class MeterCount:
    """Packets that reached a meter, and the ones that it dropped."""

    came: Count
    dropped: Count


@dataclass(slots=True)
class PortCount:
    """Traffic of a port, as the switch sees it."""

    received: Count
    sent: Count


class Meters:
    """All meters of a switch, by number. `most` is the most meters; None: no limit. `clock` returns seconds and never
    steps back; while it stands still, a meter passes one burst."""

    def __init__(self, most: int | None, clock: Callable[[], float]) -> None:
        self.most = most
        self.counts: dict[int, MeterCount] = {}
        self.entries: dict[int, Meter] = {}
        self._clock = clock
        self._buckets: dict[int, TokenBucket] = {}

    def has_room(self, meter: Meter) -> bool:
        """Return whether the meter exists already, or there is room for one more."""
        return meter.id in self.entries or self.most is None or len(self.entries) < self.most

    def put(self, meter: Meter) -> None:
        """Add a meter, or change it. An equal meter keeps its state; a changed one begins with a full burst."""
        if self.entries.get(meter.id) != meter:
            self._buckets[meter.id] = TokenBucket(meter.rate, meter.burst or meter.rate)
        self.entries[meter.id] = meter
        self.counts.setdefault(meter.id, MeterCount(Count(), Count()))

    def drop(self, id: int) -> bool:
        """Remove a meter. Return False if there is none."""
        if id not in self.entries:
            return False
        del self.entries[id], self._buckets[id], self.counts[id]
        return True

    def passes(self, id: int, packet: Packet) -> bool:
        """Count a packet that reaches a meter. Return False if the meter drops it."""
        count = self.counts[id]
        count.came.add(packet)
        if self._buckets[id].take(self._clock()):
            return True
        count.dropped.add(packet)
        return False
