"""Brokers on loopback sockets that design their overlay while messages flow: none is lost, doubled or overtaken."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from saps.broker.broker import Broker
from saps.config import Address, BrokerSettings
from saps.config.settings import OverlaySettings
from saps.overlay.rendezvous.designed import Designs
from tests.network.meshes import TIMEOUT, Client, cut, data_messages

pytestmark = pytest.mark.network

TOPIC = "city/alert"


async def started(number: int, first: Broker | None) -> Broker:
    """A broker of a mesh that designs five times a second."""
    any_port = Address("127.0.0.1", 0)
    overlay = OverlaySettings(listen=any_port, alm_order="designed", design_interval=0.2)
    join = () if first is None else (Address.parse(first.ref.address),)
    broker = Broker(BrokerSettings(name=f"b{number}", mqtt=any_port, join=join, overlay=overlay))
    await broker.start()
    return broker


def designs(broker: Broker) -> Designs:
    known = broker.mesh.node.rendezvous.designs
    assert known is not None
    return known


def covers_all(broker: Broker, brokers: list[Broker]) -> bool:
    """Does the broker know a tree for the topic that has all brokers?"""
    shape = designs(broker).trees.get(TOPIC)
    return shape is not None and all(other.ref.name in shape for other in brokers)


async def test_a_mesh_designs_its_overlay_while_messages_flow() -> None:
    async with AsyncExitStack() as stack:
        brokers: list[Broker] = []
        for number in range(5):
            brokers.append(await started(number, brokers[0] if brokers else None))
            stack.push_async_callback(cut, brokers[-1])
        clients = [await stack.enter_async_context(Client(broker.server.address)) for broker in brokers]
        for client in clients:
            await client.subscribe(TOPIC)
        published = 0
        async with asyncio.timeout(TIMEOUT):
            while not all(covers_all(broker, brokers) for broker in brokers):
                published += 1
                await clients[3].publish(TOPIC, f"b3 {published}", 1)
        before = data_messages(brokers)
        for number in range(published + 1, published + 21):
            await clients[3].publish(TOPIC, f"b3 {number}", 1)
        for client in clients:
            await client.expect(TOPIC, f"b3 {published + 20}".encode())
            assert client.by_publisher() == {"b3": list(range(1, published + 21))}
        assert data_messages(brokers) - before == 20 * 4
        assert all(designs(broker).trees == designs(brokers[0]).trees for broker in brokers)
