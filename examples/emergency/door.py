"""A door into a lab: a port of this machine that leads to an address inside a network namespace."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from examples.common.mesh import Address
from lab import Namespace

CHUNK = 1 << 16
"""Bytes passed on at a time."""


@asynccontextmanager
async def door(space: Namespace, to: Address) -> AsyncIterator[Address]:
    """Gives where to connect, for as long as the block lasts."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inside = space.connect(to, 10.0)
        except OSError:
            writer.close()
            return
        inside.setblocking(False)
        inside.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        there, back = await asyncio.open_connection(sock=inside)
        ways = (asyncio.create_task(_pass(reader, back)), asyncio.create_task(_pass(there, writer)))
        try:
            with suppress(asyncio.CancelledError):  # the loop ends with the program
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (writer, back):
                end.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()[:2]
        yield host, port
    finally:
        server.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
