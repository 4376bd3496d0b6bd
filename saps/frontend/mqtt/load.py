"""Load averages: events a minute over the last 1, 5 and 15 minutes, as Mosquitto's ``$SYS/broker/load`` has them."""

from __future__ import annotations

from math import exp

WINDOWS = (1, 5, 15)
"""Minutes."""


class LoadAverage:
    """Exponentially decaying averages of the rate of a counter."""

    __slots__ = ("_last", "minutes")

    def __init__(self) -> None:
        self.minutes = dict.fromkeys(WINDOWS, 0.0)
        """Events a minute, by window."""
        self._last = 0.0

    def update(self, counter: float, elapsed: float) -> None:
        """The counter stands at this value, `elapsed` seconds (above 0) after the last update or the start."""
        rate = (counter - self._last) * 60 / elapsed
        self._last = counter
        for window in WINDOWS:
            weight = exp(-elapsed / (60 * window))
            self.minutes[window] = rate + weight * (self.minutes[window] - rate)
