"""Runs work of many small steps in slices, so that frames, heartbeats and clients are served in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from saps.overlay.port import Port

SLICE = 64
"""Steps in one slice: less than 5 ms with the steps of this package. More steps delay other work."""
PAUSE = 0.001
"""Seconds between the starts of two slices. The throughput is at most `SLICE` / `PAUSE` steps a second."""

T = TypeVar("T")


class Slices:
    """Calls `work` until nothing is left, `SLICE` steps at a time."""

    def __init__(self, port: Port, work: Callable[[int], int]) -> None:
        """`work(most)` does at most `most` steps, and at least one if one is left. It returns the number of steps done,
        or 0 if nothing is left. A large step may count as several."""
        self._port = port
        self._work = work
        self._begun = -PAUSE
        """When the present slice began, in seconds of the port's clock."""
        self._left = 0
        """Steps left in the present slice."""
        self._armed = False

    def wake(self) -> None:
        """Schedule the work. Call this when there is something to do."""
        if not self._armed:
            self._armed = True
            pause = 0.0 if self._left > 0 else max(0.0, self._begun + PAUSE - self._port.now)
            self._port.after(pause, self._run)

    def _run(self) -> None:
        self._armed = False
        if self._port.now >= self._begun + PAUSE:
            self._begun, self._left = self._port.now, SLICE
        if self._left <= 0:
            self.wake()
            return
        done = self._work(self._left)
        self._left -= done
        if done:
            self.wake()


class Backlog(Generic[T]):
    """Items that wait for a step, each for one, which are taken in slices, the last first. They must be hashable."""

    def __init__(self, port: Port, step: Callable[[T], None]) -> None:
        self._step = step
        self._waiting: dict[T, None] = {}
        self._slices = Slices(port, self._work)

    def add(self, items: Iterable[T]) -> None:
        """Have the step run for these items, soon; once for an item that waits already."""
        self._waiting.update(dict.fromkeys(items))
        self._slices.wake()

    def _work(self, most: int) -> int:
        count = min(most, len(self._waiting))
        for _ in range(count):
            self._step(self._waiting.popitem()[0])
        return count
