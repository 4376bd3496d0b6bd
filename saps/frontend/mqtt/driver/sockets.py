"""The connections of all clients, and the timer of the frontend behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from saps.frontend.mqtt.driver.traffic import NONE, Bytes
from saps.frontend.mqtt.timers import Timers


class Client(Protocol):
    """A client's connection as the server sees it, whatever carries it: a socket, or a WebSocket."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """What its bytes pass through; None once it is gone."""

    def traffic(self) -> Bytes:
        """What has passed so far. Also asked for while it ends."""


class Sockets:
    """Those that are open, and what the others have left: counts."""

    def __init__(self) -> None:
        self.clients: set[Client] = set()
        self.accepted = 0
        """Ever."""
        self._past = NONE
        """The traffic of the clients that are gone."""
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
        """Of all clients that ever were."""
        received, sent = map(sum, zip(self._past, *[client.traffic() for client in self.clients], strict=True))
        return Bytes(received, sent)

    async def emptied(self) -> None:
        """Returns when there is no connection any more."""
        while self.clients:
            self._all_closed.clear()
            await self._all_closed.wait()

    def cut(self) -> None:
        """End what is left at once."""
        for client in list(self.clients):
            if client.transport is not None:
                client.transport.abort()


class LoopTimer:
    """Runs the frontend's timers at their time: one timer of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timers: Callable[[], Timers]) -> None:
        """`timers` gives the frontend's, which are made with `arm`."""
        self._loop = loop
        self._timers = timers
        self._handle: asyncio.TimerHandle | None = None

    def arm(self, when: float) -> None:
        """The next one is due then, seconds of the loop's clock."""
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
