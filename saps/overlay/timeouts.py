"""Runs many timeouts of the same length on one timer. Nearly all end long before they expire; those cost no wake-up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from saps.overlay.port import Port


class Waiting(Protocol):
    """An item with a timeout."""

    @property
    def over(self) -> bool:
        """Whether the item needs no timeout any more."""


W = TypeVar("W", bound=Waiting)


class SharedTimeout(Generic[W]):
    """Calls `late` with each item that is not over `seconds` after it was added."""

    def __init__(self, port: Port, seconds: float, late: Callable[[W], None]) -> None:
        self._port = port
        self.seconds = seconds
        self._late = late
        self._waiting: deque[tuple[float, W]] = deque()
        self._armed = False

    def add(self, what: W) -> None:
        """Start the timeout of an item."""
        self._waiting.append((self._port.now + self.seconds, what))
        if not self._armed:
            self._arm(self.seconds)

    def _arm(self, delay: float) -> None:
        self._armed = True
        self._port.after(delay, self._due)

    def _due(self) -> None:
        self._armed = False
        waiting, now = self._waiting, self._port.now
        while waiting and (waiting[0][1].over or waiting[0][0] <= now):
            what = waiting.popleft()[1]
            if not what.over:
                self._late(what)
        if waiting and not self._armed:
            self._arm(waiting[0][0] - now)
