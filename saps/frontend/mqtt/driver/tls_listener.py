"""Listens for TLS, and changes the certificate without losing a connection."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any

BACKLOG = 1024


class TlsListener:
    """Listens on one address.

    A server of `asyncio` cannot change its TLS context. So `renew` makes another server on the same sockets.
    """

    def __init__(self, factory: Callable[[], asyncio.Protocol], handshake_timeout: float) -> None:
        """Make a listener; then call `open`. `handshake_timeout`: limit of a TLS handshake in seconds."""
        self._factory = factory
        self._handshake_timeout = handshake_timeout
        self._servers: list[asyncio.Server] = []
        self.address: tuple[str, int] = ("", 0)
        """Host and port of the listener, once opened."""

    async def open(self, host: str, port: int, context: ssl.SSLContext) -> None:
        """Listen on an address. Raises `OSError` if the address is not available."""
        server = await self._made(context, host=host, port=port)
        self._servers = [server]
        self.address = server.sockets[0].getsockname()[:2]
        await server.start_serving()

    async def renew(self, context: ssl.SSLContext) -> None:
        """Use another context for new connections, also for those in the sockets' backlog.

        Raises `OSError` and changes nothing if the process has no file descriptors left.
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
        """Accept no new connections."""
        for server in self._servers:
            server.close()

    async def _made(self, context: ssl.SSLContext, **where: Any) -> asyncio.Server:
        """Make a server that does not listen yet.

        A caller that is cancelled while the server starts to listen then has the server to close.
        """
        return await asyncio.get_running_loop().create_server(
            self._factory,
            **where,
            ssl=context,
            backlog=BACKLOG,
            ssl_handshake_timeout=self._handshake_timeout,
            start_serving=False,
        )
