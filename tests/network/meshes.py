"""A mesh of real brokers in one event loop, and MQTT clients (aiomqtt) that remember what they received."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Literal, Self

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from examples.common.clients import NO_DELAY
from saps.broker.broker import Broker
from saps.config import Address, BrokerSettings, LimitSettings, OverlaySettings

TIMEOUT = 20.0
"""Seconds a test waits for what must come."""

_serial = itertools.count(1)


def settings(
    name: str,
    cluster: str,
    join: Sequence[Address] = (),
    order: Literal["la", "plain"] = "la",
    limits: LimitSettings | None = None,
) -> BrokerSettings:
    """A broker's settings: free ports on loopback, all else as by default."""
    any_port = Address("127.0.0.1", 0)
    overlay = OverlaySettings(listen=any_port, alm_order=order)
    return BrokerSettings(
        name=name,
        cluster=cluster,
        mqtt=any_port,
        join=tuple(join),
        overlay=overlay,
        limits=limits or LimitSettings(),
    )


@asynccontextmanager
async def mesh(
    count: int = 5,
    clusters: int = 3,
    order: Literal["la", "plain"] = "la",
    limits: LimitSettings | None = None,
) -> AsyncIterator[list[Broker]]:
    """Brokers b0, b1, ... dealt out over the clusters c0, c1, ..., all joined through b0. Cut off at the end."""
    brokers: list[Broker] = []
    try:
        for number in range(count):
            join = [Address.parse(brokers[0].ref.address)] if brokers else []
            broker = Broker(settings(f"b{number}", f"c{number % clusters}", join, order, limits))
            await broker.start()
            brokers.append(broker)
        yield brokers
    finally:
        for broker in brokers:
            await cut(broker)


async def cut(broker: Broker) -> None:
    """End a broker without its leave, which takes a second: when a test is over it owes nobody anything."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await broker.stop()


def data_messages(brokers: Sequence[Broker]) -> int:
    """Inter-broker data messages the brokers have sent so far."""
    return sum(broker.mesh.node.delivery.multicast.sent for broker in brokers)


class Client:
    """A client at one broker; use as an async context manager. `received` has everything, in order of arrival."""

    def __init__(
        self,
        address: tuple[str, int],
        name: str = "",
        will: aiomqtt.Will | None = None,
        user: str | None = None,
        expiry: int = 0,
    ) -> None:
        """`user`: whose password is the same word. `expiry`: seconds for which its session stays; such a client takes
        up the session it has."""
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = expiry
        self.name = name or f"client{next(_serial)}"
        self.received: list[tuple[str, bytes]] = []
        self.connected = False
        self._client = aiomqtt.Client(
            *address,
            identifier=self.name,
            protocol=aiomqtt.ProtocolVersion.V5,
            will=will,
            username=user,
            password=user,
            clean_start=not expiry,
            properties=properties,
            socket_options=NO_DELAY,  # a publication need not wait for an ACK
        )
        self._changed = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        self.connected = True
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._reader is not None
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        with suppress(aiomqtt.MqttError, TimeoutError):  # its broker went first; uvloop does not tell of every reset
            async with asyncio.timeout(1.0):
                await self._client.__aexit__(None, None, None)

    async def subscribe(self, *filters: str, qos: int = 1) -> None:
        """Returns after SUBACK."""
        await self._client.subscribe([(topic_filter, qos) for topic_filter in filters])

    async def unsubscribe(self, topic_filter: str) -> None:
        """Returns after UNSUBACK."""
        await self._client.unsubscribe(topic_filter)

    async def publish(
        self, topic: str, payload: bytes | str, qos: int = 0, retain: bool = False, expiry: int | None = None
    ) -> None:
        """Returns, with QoS 1, after PUBACK. Raises `aiomqtt.MqttError` if the broker has gone."""
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        if expiry is not None:
            properties.MessageExpiryInterval = expiry
        await self._client.publish(topic, payload, qos=qos, retain=retain, properties=properties, timeout=TIMEOUT)

    async def until(self, condition: Callable[[], bool], seconds: float = TIMEOUT) -> None:
        """Wait until `condition` holds; it is looked at after each arrival. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def expect(self, topic: str, payload: bytes) -> None:
        """Wait until the message has come. Raises TimeoutError."""
        await self.until(lambda: (topic, payload) in self.received)

    def by_publisher(self) -> dict[str, list[int]]:
        """Of payloads ``publisher number``: the numbers from each publisher, in order of arrival."""
        numbers: dict[str, list[int]] = defaultdict(list)
        for _, payload in self.received:
            publisher, number = payload.split()
            numbers[publisher.decode()].append(int(number))
        return numbers

    async def _read(self) -> None:
        try:
            async for message in self._client.messages:
                assert isinstance(message.payload, bytes)
                self.received.append((message.topic.value, message.payload))
                self._changed.set()
        except aiomqtt.MqttError:
            self.connected = False
            self._changed.set()


class Source:
    """A client that publishes ``name 1``, ``name 2``, ... to one topic until told to stop."""

    def __init__(self, client: Client, topic: str, qos: int) -> None:
        self.client = client
        self.name = f"{client.name}/{qos}"
        self.topic = topic
        self.qos = qos
        self.last = 0
        """Number of the last message, published or being published."""
        self._stop = False
        self._progress = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def further(self, count: int) -> None:
        """Wait until `count` more messages are out."""
        goal = self.last + count
        async with asyncio.timeout(TIMEOUT):
            while self.last < goal:
                self._progress.clear()
                await self._progress.wait()

    async def stop(self) -> None:
        """Stop after the present message."""
        self._stop = True
        await self._task

    async def _run(self) -> None:
        while not self._stop:
            self.last += 1
            # Every eighth of QoS 0 goes with QoS 1: its PUBACK keeps the source from running ahead of the mesh.
            qos = self.qos or int(self.last % 8 == 0)
            await self.client.publish(self.topic, f"{self.name} {self.last}", qos)
            self._progress.set()


@asynccontextmanager
async def sources(brokers: Sequence[Broker], topic: str) -> AsyncIterator[list[Source]]:
    """A source of QoS 0 and one of QoS 1 at each broker, at work; stopped at the end."""
    async with AsyncExitStack() as stack:
        started = []
        for broker in brokers:
            client = await stack.enter_async_context(Client(broker.server.address, f"at-{broker.ref.name}"))
            started += [Source(client, topic, 0), Source(client, topic, 1)]
        try:
            yield started
        finally:
            await asyncio.gather(*(source.stop() for source in started))
