"""Tracks the connections of all clients, and runs the frontend's timers on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from saps.frontend.mqtt.driver.traffic import NONE, Bytes
from saps.frontend.mqtt.timers import Timers


class Client(Protocol):
    """A client's connection, over a socket or a WebSocket."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """The connection's transport; None once the connection is lost."""

    def traffic(self) -> Bytes:
        """Return the bytes received and sent so far. `Sockets.closed` calls this while the connection ends."""


class Sockets:
    """The open connections, and the traffic of the closed ones."""

    def __init__(self) -> None:
        self.clients: set[Client] = set()
        self.accepted = 0
        """Number of connections since the start."""
        self._past = NONE
        """Traffic of all closed connections."""
        self._all_closed = asyncio.Event()

    def opened(self, client: Client) -> None:
        self.accepted += 1
        self.clients.add(client)

    def closed(self, client: Client) -> None:
        received, sent = client.traffic()
        self._past = Bytes(self._past.received + received, self._past.sent + sent)
        self.clients.discard(client)
        if not self.clients:
            self._all_closed.set()

    def traffic(self) -> Bytes:
        """Return the traffic of all connections since the start."""
        received, sent = map(sum, zip(self._past, *[client.traffic() for client in self.clients], strict=True))
        return Bytes(received, sent)

    async def emptied(self) -> None:
        """Wait until no connection is open."""
        while self.clients:
            self._all_closed.clear()
            await self._all_closed.wait()

    def cut(self) -> None:
        """Abort all open connections."""
        for client in list(self.clients):
            if client.transport is not None:
                client.transport.abort()


class LoopTimer:
    """Runs the frontend's timers when they are due, by one timer of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timers: Callable[[], Timers]) -> None:
        """Make the timer. `timers` returns the frontend's timers, which were made with `arm`."""
        self._loop = loop
        self._timers = timers
        self._handle: asyncio.TimerHandle | None = None

    def arm(self, when: float) -> None:
        """Set the time of the next due timer, in seconds on the loop's clock."""
        self.stop()
        self._handle = self._loop.call_at(when, self._run)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _run(self) -> None:
        self._handle = None
        timers = self._timers()
        try:
            timers.run(self._loop.time())
        finally:  # a fault in one action must not stop the others
            if timers.next is not None:
                self.arm(timers.next)
