"""Which client a request is: one for each HTTP connection and user, for as long as the connection lives.

So the limits on what one client may do hold for whoever keeps a connection open and sends request after request, and a
password is looked at once.
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
"""Seconds between two looks at which connections are gone."""

_Key = tuple[RequestHandler, Credentials]


class WebClients:
    """The clients of one MQTT server that come by HTTP."""

    def __init__(self, server: MqttServer) -> None:
        self.server = server
        self._kept: dict[_Key, asyncio.Task[WebClient]] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    def new(self, request: web.Request) -> WebClient:
        """A client of its own, to be connected and closed by the caller. Raises `ProblemError`."""
        if self.server.full:
            self.server.frontend.counts.refused += 1
            raise ProblemError(503, "Too many connections")
        transport = request.transport
        if transport is None:
            raise ProblemError(503, "The connection is gone")
        return WebClient(self.server, transport)

    async def of(self, request: web.Request) -> WebClient:
        """The connected client of this HTTP connection. Raises `ProblemError` if it is refused."""
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
            if self._kept.get(key) is task:  # whoever tries passwords leaves nothing behind
                del self._kept[key]
            raise

    def close(self) -> None:
        """Forget all of them."""
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
