"""Collects the output of one turn of the event loop, so that each client gets one write a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.session.message_queue import MessageQueue


class Port(Protocol):
    """The transport of a connection, as the protocol machine uses it."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def flush(self) -> None:
        """Write the connection's `out`, and close the transport if the connection is `closing`."""

    def taken(self) -> int:
        """Return a number that changes when the client takes output."""


class Owner(Protocol):
    """The connection, as its parts use it (`saps.frontend.mqtt.connection.connection`)."""

    @property
    def label(self) -> str:
        """Client identifier and address for log lines."""

    def receive(self, data: bytes) -> None:
        """Handle input of the client, after the input that had to wait."""

    def close(self, reason: Reason, text: str = "") -> None:
        """Close the connection for `reason`. `text` goes to the log."""

    def close_as_faulty(self) -> None:
        """Close the connection after an internal error. Call this in the `except` clause."""


class Tap(Protocol):
    """Follows one client's packets (`saps.operations.following`)."""

    def received(self, client_id: str, data: bytes, pos: int, end: int) -> None:
        """Follow the whole packets `data[pos:end]`, which have been handled."""

    def sent(self, client_id: str, data: bytes) -> None:
        """Follow whole packets that are about to be written."""


class Nowhere:
    """Port and owner of the output of a connection whose transport is lost. (A `Port`, and an `Owner`.)"""

    label = "a client that has gone"

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def flush(self) -> None:
        pass

    def taken(self) -> int:
        return 0

    def receive(self, data: bytes) -> None:
        pass

    def close(self, reason: Reason, text: str = "") -> None:
        pass

    def close_as_faulty(self) -> None:
        pass


NOWHERE = Nowhere()


class Output:
    """The encoded packets for one client. The driver writes them at once, at the end of the turn of its loop."""

    __slots__ = (
        "_turn",
        "client_id",
        "closing",
        "out",
        "owner",
        "port",
        "queue",
        "tap",
        "tell_problems",
        "tell_reached",
    )

    def __init__(self, turn: Turn, port: Port, owner: Owner) -> None:
        self._turn = turn
        self.port = port
        self.owner = owner
        self.out: list[bytes] = []
        """Packets to write."""
        self.closing = False
        """Whether the connection ends: the client is not read, and the driver closes the transport after the output."""
        self.client_id = ""
        """The client's identifier; empty before it has entered its session."""
        self.queue: MessageQueue | None = None
        """The queue of the client's session; None before the client has entered it."""
        self.tap: Tap | None = None
        """Follows the client's packets, if set."""
        self.tell_problems = True
        """Whether answers may carry user properties (Request Problem Information, 3.1.2.11.7)."""
        self.tell_reached = False
        """Whether every answer to QoS 1 and 2 has the numbers of subscribers and brokers, even if not asked for."""

    def write(self, packets: bytes) -> None:
        """Add packets to the output, which is written at the end of this turn."""
        out = self.out
        if not out:
            self._turn.wake(self)
        out.append(packets)

    def wake(self) -> None:
        """Flush the output at the end of the turn, as the connection is closing."""
        self._turn.wake(self)

    def take(self) -> bytes:
        """Return the output as one piece, and clear it."""
        out = self.out
        packets = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        if (tap := self.tap) is not None:
            tap.sent(self.client_id, packets)
        return packets

    def release(self) -> None:
        """Forget the connection and its transport, which is lost."""
        self.port = self.owner = NOWHERE
        self.queue = self.tap = None


def _nothing(end: Callable[[], None]) -> None:
    pass


class Held(Protocol):
    """Holds output that waits for the storage (`saps.frontend.mqtt.connection.held`)."""

    def holds(self, output: Output) -> bool:
        """Return whether the output must wait. If so, this object will flush it."""

    def end_turn(self) -> None:
        """End the turn, after `holds` has been called for all its outputs."""


class Turn:
    """Tracks the connections with output, and writes it at the end of the turn."""

    __slots__ = ("_ending", "_reads", "_single", "call_soon", "dirty", "held")

    def __init__(self) -> None:
        self.dirty: list[Output] = []
        """New output since the last flush."""
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

    def has_read(self) -> None:
        """Count a read. Call this after `receive` of the connection.

        The output is written together with that of all connections that are read in this turn. It is written at once if
        this is the turn's first read and the turn before had at most one: batching would only delay it.
        """
        self._reads += 1
        if self._reads == 1 and self._single and self.dirty:
            self.flush()
        if not self._ending:
            self._ending = True
            self.call_soon(self._end)

    def wake(self, output: Output) -> None:
        """Flush the output at the end of the turn, as it has packets or its connection is closing."""
        if not self._ending:
            self._ending = True
            self.call_soon(self._end)
        self.dirty.append(output)

    def flush(self) -> None:
        """Write all output, except output that must wait for the storage."""
        held = self.held
        for output in self.dirty:
            if held is None or not held.holds(output):
                try:
                    output.port.flush()
                except Exception:  # a fault of the broker must not take down the other clients
                    output.owner.close_as_faulty()
        self.dirty.clear()
        if held is not None:
            held.end_turn()

    def _end(self) -> None:
        self._ending = False
        self._single, self._reads = self._reads <= 1, 0
        if self.dirty:
            self.flush()
