"""aiomqtt, the client the examples use, in both protocol versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiomqtt
import pytest

from saps.frontend.mqtt.driver.server import MqttServer
from tests.frontend.mqtt.bench import Bench
from tests.frontend.mqtt.peers import running, servers_of

pytestmark = pytest.mark.interop


@pytest.fixture
async def server() -> AsyncIterator[MqttServer]:
    async with running() as server:
        yield server


@pytest.mark.parametrize("version", [aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_stream_of_messages_arrives_in_order(
    server: MqttServer, version: aiomqtt.ProtocolVersion, qos: int
) -> None:
    host, port = server.address
    async with (
        aiomqtt.Client(host, port, protocol=version, identifier="s") as subscriber,
        aiomqtt.Client(host, port, protocol=version, identifier="p") as publisher,
    ):
        await subscriber.subscribe("city/#", qos=qos)
        received: list[int] = []

        async def receive() -> None:
            async for message in subscriber.messages:
                assert isinstance(message.payload, bytes)
                received.append(int(message.payload))
                if len(received) == 50:
                    return

        task = asyncio.create_task(receive())
        for number in range(50):
            await publisher.publish(f"city/{number % 3}", str(number), qos=qos)
        await task
    assert sorted(received) == list(range(50))
    for topic in range(3):  # of one broker all are in order; of a mesh those of a topic (MQTT-4.6.0-6)
        assert [number for number in received if number % 3 == topic] == list(range(topic, 50, 3))
    assert Bench.brokers > 1 or received == list(range(50))


async def test_will_and_retained(server: MqttServer) -> None:
    host, port = server.address
    will = aiomqtt.Will("gone", b"bye", qos=1, retain=True)
    async with aiomqtt.Client(host, port, identifier="watcher") as watcher:
        await watcher.subscribe("gone", qos=1)
        async with aiomqtt.Client(host, port, identifier="dying", will=will):
            (session,) = [
                each.frontend.sessions["dying"] for each in servers_of(server) if "dying" in each.frontend.sessions
            ]
            connection = session.connection
            assert connection is not None
            async with aiomqtt.Client(host, port, identifier="dying"):  # takes over
                message = await anext(aiter(watcher.messages))
                assert (message.payload, message.retain) == (b"bye", False)
                assert connection.closing
    async with aiomqtt.Client(host, port, identifier="late") as late:
        await late.subscribe("gone", qos=1)
        message = await anext(aiter(late.messages))
        assert (message.payload, message.retain) == (b"bye", True)
