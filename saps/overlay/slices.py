"""Runs work of many small steps in slices, so that frames, heartbeats and clients are served in between."""

from __future__ import annotations

from collections.abc import Callable

from saps.overlay.port import Port

SLICE = 64
"""Steps in one slice: less than 5 ms with the steps of this package. More steps delay other work."""
PAUSE = 0.001
"""Seconds between the starts of two slices. The throughput is at most `SLICE` / `PAUSE` steps a second."""


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
