"""Deadlines on a clock that is handed in."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

FEW = 64
"""Cancelled timers that are never worth a search."""


class Timer:
    """An action that is to run at a given time. Once it has run or is cancelled it holds nothing."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[float], None]) -> None:
        self.action: Callable[[float], None] | None = action


class Timers:
    """Actions to run at given times."""

    def __init__(self, arm: Callable[[float], None] = lambda when: None) -> None:
        """`arm(when)` is called whenever the earliest deadline changes to an earlier one: call `run` then."""
        self._arm = arm
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._cancelled = 0
        """So many of the heap, about: no fewer."""

    @property
    def next(self) -> float | None:
        """The earliest deadline."""
        return self._heap[0][0] if self._heap else None

    def at(self, when: float, action: Callable[[float], None]) -> Timer:
        """Run `action(now)` at `when`."""
        earlier = not self._heap or when < self._heap[0][0]
        timer = Timer(action)
        heapq.heappush(self._heap, (when, next(self._order), timer))
        if earlier:
            self._arm(when)
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """It is not to run any more. Costs O(1) on average: the heap is searched when half of it is cancelled."""
        if timer is None or timer.action is None:
            return
        timer.action = None
        self._cancelled += 1
        if self._cancelled > FEW and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def run(self, now: float) -> None:
        """Run all actions that are due."""
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            action, timer.action = timer.action, None
            if action is not None:
                action(now)
