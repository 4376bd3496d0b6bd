"""Many waits of the same length on one timer: nearly all are over long before, and then they cost no wake-up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from saps.overlay.port import Port


class Waiting(Protocol):
    """Something that is waited for."""

    @property
    def over(self) -> bool:
        """It need not be waited for any more."""


W = TypeVar("W", bound=Waiting)


class SharedTimeout(Generic[W]):
    """Whatever is not over `seconds` after it was added is handed to `late`."""

    def __init__(self, port: Port, seconds: float, late: Callable[[W], None]) -> None:
        self._port = port
        self.seconds = seconds
        self._late = late
        self._waiting: deque[tuple[float, W]] = deque()
        self._armed = False

    def add(self, what: W) -> None:
        """Begin to wait."""
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
