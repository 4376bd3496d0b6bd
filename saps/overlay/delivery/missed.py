"""What brokers that are taken for dead miss: kept for a while, as they may be cut off only, or stand still.

A publication of QoS 1 or 2 is acknowledged when all members have it or are dead to this broker. One that comes back in
the same life, within `KEPT` seconds, gets what it has missed, in order (hinted handoff, as in DeCandia et al., Dynamo,
2007, 4.6). Its filters are kept as long (`saps.overlay.rendezvous.publisher_registry`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from saps.marks import hit
from saps.overlay.frames.kinds import Publish
from saps.overlay.ring.keys import BrokerRef

KEPT = 30.0
"""Seconds after which whoever was taken for dead gets nothing that it has missed. Longer costs memory, and what it gets
is older."""
MOST_BYTES = 64 << 20
"""Payload kept, of what each of them misses, in all; beyond it the oldest of the one that misses more is dropped."""
EACH = 100
"""Bytes that a publication counts for beside its payload."""


class Held:
    """What one broker has missed, the oldest first."""

    __slots__ = ("broker", "publications")

    def __init__(self, broker: BrokerRef) -> None:
        self.broker = broker
        self.publications: deque[Publish] = deque()


class Missed:
    """All that is kept at one broker: its own publications."""

    def __init__(self) -> None:
        self._held: dict[BrokerRef, Held] = {}
        self.bytes = 0
        """Of payload, and `EACH` for each publication."""
        self.dropped = 0
        """Publications that there was no room for: whoever has missed them does not get them."""

    @property
    def messages(self) -> int:
        """Publications kept; one that several brokers have missed counts for each."""
        return sum(len(body.which) for held in self._held.values() for body in held.publications)

    def died(self, broker: BrokerRef, pending: Iterable[Publish]) -> Held:
        """A broker is taken for dead; of these publications, ascending, it is not known whether it has them."""
        self.gone(self._held.get(broker))
        held = self._held[broker] = Held(broker)
        for body in pending:
            self.keep(broker, body)
        return held

    def keep(self, broker: BrokerRef, body: Publish) -> None:
        """It misses these publications, too."""
        held = self._held.get(broker)
        if held is None:
            return
        held.publications.append(body)
        self.bytes += _size(body)
        while self.bytes > MOST_BYTES and held.publications:
            hit("no room for what is missed")
            oldest = held.publications.popleft()
            self.bytes -= _size(oldest)
            self.dropped += len(oldest.which)

    def __contains__(self, broker: BrokerRef) -> bool:
        """Is it kept what this life of a broker misses?"""
        return broker in self._held

    def of(self, broker: BrokerRef) -> list[Publish]:
        """What a life of a broker has missed so far, as far as it is kept."""
        held = self._held.get(broker)
        return [] if held is None else list(held.publications)

    def back(self, broker: BrokerRef) -> list[Publish]:
        """It is there again, in the same life: what it has missed. Nothing is kept for it any more."""
        found = self.of(broker)
        self.gone(self._held.get(broker))
        return found

    def gone(self, held: Held | None) -> bool:
        """It has not come back in time. True if that was still open."""
        if held is None or self._held.get(held.broker) is not held:
            return False
        del self._held[held.broker]
        self.bytes -= sum(map(_size, held.publications))
        return True


def _size(body: Publish) -> int:
    return sum(map(len, body.payloads)) + EACH * len(body.which)
