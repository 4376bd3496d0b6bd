"""What the interop tests share: a server on a free port, and outside clients as processes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from saps.frontend.mqtt.driver.server import MqttServer
from saps.frontend.mqtt.limits import Limits
from saps.routing.hub import Hub
from tests.frontend.mqtt.bench import Bench
from tests.frontend.mqtt.mesh_server import MeshServer, mesh


@asynccontextmanager
async def running(limits: Limits | None = None) -> AsyncIterator[MqttServer]:
    """A server, stopped at the end; with ``--mesh`` and the usual limits a mesh that looks like one."""
    if Bench.brokers > 1 and limits is None:
        async with mesh(Bench.brokers) as brokers:
            yield cast(MqttServer, brokers)
        return
    server = MqttServer(Hub(), limits)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop()


def servers_of(server: MqttServer) -> list[MqttServer]:
    """The server itself, or those of its mesh."""
    return server.servers if isinstance(server, MeshServer) else [server]


def need(program: str, package: str) -> None:
    """Skip the test, saying why, if the program is missing."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed (Debian package {package})")


async def run(*command: str) -> str:
    """The standard output of a command that must succeed."""
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-1)
    out, err = await process.communicate()
    assert process.returncode == 0, (command, out, err)
    return out.decode()
