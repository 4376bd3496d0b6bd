"""Collects the output of one turn of the event loop, so that each client gets one write a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection


def _nothing(end: Callable[[], None]) -> None:
    pass


class Held(Protocol):
    """Holds output that waits for the storage (`saps.frontend.mqtt.connection.held`)."""

    def holds(self, connection: Connection) -> bool:
        """Return whether the connection's output must wait. If so, this object will flush it."""

    def end_turn(self) -> None:
        """End the turn, after `holds` has been called for all its connections."""


class Turn:
    """Tracks the connections with output, and writes it at the end of the turn."""

    __slots__ = ("_ending", "_reads", "_single", "call_soon", "dirty", "held")

    def __init__(self) -> None:
        self.dirty: list[Connection] = []
        """Connections with new output since the last flush."""
        self.call_soon: Callable[[Callable[[], None]], object] = _nothing
        """Schedules a function for the end of the turn. Without it the caller must `flush` after input."""
        self.held: Held | None = None
        """Holds output for the storage; None if no output must wait."""
        self._ending = False
        """Whether the end of this turn is scheduled."""
        self._reads = 0
        """Number of reads in this turn."""
        self._single = True
        """Whether the turn before had at most one read."""

    def received(self, connection: Connection, data: bytes) -> None:
        """Handle input of one connection.

        The output is written together with that of all connections that are read in this turn. It is written at once if
        this is the turn's first read and the turn before had at most one: batching would only delay it.
        """
        connection.receive(data)
        self._reads += 1
        if self._reads == 1 and self._single and self.dirty:
            self.flush()
        if not self._ending:
            self._ending = True
            self.call_soon(self._end)

    def wake(self, connection: Connection) -> None:
        """Flush the connection at the end of the turn, as it has output or is closing."""
        if not self._ending:
            self._ending = True
            self.call_soon(self._end)
        self.dirty.append(connection)

    def flush(self) -> None:
        """Write the output of all connections, except output that must wait for the storage."""
        held = self.held
        for connection in self.dirty:
            if held is None or not held.holds(connection):
                connection.port.flush()
        self.dirty.clear()
        if held is not None:
            held.end_turn()

    def _end(self) -> None:
        self._ending = False
        self._single, self._reads = self._reads <= 1, 0
        if self.dirty:
            self.flush()
