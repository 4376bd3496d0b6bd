"""A port that a machine can be tried on by itself: with a clock, and nobody else in the mesh but who the test plays."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import count

from saps.overlay.ring.keys import BrokerRef, KeyOrder


class LonePort:
    """The port of a broker b1, without `send`: that is for the test to say."""

    def __init__(self, *, dead: bool = False) -> None:
        self.me, self.order, self.now, self.grace = BrokerRef("b1", 1, "", "c"), KeyOrder.CLUSTER, 0.0, 0.0
        self.first_heard: dict[str, tuple[int, float]] = {}
        self.dead = dead
        """All others are taken for dead."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()

    def after(self, delay: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._number), action))

    def lost(self, broker: BrokerRef) -> bool:
        return self.dead

    def reachable(self, broker: BrokerRef) -> bool:
        return True

    def run(self, until: float = math.inf) -> None:
        """Let time pass; without an end, until nothing is to happen any more."""
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
        if until < math.inf:
            self.now = until
