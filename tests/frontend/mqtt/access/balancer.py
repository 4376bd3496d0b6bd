"""A load balancer that speaks the PROXY protocol."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address

from saps.frontend.mqtt.access.proxy_header import SIGNATURE


def value(kind: int, content: bytes) -> bytes:
    return bytes((kind,)) + len(content).to_bytes(2) + content


def binary(host: str, port: int, values: bytes = b"", command: int = 0x21) -> bytes:
    """A header of version 2, to a port 1883 of the same address."""
    address = ip_address(host)
    places = address.packed * 2 + port.to_bytes(2) + (1883).to_bytes(2) + values
    return SIGNATURE + bytes((command, 0x11 if address.version == 4 else 0x21)) + len(places).to_bytes(2) + places


@asynccontextmanager
async def balancer(address: tuple[str, int]) -> AsyncIterator[int]:
    """A load balancer on a port of its own: it says that its clients are at 192.0.2.7, and passes bytes."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        except (ConnectionError, ssl.SSLError):
            pass
        writer.close()

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection(*address)
        outer.write(binary("192.0.2.7", 5))
        await asyncio.gather(pipe(reader, outer), pipe(inner, writer))

    listening = await asyncio.start_server(client, "localhost", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
