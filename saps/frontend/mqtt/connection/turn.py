"""One turn of the event loop: whatever is read in it, for any client, leads to one write for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection


def _nothing(end: Callable[[], None]) -> None:
    pass


class Held(Protocol):
    """Output that waits for the storage (`saps.frontend.mqtt.connection.held`)."""

    def holds(self, connection: Connection) -> bool:
        """Must this connection's output wait? If so, it is looked after there."""

    def end_turn(self) -> None:
        """The connections of this turn have been asked for their output."""


class Turn:
    """Which connections have something to send, and when it is written: at the end of the turn."""

    __slots__ = ("_ending", "_reads", "_single", "call_soon", "dirty", "held")

    def __init__(self) -> None:
        self.dirty: list[Connection] = []
        """Connections with output since the last flush."""
        self.call_soon: Callable[[Callable[[], None]], object] = _nothing
        """Runs something at the end of the turn; without it whoever gives input is to `flush`."""
        self.held: Held | None = None
        """What must wait for the storage, if there is one."""
        self._ending = False
        """The end of this turn is scheduled."""
        self._reads = 0
        """Reads in this turn."""
        self._single = True
        """The turn before had no more than one."""

    def received(self, connection: Connection, data: bytes) -> None:
        """Input of one connection. What it leads to is written with that of all others which are read in this turn; at
        once if turns have brought nothing else."""
        connection.receive(data)
        self._reads += 1
        if self._reads == 1 and self._single and self.dirty:
            self.flush()
        if not self._ending:
            self._ending = True
            self.call_soon(self._end)

    def wake(self, connection: Connection) -> None:
        """The connection has output, or is to be closed."""
        if not self._ending:
            self._ending = True
            self.call_soon(self._end)
        self.dirty.append(connection)

    def flush(self) -> None:
        """Write what the connections have to send, unless it must wait for the storage."""
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
