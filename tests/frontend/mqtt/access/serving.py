"""An MQTT server that knows who may log in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from saps.frontend.mqtt.access.options import AuthOptions, TlsOptions
from saps.frontend.mqtt.driver.access_control import AccessControl
from saps.frontend.mqtt.driver.server import MqttServer
from saps.routing.hub import Hub


@asynccontextmanager
async def serving(auth: AuthOptions, tls: TlsOptions | None = None) -> AsyncIterator[MqttServer]:
    """Started, at a port of its own; with `tls` it listens for TLS, too."""
    server = MqttServer(Hub(), access=AccessControl(auth, tls, exposed=False))
    await server.start("127.0.0.1", 0)
    if tls is not None:
        await server.start_tls("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop()
