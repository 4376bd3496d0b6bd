"""Work of many small steps in slices, so that frames, heartbeats and clients are served in between."""

from __future__ import annotations

from collections.abc import Callable

from saps.overlay.port import Port

SLICE = 64
"""Steps in one slice; with those of this package, less than 5 ms. More cost others latency."""
PAUSE = 0.001
"""Seconds between the beginnings of two slices. Longer costs throughput: at most `SLICE` / `PAUSE` steps a second."""


class Slices:
    """Calls `work` until it has no more to do, with `SLICE` steps at a time."""

    def __init__(self, port: Port, work: Callable[[int], int]) -> None:
        """`work(most)`: do at most so many steps, at least one if there is one; returns how many, 0 for nothing left.
        A step that is larger than others may count as several."""
        self._port = port
        self._work = work
        self._begun = -PAUSE
        """When the present slice began."""
        self._left = 0
        """Steps that it has left."""
        self._armed = False

    def wake(self) -> None:
        """There is something to do."""
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
