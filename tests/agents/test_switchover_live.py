"""The switch-over on real sockets: brokers and OFGate in one event loop, MQTT clients, a switch."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiomqtt
import pytest

from saps.agents.ofgate.program.decisions import DecisionService
from saps.agents.ofgate.program.gateway import NOT_LEADING, Gateway
from saps.broker.broker import Broker
from saps.config import Address, SettingError
from saps.config.ofgate_io import OfgateSettings
from saps.config.sources_io import load
from saps.frontend.web.mesh.mesh import Mesh
from saps.ofm.datapath.driver.udp import UdpEndpoint, mac_of
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.schema import Status
from tests.agents.city import TIMEOUT, City, Switch, settings
from tests.network.meshes import cut

pytestmark = pytest.mark.slow


@pytest.fixture(params=["either", "both"])
async def city(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[City]:
    switch = Switch()
    monkeypatch.setattr("saps.agents.ofgate.program.gateway.northbound", lambda *_: switch)
    async with AsyncExitStack() as stack:
        brokers: list[Broker] = []
        for number in range(4):
            join = Address.parse(brokers[0].ref.address) if brokers else None
            broker = Broker(settings(f"b{number}", request.param, join))
            await broker.start()
            stack.push_async_callback(cut, broker)
            brokers.append(broker)
        gateway = Gateway(settings("gate", request.param, Address.parse(brokers[0].ref.address), ""), ["http://ofc"])
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        async with asyncio.timeout(TIMEOUT):
            await gateway.leads.wait()
        yield City(brokers, gateway, switch)


async def test_an_order_before_the_gateway_leads_is_kept_and_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saps.agents.ofgate.program.gateway.northbound", lambda *_: Switch())
    async with AsyncExitStack() as stack:
        broker = Broker(settings("b0", "either", None))
        await broker.start()
        stack.push_async_callback(cut, broker)
        client = await stack.enter_async_context(aiomqtt.Client(*broker.server.address))
        gateway = Gateway(settings("gate", "either", Address.parse(broker.ref.address), ""), ["http://ofc"])
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        assert not gateway.leads.is_set()
        assert await gateway.order("exploit air/ward1") == {"topic": "air/ward1", "answer": ["none", NOT_LEADING]}
        service = DecisionService(gateway, OfgateSettings(controller=("http://ofc",)))
        await service.start()
        stack.push_async_callback(service.stop)
        await client.subscribe("air/ward1")
        async with asyncio.timeout(TIMEOUT):
            await gateway.leads.wait()
        await service.request_handler.carry_out()
        assert gateway.gate.wanted() == {"air/ward1"}
        seen = await Mesh("b0", broker.agents, broker.mesh.act, lambda: None).state()
        assert ([each.name for each in seen.brokers], seen.complete) == (["b0"], True), "OFGate is no broker"


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_topic_is_moved_to_the_tree_and_back_under_traffic(city: City, qos: int) -> None:
    received: list[list[int]] = []
    async with AsyncExitStack() as stack:
        clients = []
        for broker in city.brokers[1:]:
            host, port = broker.server.address
            client = await stack.enter_async_context(aiomqtt.Client(host, port))
            await client.subscribe("air/ward1", qos=qos)
            clients.append(client)
        publisher = await stack.enter_async_context(aiomqtt.Client(*city.brokers[0].server.address))
        sent, stop = 0, asyncio.Event()

        async def publish() -> None:
            nonlocal sent
            while not stop.is_set():
                await publisher.publish("air/ward1", str(sent), qos=qos)
                sent += 1
                await asyncio.sleep(0.001)
            await publisher.publish("air/ward1", "end", qos=qos)

        async def listen(client: aiomqtt.Client) -> None:
            got: list[int] = []
            received.append(got)
            async for message in client.messages:
                if message.payload == b"end":
                    return
                assert isinstance(message.payload, bytes)
                got.append(int(message.payload))

        tasks = [asyncio.create_task(publish()), *(asyncio.create_task(listen(client)) for client in clients)]
        for _ in range(2):
            await city.gateway.exploit("air/ward1")
            await city.status("air/ward1", Status.CONSTRUCTED)
            await city.copied(50)
            city.gateway.release("air/ward1")
            await city.status("air/ward1", Status.NONE)
        stop.set()
        async with asyncio.timeout(TIMEOUT):
            await asyncio.gather(*tasks)
    assert received == [list(range(sent))] * 3


async def test_a_switch_that_dies_costs_no_message(city: City) -> None:
    """Nothing comes back any more: ALM takes over, with what was under way."""
    async with AsyncExitStack() as stack:
        host, port = city.brokers[1].server.address
        subscriber = await stack.enter_async_context(aiomqtt.Client(host, port))
        await subscriber.subscribe("air/ward1", qos=1)
        publisher = await stack.enter_async_context(aiomqtt.Client(*city.brokers[0].server.address))
        await publisher.publish("air/ward1", "0", qos=1)
        await city.gateway.exploit("air/ward1")
        number = 1
        async with asyncio.timeout(TIMEOUT):
            while city.switch.copied < 20:
                await publisher.publish("air/ward1", str(number), qos=number % 2)
                number += 1
        city.switch.trees.clear()
        for number in range(number, number + 100):  # noqa: B020
            await publisher.publish("air/ward1", str(number), qos=number % 2)
        got = []
        async with asyncio.timeout(TIMEOUT):
            async for message in subscriber.messages:
                assert isinstance(message.payload, bytes)
                got.append(int(message.payload))
                if got[-1] == number:
                    break
    assert got == list(range(number + 1))


async def test_what_came_in_since_the_last_turn_is_handed_on_together() -> None:
    turns: list[list[bytes]] = []
    done = asyncio.Event()

    def received(datagrams: list[bytes]) -> None:
        turns.append(datagrams)
        if sum(map(len, turns)) == 100:
            done.set()

    endpoint = UdpEndpoint(received)
    address = endpoint.listen("127.0.0.1", 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for number in range(100):
            sender.sendto(b"%d" % number, address)
    async with asyncio.timeout(TIMEOUT):
        await done.wait()
    endpoint.close()
    assert [raw for turn in turns for raw in turn] == [b"%d" % number for number in range(100)]
    assert len(turns) == 1


async def test_a_datagram_longer_than_the_path_allows_is_not_fragmented() -> None:
    endpoint = UdpEndpoint(lambda datagrams: None)
    host, port = endpoint.listen("127.0.0.1", 0)
    endpoint.send(f"{host}:{port}", bytes(65_500))
    assert endpoint.unsent == 0
    endpoint.send(f"{host}:{port}", bytes(65_530))
    assert endpoint.unsent == 1
    endpoint.close()


async def test_a_loopback_address_without_a_mac_is_refused_with_the_reason() -> None:
    broker = Broker(load({"name": "b", "overlay.listen": "127.0.0.1:0", "ofm.listen": "127.0.0.1:0"}, {}).settings)
    with pytest.raises(SettingError, match=r"127\.0\.0\.1 is on this machine only"):
        await broker.start()


async def test_stateless_delivery_from_an_ipv4_address_is_refused_with_the_reason() -> None:
    given = {"name": "b", "overlay.listen": "127.0.0.1:0", "ofm.listen": "127.0.0.1:0", "ofm.delivery": "stateless"}
    broker = Broker(load(given, {}).settings)
    with pytest.raises(SettingError, match=r"needs an IPv6 address in ofm\.listen: 127\.0\.0\.1"):
        await broker.start()


def test_the_mac_address_is_that_of_the_interface() -> None:
    assert mac_of("127.0.0.1") == "00:00:00:00:00:00"
    assert mac_of("203.0.113.77") is None
    assert BrokerAddress("127.0.0.1", "02:00:00:00:00:01", 1)
