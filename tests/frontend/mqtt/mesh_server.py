"""The MQTT server with a mesh behind it (``pytest --mesh 3``): brokers of which each has every third connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from typing import Any, cast

import pytest

from saps.broker.broker import Broker
from saps.config.sources_io import load
from saps.frontend.mqtt.driver.server import MqttServer
from saps.frontend.mqtt.driver.tcp_client import TcpClient

ANY = "127.0.0.1:0"


class MeshServer:
    """What a test sees of the servers. One that would look into a server is skipped."""

    def __init__(self, servers: list[MqttServer], address: tuple[str, int]) -> None:
        self.servers = servers
        self.address = address
        """A port that deals its connections to the brokers in turn."""

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"looks into one broker: {name}")

    async def stop(self) -> None:
        """As `MqttServer.stop`, for all."""
        await asyncio.gather(*(server.stop() for server in self.servers))


@asynccontextmanager
async def mesh(count: int) -> AsyncIterator[MeshServer]:
    """So many brokers of one mesh, stopped at the end."""
    async with AsyncExitStack() as stack:
        brokers: list[Broker] = []
        for number in range(count):
            joins = {"join": ",".join(broker.ref.address for broker in brokers)} if brokers else {}
            settings = {"mqtt": ANY, "overlay.listen": ANY, "overlay.leave_timeout": "2", **joins}
            broker = Broker(load({"name": f"b{number}", **settings}, {}).settings)
            await broker.start()
            stack.push_async_callback(broker.stop)
            brokers.append(broker)
        servers = [broker.server for broker in brokers]
        turns = cycle(servers)
        listener = await asyncio.get_running_loop().create_server(
            lambda: cast(asyncio.Protocol, TcpClient(next(turns))), "127.0.0.1", 0
        )
        stack.callback(listener.close)
        yield MeshServer(servers, listener.sockets[0].getsockname()[:2])
