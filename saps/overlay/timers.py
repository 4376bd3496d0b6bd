"""The clock and the timers of one broker's state machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

Action = Callable[[], None]


class Timers:
    """All timers of one broker, the earliest first. Nothing runs by itself: the driver comes back at `deadline`."""

    def __init__(self, clock: Callable[[], float], nearer: Action) -> None:
        """`clock` returns monotonic seconds. `nearer` is called when `deadline` becomes earlier."""
        self._clock = clock
        self._nearer = nearer
        self._queue: list[tuple[float, int, Action]] = []
        self._serial = 0
        self.deadline = math.inf
        """When the first timer is due, in seconds of the clock; infinite without timers."""
        self.epoch = 0.0
        """Seconds to add to the clock to get the seconds since the epoch. The driver sets it by its machine's clock."""

    def wall(self) -> float:
        """Return the time of day as this broker knows it, in seconds since the epoch."""
        return self._clock() + self.epoch

    def after(self, delay: float, action: Action) -> None:
        """Run `action` once in `delay` seconds."""
        self._serial += 1
        when = self._clock() + delay
        heappush(self._queue, (when, self._serial, action))
        if when < self.deadline:
            self.deadline = when
            self._nearer()

    def every(self, interval: float, action: Action) -> None:
        """Run `action` repeatedly, `interval` seconds after the previous run, also if a run raises."""

        def again() -> None:
            try:
                action()
            finally:  # an exception must not end all later rounds
                self.every(interval, action)

        self.after(interval, again)

    def due(self) -> Iterator[Action]:
        """Yield the actions that are due; the caller must run each. After an exception in one, a new call continues
        with the next."""
        while self.deadline <= self._clock():
            _, _, action = heappop(self._queue)
            self.deadline = self._queue[0][0] if self._queue else math.inf
            yield action
