"""Connections of asyncio clients, past CONNACK."""

from __future__ import annotations

import asyncio

from benchmarks import packets

ADDRESSES = 250
"""The devices' hosts: what is limited by address is limited for each of them."""


async def connected(
    name: str, port: int, lasting: bool = False, host: int | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bool]:
    """Connect a client to the broker at loopback `port`. `lasting`: its session outlives the connection. `host`: number
    of the device, by which it has an address of its own. Return the connection, and whether its session was there.
    Raises `OSError` and `EOFError`."""
    source = None if host is None else (f"127.1.{host % ADDRESSES}.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=source)
    try:
        writer.write(packets.connect(name, lasting))
        connack = await reader.readexactly(packets.CONNACK_BYTES)
        if connack[0] != 0x20 or connack[3]:
            raise ConnectionRefusedError(f"{name}: {connack.hex()}")
    except BaseException:
        writer.close()
        raise
    return reader, writer, bool(connack[2])
