"""Counters and meters of a software switch (OpenFlow 1.3.5, 5.7 and 5.8); a meter has one drop band."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from saps.local.token_bucket import TokenBucket
from saps.ofm.flows.tables import Meter
from saps.ofm.switch.packets import Packet


@dataclass(slots=True)
class Count:
    """Packets and bytes."""

    packets: int = 0
    bytes: int = 0

    def add(self, packet: Packet) -> None:
        """One packet more."""
        self.packets += 1
        self.bytes += packet.size

    def reset(self) -> None:
        """Begin anew."""
        self.packets = self.bytes = 0


@dataclass(slots=True)
class MeterCount:
    """Packets that came to a meter, and of these the ones that it has dropped."""

    came: Count
    dropped: Count


@dataclass(slots=True)
class PortCount:
    """Traffic of a port, as the switch sees it."""

    received: Count
    sent: Count


class Meters:
    """All meters of a switch, by number. `most`: how many it has room for; None: any number. `clock`: in seconds and
    never back; as long as it stands still a meter lets one burst through."""

    def __init__(self, most: int | None, clock: Callable[[], float]) -> None:
        self.most = most
        self.counts: dict[int, MeterCount] = {}
        self.entries: dict[int, Meter] = {}
        self._clock = clock
        self._buckets: dict[int, TokenBucket] = {}

    def has_room(self, meter: Meter) -> bool:
        """Is the meter there already, or is there room for one more?"""
        return meter.id in self.entries or self.most is None or len(self.entries) < self.most

    def put(self, meter: Meter) -> None:
        """Adds a meter, or changes it: an equal one keeps its state, another rate begins with a full burst."""
        if self.entries.get(meter.id) != meter:
            self._buckets[meter.id] = TokenBucket(meter.rate, meter.burst or meter.rate)
        self.entries[meter.id] = meter
        self.counts.setdefault(meter.id, MeterCount(Count(), Count()))

    def drop(self, id: int) -> bool:
        """Removes a meter. False: there is none."""
        if id not in self.entries:
            return False
        del self.entries[id], self._buckets[id], self.counts[id]
        return True

    def passes(self, id: int, packet: Packet) -> bool:
        """Counts a packet that comes to a meter. False: the meter drops it."""
        count = self.counts[id]
        count.came.add(packet)
        if self._buckets[id].take(self._clock()):
            return True
        count.dropped.add(packet)
        return False
