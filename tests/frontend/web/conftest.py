"""A broker with a Web port in this process, on free ports."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import ClientSession

from saps.broker.broker import Broker
from saps.config.sources_io import load

ANY = "127.0.0.1:0"
TIMEOUT = 60.0
"""Seconds a test waits for what must come."""


def authorization(auth: tuple[str, str] | None) -> dict[str, str]:
    """The header for a user and a password."""
    return {"Authorization": f"Basic {b64encode(':'.join(auth).encode()).decode()}"} if auth else {}


class Site:
    """A running broker, and an HTTP client that knows where it is."""

    def __init__(self, broker: Broker, session: ClientSession) -> None:
        self.broker = broker
        self.session = session
        self.kept: list[object] = []
        """Sockets that nobody else holds: forgotten ones are closed."""
        assert broker.web is not None
        host, port = broker.web.addresses[0]
        self.url = f"http://{host}:{port}"

    async def publish(self, topic: str, body: bytes = b"", **query: Any) -> tuple[int, dict[str, Any]]:
        """Status and answer of a publication. ``auth``: user and password."""
        auth = query.pop("auth", None)
        async with self.session.post(
            f"{self.url}/v1/topics/{topic}",
            params={name.replace("_", "-"): str(value) for name, value in query.items()},
            data=body,
            headers={"Content-Type": "application/x-www-form-urlencoded", **authorization(auth)},
        ) as response:
            return response.status, await response.json(content_type=None)

    async def json(self, path: str, **more: Any) -> Any:
        """The answer to GET."""
        async with self.session.get(self.url + path, **more) as response:
            return await response.json(content_type=None)


Start = Callable[..., Awaitable[Site]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts brokers with these settings; all are stopped at the end."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(ClientSession())

        async def one(name: str = "b1", **settings: Any) -> Site:
            flags = {"mqtt": ANY, "overlay.listen": ANY, "web.listen": ANY, "overlay.leave_timeout": "2"}
            flags |= {key.replace("__", "."): str(value) for key, value in settings.items()}
            broker = Broker(load({"name": name, **flags}, {}).settings)
            await broker.start()
            stack.push_async_callback(broker.stop)
            return Site(broker, session)

        yield one


async def crash(site: Site) -> None:
    """The broker ends at once, and takes leave of nobody."""
    stopping = asyncio.create_task(site.broker.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)


@pytest.fixture
async def site(start: Start) -> Site:
    """One broker that lets everyone in."""
    return await start()
