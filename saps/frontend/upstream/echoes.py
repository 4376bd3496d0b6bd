"""What has crossed the bridge lately, for upstreams that strip the marks by which an echo is known."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

CAPACITY = 65_536
"""Crossings remembered (about 200 bytes each); beyond it the oldest is forgotten before its time."""


class _Crossing(NamedTuple):
    at: float
    outwards: bool


class Echoes:
    """The messages, by local topic and payload, that crossed within the last `window` seconds, and which way.

    A copy that is delayed for longer than the window, or outlived by `CAPACITY` others, is not recognised; an equal
    message within the window is taken for a copy. That is the price of having nothing but the content to go by.
    """

    def __init__(self, window: float, capacity: int = CAPACITY) -> None:
        """`window` in seconds; 0: nothing is remembered, nothing recognised."""
        self.window = window
        self.capacity = capacity
        self._crossings: OrderedDict[bytes, _Crossing] = OrderedDict()

    def __len__(self) -> int:
        return len(self._crossings)

    def crossed(self, topic: str, payload: bytes, outwards: bool, now: float) -> None:
        """The message crosses now."""
        if not self.window:
            return
        key = _digest(topic, payload)
        self._crossings.pop(key, None)  # so that the order stays that of the times
        self._crossings[key] = _Crossing(now, outwards)
        if len(self._crossings) > self.capacity:
            self._crossings.popitem(last=False)

    def went_out(self, topic: str, payload: bytes, now: float) -> bool:
        """True if an equal message went out within the window."""
        found = self._find(topic, payload, now)
        return found is not None and found.outwards

    def passed(self, topic: str, payload: bytes, now: float) -> bool:
        """True if an equal message crossed, either way, within the window."""
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
