"""What the interop tests share: a server on a free port, and outside clients as processes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.server import MqttServer
from saps.hub import Hub


@asynccontextmanager
async def running(limits: Limits | None = None) -> AsyncIterator[MqttServer]:
    """A server, stopped at the end."""
    server = MqttServer(Hub(), limits)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop()


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
