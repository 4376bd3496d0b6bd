"""A TLS listener that takes a new certificate without missing a connection."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any

BACKLOG = 1024


class TlsListener:
    """Listens on one address. A server of `asyncio` keeps its context, so `renew` puts another one on its sockets."""

    def __init__(self, factory: Callable[[], asyncio.Protocol], handshake_timeout: float) -> None:
        """`handshake_timeout`: seconds until a client that does not finish it is cut off."""
        self._factory = factory
        self._handshake_timeout = handshake_timeout
        self._servers: list[asyncio.Server] = []
        self.address: tuple[str, int] = ("", 0)
        """Where it listens, once opened."""

    async def open(self, host: str, port: int, context: ssl.SSLContext) -> None:
        """Listen. Raises `OSError` if the address cannot be had."""
        server = await self._made(context, host=host, port=port)
        self._servers = [server]
        self.address = server.sockets[0].getsockname()[:2]
        await server.start_serving()

    async def renew(self, context: ssl.SSLContext) -> None:
        """Use this context for new connections. Those that wait in the sockets' backlog get it, too.

        Raises `OSError`, and nothing has changed, if the process has no file descriptors left.
        """
        fresh: list[asyncio.Server] = []
        try:
            for listening in [sock for server in self._servers for sock in server.sockets]:
                sock = socket.socket(fileno=os.dup(listening.fileno()))
                fresh.append(await self._made(context, sock=sock))
                await fresh[-1].start_serving()
        except BaseException:
            for server in fresh:
                server.close()
            raise
        before, self._servers = self._servers, fresh
        for server in before:
            server.close()

    def close(self) -> None:
        """Take no new connections."""
        for server in self._servers:
            server.close()

    async def _made(self, context: ssl.SSLContext, **where: Any) -> asyncio.Server:
        """Does not listen yet: who waits for that, and is cancelled, knows what is to be closed."""
        return await asyncio.get_running_loop().create_server(
            self._factory,
            **where,
            ssl=context,
            backlog=BACKLOG,
            ssl_handshake_timeout=self._handshake_timeout,
            start_serving=False,
        )
