"""A running broker with storage, and clients that see what it answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Self

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from saps.broker.broker import Broker
from saps.config import Address, BrokerSettings
from saps.config.settings import OverlaySettings
from saps.config.storage import StorageSettings
from saps.frontend.mqtt.codec.decode import PacketReader
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, Ack, Connack, Connect, Packet
from saps.frontend.mqtt.codec.properties import Property
from saps.storage.place import Server

TIMEOUT = 60.0
"""Seconds to wait for what must come."""


@contextlib.asynccontextmanager
async def broker(
    place: Path | Server | None, name: str = "b", join: Broker | None = None, **storage: int
) -> AsyncIterator[Broker]:
    stored = {"url": place.url} if isinstance(place, Server) else {"file": str(place or "")}
    anywhere = Address("127.0.0.1", 0)
    settings = BrokerSettings(
        name=name,
        mqtt=anywhere,
        overlay=OverlaySettings(listen=anywhere),
        join=() if join is None else (Address.parse(join.ref.address),),
        storage=StorageSettings(**stored, **storage),  # type: ignore[arg-type]
        sys_interval=0,
    )
    running = Broker(settings)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


def client(running: Broker, name: str, expiry: int = 0) -> aiomqtt.Client:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = expiry
    return aiomqtt.Client(
        *running.server.address,
        identifier=name,
        protocol=aiomqtt.ProtocolVersion.V5,
        clean_start=not expiry,
        properties=properties,
        timeout=TIMEOUT,
    )


def recovery(running: Broker) -> asyncio.Event:
    """Set as soon as the storage takes everything again."""
    well = asyncio.Event()
    assert running.store is not None
    running.store.on_storage_fault.append(lambda storage_fault: None if storage_fault else well.set())
    return well


async def until(true: Callable[[], bool]) -> None:
    """Returns when the condition holds; nobody tells of it."""
    async with asyncio.timeout(TIMEOUT):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def taken(found: aiomqtt.Client, count: int) -> list[tuple[str, bytes]]:
    messages: list[tuple[str, bytes]] = []
    async with asyncio.timeout(TIMEOUT):
        while len(messages) < count:
            message = await anext(found.messages)
            assert isinstance(message.payload, bytes)
            messages.append((message.topic.value, message.payload))
    return messages


class Peer:
    """A client that sees every packet."""

    def __init__(self, running: Broker, name: str, expiry: int = 0) -> None:
        self._address = running.server.address
        self._connect = Connect(name, V5, not expiry, properties={Property.SESSION_EXPIRY: expiry})
        self._packets: deque[Packet] = deque()
        self._decoder = PacketReader(V5)

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(*self._address)
        self.send(self._connect)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._writer.close()

    def send(self, packet: Packet) -> None:
        self._writer.write(encode(packet, V5))

    async def next(self) -> Packet:
        """The next packet. Raises `EOFError` at the end."""
        while not self._packets:
            data = await asyncio.wait_for(self._reader.read(65536), TIMEOUT)
            if not data:
                raise EOFError
            self._packets.extend(self._decoder.feed(data))
        return self._packets.popleft()

    async def answer(self, packet: Packet) -> int:
        """Send a packet; the reason of the answer."""
        self.send(packet)
        answer = await self.next()
        assert isinstance(answer, Ack)
        return answer.reason

    async def welcome(self) -> int:
        """CONNACK's reason."""
        packet = await self.next()
        assert isinstance(packet, Connack)
        return packet.reason


async def subscribed_device(running: Broker) -> None:
    """A client with a session that lasts subscribes to ``a``, and goes."""
    async with client(running, "device", 3600) as device:
        await device.subscribe("a", qos=1)
