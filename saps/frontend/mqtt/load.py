"""Computes load averages: events a minute over 1, 5 and 15 minutes, as in Mosquitto's ``$SYS/broker/load``."""

from __future__ import annotations

from math import exp

WINDOWS = (1, 5, 15)
"""Windows of the averages in minutes."""


class LoadAverage:
    """Exponentially decaying averages of the rate of a counter."""

    __slots__ = ("_last", "minutes")

    def __init__(self) -> None:
        self.minutes = dict.fromkeys(WINDOWS, 0.0)
        """By window: the average of events a minute."""
        self._last = 0.0

    def update(self, counter: float, elapsed: float) -> None:
        """Update the averages by the counter's value, `elapsed` seconds (above 0) after the last update or the
        start."""
        rate = (counter - self._last) * 60 / elapsed
        self._last = counter
        for window in WINDOWS:
            weight = exp(-elapsed / (60 * window))
            self.minutes[window] = rate + weight * (self.minutes[window] - rate)
