"""Assigns requests to Web clients: one client for each HTTP connection and user, as long as the connection lives.

The limits of one client therefore hold for all requests on a connection, and a password is checked only once.
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

_Key = tuple[RequestHandler, Credentials]


class WebClients:
    """The HTTP clients of one MQTT server."""

    def __init__(self, server: MqttServer) -> None:
        self.server = server
        self._kept: dict[_Key, asyncio.Task[WebClient]] = {}
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
        key = (request.protocol, who)
        task = self._kept.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None or task.result().ended)):
            client = self.new(request)
            task = self._kept[key] = asyncio.ensure_future(_connected(client, who))
            if self._sweeping is None:
                self._sweep()
        try:
            return await asyncio.shield(task)
        except ProblemError:
            if self._kept.get(key) is task:  # so that guessing passwords does not fill the memory
                del self._kept[key]
            raise

    def close(self) -> None:
        """Disconnect and forget all clients."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for task in self._kept.values():
            _drop(task)
        self._kept.clear()

    def _sweep(self) -> None:
        for key, task in list(self._kept.items()):
            if key[0].transport is None:
                del self._kept[key]
                _drop(task)
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP, self._sweep) if self._kept else None


async def _connected(client: WebClient, who: Credentials) -> WebClient:
    await client.connect(who)
    return client


def _drop(task: asyncio.Task[WebClient]) -> None:
    if not task.done():
        task.cancel()
    elif not task.cancelled() and task.exception() is None:
        task.result().leave()
