"""Runs actions at deadlines, on a clock that the caller supplies."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

FEW = 64
"""The heap is not cleaned up to this number of cancelled timers."""


class Timer:
    """A pending action. Once the action has run or is cancelled, the timer no longer refers to it."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[float], None]) -> None:
        self.action: Callable[[float], None] | None = action


class Timers:
    """A heap of pending actions, by their deadlines."""

    def __init__(self, arm: Callable[[float], None] = lambda when: None) -> None:
        """Make an empty heap. It calls `arm(when)` when the next deadline gets earlier; call `run` at that time."""
        self._arm = arm
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._cancelled = 0
        """Number of cancelled timers in the heap; an upper bound."""

    @property
    def next(self) -> float | None:
        """The earliest deadline in seconds on the clock; None without timers."""
        return self._heap[0][0] if self._heap else None

    def at(self, when: float, action: Callable[[float], None]) -> Timer:
        """Add a timer that runs `action(now)` at `when`, in seconds on the clock, and return it."""
        earlier = not self._heap or when < self._heap[0][0]
        timer = Timer(action)
        heapq.heappush(self._heap, (when, next(self._order), timer))
        if earlier:
            self._arm(when)
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Cancel a timer, if it is still pending.

        Costs O(1) amortised: the heap is cleaned only when half of its timers are cancelled.
        """
        if timer is None or timer.action is None:
            return
        timer.action = None
        self._cancelled += 1
        if self._cancelled > FEW and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def run(self, now: float) -> None:
        """Run all actions that are due at `now`."""
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            action, timer.action = timer.action, None
            if action is not None:
                action(now)
