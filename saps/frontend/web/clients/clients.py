"""Assigns requests to Web clients: one client for each HTTP connection and user, as long as the connection lives.

The limits of one client therefore hold for all requests on a connection, and a password is checked only once. A proxy
may send the requests of several users on one connection; `USERS` of them are remembered.
"""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from saps.frontend.mqtt.driver.server import MqttServer
from saps.frontend.web.clients.client import WebClient
from saps.frontend.web.http.credentials import Credentials, credentials
from saps.frontend.web.http.problems import ProblemError

SWEEP = 1.0
"""Seconds between two searches for closed connections."""

USERS = 8
"""Most Web clients of one HTTP connection. A further one takes the place of the one that has been idle longest."""

_Clients = dict[Credentials, "asyncio.Task[WebClient]"]


class WebClients:
    """The HTTP clients of one MQTT server."""

    def __init__(self, server: MqttServer) -> None:
        self.server = server
        self._kept: dict[RequestHandler, _Clients] = {}
        """By HTTP connection: its clients, the one of the last request last."""
        self._sweeping: asyncio.TimerHandle | None = None

    def new(self, request: web.Request) -> WebClient:
        """Return a new client for one request, which the caller must connect and close. Raises `ProblemError` (503) if
        there are too many connections or this one has closed."""
        if self.server.full:
            self.server.frontend.counts.refused += 1
            raise ProblemError(503, "Too many connections")
        transport = request.transport
        if transport is None:
            raise ProblemError(503, "The connection is gone")
        return WebClient(self.server, transport)

    async def of(self, request: web.Request) -> WebClient:
        """Return the connected client of this HTTP connection and these credentials; connect it at the first request.
        Raises `ProblemError` if the client is refused."""
        who = credentials(request.headers.get("Authorization"))
        kept = self._kept.setdefault(request.protocol, {})
        if self._sweeping is None:
            self._sweep()
        task = kept.pop(who, None)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None or task.result().ended)):
            if len(kept) >= USERS:  # idle: a connection has one request at a time
                _drop(kept.pop(next(iter(kept))))
            task = asyncio.ensure_future(_connected(self.new(request), who))
        kept[who] = task
        try:
            return await asyncio.shield(task)
        except ProblemError:
            if kept.get(who) is task:  # so that guessing passwords does not fill the memory
                del kept[who]
            raise

    def close(self) -> None:
        """Disconnect and forget all clients."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for kept in self._kept.values():
            _drop_all(kept)
        self._kept.clear()

    def _sweep(self) -> None:
        for protocol, kept in list(self._kept.items()):
            if protocol.transport is None:
                del self._kept[protocol]
                _drop_all(kept)
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP, self._sweep) if self._kept else None


async def _connected(client: WebClient, who: Credentials) -> WebClient:
    await client.connect(who)
    return client


def _drop_all(kept: _Clients) -> None:
    for task in kept.values():
        _drop(task)


def _drop(task: asyncio.Task[WebClient]) -> None:
    if not task.done():
        task.cancel()
    elif not task.cancelled() and task.exception() is None:
        task.result().leave()
