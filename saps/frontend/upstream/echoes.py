"""Remembers the messages that crossed the bridge recently, to detect echoes where the upstream strips bridge ids."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

CAPACITY = 65_536
"""Most crossings remembered (about 200 bytes each); the oldest is forgotten first, even within the window."""


class _Crossing(NamedTuple):
    at: float
    outwards: bool


class Echoes:
    """The messages that crossed within the last `window` seconds, by local topic and payload, with their direction.

    As only the content identifies a message, there are two errors. A copy delayed for longer than the window, or by
    more than `CAPACITY` other messages, is not recognised. An equal message within the window counts as a copy.
    """

    def __init__(self, window: float, capacity: int = CAPACITY) -> None:
        """`window`: seconds; 0 disables the detection. `capacity`: most crossings remembered."""
        self.window = window
        self.capacity = capacity
        self._crossings: OrderedDict[bytes, _Crossing] = OrderedDict()

    def __len__(self) -> int:
        return len(self._crossings)

    def crossed(self, topic: str, payload: bytes, outwards: bool, now: float) -> None:
        """Remember a message that crosses at `now`, in seconds on the bridge's clock."""
        if not self.window:
            return
        key = _digest(topic, payload)
        self._crossings.pop(key, None)  # keeps the crossings in the order of their times
        self._crossings[key] = _Crossing(now, outwards)
        if len(self._crossings) > self.capacity:
            self._crossings.popitem(last=False)

    def went_out(self, topic: str, payload: bytes, now: float) -> bool:
        """Return whether an equal message went to the upstream within the window."""
        found = self._find(topic, payload, now)
        return found is not None and found.outwards

    def passed(self, topic: str, payload: bytes, now: float) -> bool:
        """Return whether an equal message crossed in either direction within the window."""
        return self._find(topic, payload, now) is not None

    def _find(self, topic: str, payload: bytes, now: float) -> _Crossing | None:
        if not self.window:
            return None
        while self._crossings:
            oldest = next(iter(self._crossings))
            if now - self._crossings[oldest].at < self.window:
                break
            del self._crossings[oldest]
        return self._crossings.get(_digest(topic, payload))


def _digest(topic: str, payload: bytes) -> bytes:
    name = topic.encode()
    return blake2b(len(name).to_bytes(4) + name + payload, digest_size=16).digest()
