"""The Eclipse Paho client, in both protocol versions; its callbacks run in its own thread."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from monitoring.counts.mqtt_io import disconnect
from saps.frontend.mqtt.driver.server import MqttServer
from tests.frontend.mqtt.peers import running, servers_of

pytestmark = pytest.mark.interop

VERSIONS = [paho.MQTTv311, paho.MQTTv5]


@pytest.fixture
async def server() -> AsyncIterator[MqttServer]:
    async with running() as server:
        yield server


class Client:
    """A paho client whose events can be awaited."""

    def __init__(self, server: MqttServer, client_id: str, version: int, keep: bool = False) -> None:
        self.server = server
        self.version = version
        self.messages: queue.SimpleQueue[paho.MQTTMessage] = queue.SimpleQueue()
        self.connected: queue.SimpleQueue[tuple[bool, int]] = queue.SimpleQueue()
        self.subscribed: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        extra: dict[str, Any] = {} if version == paho.MQTTv5 else {"clean_session": not keep}
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion(version), **extra)
        self.paho.reconnect_delay_set(0.01, 0.05)  # type: ignore[arg-type]
        self.paho.on_message = lambda client, data, message: self.messages.put(message)
        self.paho.on_connect = self._on_connect
        self.paho.on_subscribe = lambda client, data, mid, codes, properties: self.subscribed.put(
            [code.value for code in codes]
        )
        self.keep = keep

    def _on_connect(self, client: Any, data: Any, flags: Any, code: Any, properties: Any) -> None:
        self.connected.put((flags.session_present, code.value))

    async def connect(self) -> tuple[bool, int]:
        options: dict[str, Any] = {}
        if self.version == paho.MQTTv5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = 60 if self.keep else 0
            options = {"clean_start": not self.keep, "properties": properties}
        self.paho.connect_async(*self.server.address, **options)
        self.paho.loop_start()
        return await asyncio.to_thread(self.connected.get, timeout=10)

    async def subscribe(self, *arguments: Any, **options: Any) -> list[int]:
        self.paho.subscribe(*arguments, **options)
        return await asyncio.to_thread(self.subscribed.get, timeout=10)

    async def publish(self, topic: str, payload: bytes, qos: int, **options: Any) -> None:
        """Returns when the exchange is complete."""
        info = self.paho.publish(topic, payload, qos, **options)
        await asyncio.to_thread(info.wait_for_publish, 10)
        assert info.is_published()

    async def message(self) -> paho.MQTTMessage:
        return await asyncio.to_thread(self.messages.get, timeout=10)

    async def close(self) -> None:
        await asyncio.to_thread(disconnect, self.paho)


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_quality(server: MqttServer, version: int) -> None:
    client = Client(server, "c", version)
    assert await client.connect() == (False, 0)
    assert await client.subscribe([("a/0", 0), ("a/1", 1), ("a/2", 2)]) == [0, 1, 2]
    for sent in range(3):
        for granted in range(3):
            await client.publish(f"a/{granted}", b"%d%d" % (sent, granted), sent)
            message = await client.message()
            assert (message.payload, message.qos) == (b"%d%d" % (sent, granted), min(sent, granted))
    await client.close()


async def test_options_and_properties_of_5_0(server: MqttServer) -> None:
    client, other = Client(server, "c", paho.MQTTv5), Client(server, "o", paho.MQTTv5)
    await client.connect()
    await other.connect()
    properties = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
    properties.SubscriptionIdentifier = 12
    options = SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True)
    assert await client.subscribe("a", options=options, properties=properties) == [1]
    assert await client.subscribe("$share/g/b", options=SubscribeOptions(qos=1)) == [1]
    await client.publish("a", b"own", 1)
    sent = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    sent.UserProperty = [("k", "1"), ("k", "2")]
    sent.ContentType = "text"
    sent.TopicAlias = 1
    await other.publish("a", b"foreign", 1, retain=True, properties=sent)
    message = await client.message()
    assert (message.payload, message.retain) == (b"foreign", True)
    received: Any = message.properties
    assert received.UserProperty == [("k", "1"), ("k", "2")]
    assert received.ContentType == "text"
    assert received.SubscriptionIdentifier == [12]
    await client.close()
    await other.close()


@pytest.mark.parametrize("version", VERSIONS)
async def test_qos_2_arrives_exactly_once_though_connections_break(server: MqttServer, version: int) -> None:
    subscriber, publisher = Client(server, "s", version, keep=True), Client(server, "p", version, keep=True)
    await subscriber.connect()
    await publisher.connect()
    await subscriber.subscribe("a", 2)
    total = 300
    got: list[bytes] = []
    for number in range(total):
        publisher.paho.publish("a", b"%d" % number, 2)
        if number % 60 == 30:  # somewhere in the exchanges of the last messages
            got.append(bytes((await subscriber.message()).payload))
            for client in [client for each in servers_of(server) for client in each.sockets.clients]:
                if client.transport is not None:
                    client.transport.abort()
            assert (await asyncio.to_thread(subscriber.connected.get, timeout=10))[0]
            assert (await asyncio.to_thread(publisher.connected.get, timeout=10))[0]
    while len(got) < total:
        got.append(bytes((await subscriber.message()).payload))
    await publisher.publish("a", b"end", 2)
    got.append(bytes((await subscriber.message()).payload))
    assert len(got) == len(set(got)), "a message came twice"
    assert got == [*(b"%d" % n for n in range(total)), b"end"]
    await subscriber.close()
    await publisher.close()
