"""The clock of one broker's machines, and what they want done later."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

Action = Callable[[], None]


class Timers:
    """All timers of one broker, the earliest first. Nothing runs by itself: the driver comes back at `deadline`."""

    def __init__(self, clock: Callable[[], float], nearer: Action) -> None:
        """`clock` gives seconds, monotonic. `nearer` is told when `deadline` comes nearer."""
        self._clock = clock
        self._nearer = nearer
        self._queue: list[tuple[float, int, Action]] = []
        self._serial = 0
        self.deadline = math.inf
        """When the first of them is due."""
        self.epoch = 0.0
        """What is to be added to the clock for the seconds since the epoch; the driver sets it, by its machine's
        clock."""

    def wall(self) -> float:
        """Seconds since the epoch, as far as this broker knows."""
        return self._clock() + self.epoch

    def after(self, delay: float, action: Action) -> None:
        """Have it done in `delay` seconds."""
        self._serial += 1
        when = self._clock() + delay
        heappush(self._queue, (when, self._serial, action))
        if when < self.deadline:
            self.deadline = when
            self._nearer()

    def every(self, interval: float, action: Action) -> None:
        """Have it done once in each interval."""

        def again() -> None:
            try:
                action()
            finally:  # a fault ends this round, not all that follow
                self.every(interval, action)

        self.after(interval, again)

    def due(self) -> Iterator[Action]:
        """What is to be done now. After a fault in one of them a new call goes on with the next."""
        while self.deadline <= self._clock():
            _, _, action = heappop(self._queue)
            self.deadline = self._queue[0][0] if self._queue else math.inf
            yield action
