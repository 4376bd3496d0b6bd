"""Deadlines on a clock that is handed in."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Timers:
    """Actions to run at given times. Actions are not cancelled: one that is no longer due does nothing when it runs."""

    def __init__(self, arm: Callable[[float], None] = lambda when: None) -> None:
        """`arm(when)` is called whenever the earliest deadline changes to an earlier one: call `run` then."""
        self._arm = arm
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()

    @property
    def next(self) -> float | None:
        """The earliest deadline."""
        return self._heap[0][0] if self._heap else None

    def at(self, when: float, action: Callable[[float], None]) -> None:
        """Run `action(now)` at `when`."""
        earlier = not self._heap or when < self._heap[0][0]
        heapq.heappush(self._heap, (when, next(self._order), action))
        if earlier:
            self._arm(when)

    def run(self, now: float) -> None:
        """Run all actions that are due."""
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2](now)
