"""The Web port of a server under test."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle

from saps.frontend.mqtt.driver.server import MqttServer
from saps.frontend.web.clients.mqtt_socket import MqttSockets
from saps.frontend.web.http.application import WebServer
from tests.frontend.mqtt.peers import servers_of


@asynccontextmanager
async def web_server(
    server: MqttServer, origins: tuple[str, ...] = (), context: ssl.SSLContext | None = None, seconds: float = 10.0
) -> AsyncIterator[WebServer]:
    """MQTT over WebSocket on a free port, closed at the end."""
    web = WebServer(seconds, origins=origins)
    turns = cycle([MqttSockets(each, web.origins) for each in servers_of(server)])
    web.add("/mqtt", lambda request: next(turns).handle(request))
    await web.listen("127.0.0.1", 0, context)
    try:
        yield web
    finally:
        await server.stop()
        await web.close()
