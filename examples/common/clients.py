"""MQTT 5 clients as the examples use them: aiomqtt, with payloads in JSON."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any, TypeVar

import msgspec
from aiomqtt import Client, Message, MqttError, ProtocolVersion, Will
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from examples.common.mesh import Address
from examples.common.program import TIMEOUT, dismiss

T = TypeVar("T")

ANSWER_TIMEOUT = 15.0
"""Seconds a broker may take to answer a CONNECT, SUBSCRIBE or acknowledged PUBLISH."""
NO_DELAY = ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),)

SILENT = logging.getLogger("examples.mqtt")
"""What the client library would log: of broken connections the examples speak themselves."""
SILENT.addHandler(logging.NullHandler())

AGAIN = 0.05
"""Seconds before a client whose connection broke tries the next broker."""


@asynccontextmanager
async def connected(name: str, at: Address, will: Will | None = None) -> AsyncIterator[Client]:
    """A connected client; raises `aiomqtt.MqttError` if it cannot connect or the connection breaks."""
    host, port = at
    client = Client(
        host,
        port,
        logger=SILENT,
        identifier=name,
        protocol=ProtocolVersion.V5,
        will=will,
        timeout=ANSWER_TIMEOUT,
        socket_options=NO_DELAY,
    )
    async with client:
        yield client


async def publish(
    client: Client, topic: str, value: msgspec.Struct, qos: int = 0, *, retain: bool = False, **properties: Any
) -> None:
    """Publish a value as JSON; `properties` are MQTT 5 properties by paho's names, such as ``ResponseTopic``.

    With QoS 1 and 2 returns when every broker with subscribers has the message. Raises `MqttError`.
    """
    attached = Properties(PacketTypes.PUBLISH) if properties else None  # type: ignore[no-untyped-call]
    for field, content in properties.items():
        setattr(attached, field, content)
    await client.publish(topic, msgspec.json.encode(value), qos, retain, attached)


def body(message: Message) -> bytes:
    """The payload as it came."""
    return message.payload if isinstance(message.payload, bytes) else str(message.payload).encode()


def read(message: Message, kind: type[T]) -> T:
    """The JSON payload. Raises `msgspec.DecodeError` if it is something else."""
    return msgspec.json.decode(body(message), type=kind)


def pull_the_plug(client: Client) -> None:
    """Cut the client's connection without DISCONNECT, as when its power fails: its broker publishes its will."""
    plug = client._client.socket()  # aiomqtt has no word for an accident
    if isinstance(plug, socket.socket):
        plug.shutdown(socket.SHUT_RDWR)


async def while_listening(client: Client, hear: Callable[[Message], None], work: Coroutine[Any, Any, None]) -> None:
    """Do the work, and hand every message over meanwhile. Raises `MqttError` as soon as the connection is lost, which
    aiomqtt tells only those who wait for messages."""

    async def listen() -> None:
        async for message in client.messages:
            hear(message)

    tasks = asyncio.create_task(listen()), asyncio.create_task(work)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await dismiss(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def at_any_broker(name: str, brokers: Sequence[Address], work: Callable[[Client], Awaitable[None]]) -> None:
    """Do the work at the first of the brokers; when the connection breaks begin it again at the next one, as a device
    does that has a list of brokers. Raises `MqttError` if none has taken it for `TIMEOUT` seconds."""
    since = time.monotonic()
    for at in cycle(brokers):
        try:
            async with connected(name, at) as client:
                since = time.monotonic()
                await work(client)
                return
        except MqttError:
            if time.monotonic() - since > TIMEOUT:
                raise
            await asyncio.sleep(AGAIN)
