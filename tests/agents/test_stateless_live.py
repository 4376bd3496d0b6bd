"""Stateless delivery on real sockets: controller, software switches, OFGate, brokers with MQTT clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

import aiomqtt
import msgspec
import pytest

from saps.agents.ofgate.program.gateway import Gateway
from saps.broker.broker import Broker
from saps.config import Address, BrokerSettings
from saps.config.ofm import OfmSettings
from saps.config.settings import OverlaySettings
from saps.ofm.controller.driver.settings import ControllerSettings
from saps.ofm.controller.program import OfcProgram
from saps.ofm.flows.plan import PLANES
from saps.ofm.flows.switch_state import split
from saps.ofm.switch.sockets_io import SoftwareSwitches
from saps.ofm.switch.topologies import parse
from tests.agents.city import ANY, TIMEOUT
from tests.network.meshes import cut

PLACES = ["c1b1", "c2b1", "c3b1", "c4b1"]


class World:
    """All of it."""

    def __init__(
        self, controller: OfcProgram, switches: SoftwareSwitches, brokers: list[Broker], gateway: Gateway
    ) -> None:
        self.controller, self.switches, self.brokers, self.gateway = controller, switches, brokers, gateway

    def counted(self, what: str) -> list[int]:
        return [broker.ofm.datapath.counts[what] for broker in self.brokers if broker.ofm is not None]

    def entries(self) -> list[int]:
        """Of the planes, in each switch."""
        tables = [bridge.switch.tables for bridge in self.switches.network.bridges.values()]
        return [len(held[PLANES].flows) if PLANES in (held := split(each)) else 0 for each in tables]

    async def ready(self) -> None:
        """Until each broker knows the bits of all."""
        async with asyncio.timeout(TIMEOUT):
            while not all(map(self._knows, self.brokers)):  # noqa: ASYNC110 - nobody tells a test
                await asyncio.sleep(0.05)

    def _knows(self, broker: Broker) -> bool:
        assert broker.ofm is not None
        directory = broker.ofm.agent.directory
        return directory is not None and len(directory.at) == len(self.brokers)


def settings(name: str, join: Address | None, ofm: Mapping[str, object]) -> BrokerSettings:
    joins = () if join is None else (join,)
    made = msgspec.convert(ofm, OfmSettings)
    return BrokerSettings(name=name, mqtt=ANY, join=joins, overlay=OverlaySettings(listen=ANY), ofm=made)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A ring of four switches, so that there are planes, with a broker at each."""
    async with AsyncExitStack() as stack:
        controller = OfcProgram(
            ControllerSettings(
                listen=ANY,
                northbound=ANY,
                grace=0.5,
                probe_interval=0.2,
                ofm_range="[ff05:77::/112]:5000",
                loopback="fd77::ffff",
            )
        )
        stack.push_async_callback(controller.stop)
        await controller.start()
        switches = SoftwareSwitches(parse("ring:4x1"), (controller.listen.host, controller.listen.port))
        stack.push_async_callback(switches.close)
        await switches.start("127.0.0.1", 0)
        brokers: list[Broker] = []
        for number, place in enumerate(PLACES):
            join = Address.parse(brokers[0].ref.address) if brokers else None
            attach = str(Address(*switches.attachments[place]))
            ofm = {
                "listen": f"[fd77::{number + 1}:1]:7400",
                "attach": attach,
                "delivery": "stateless",
                "loopback_timeout": 1,  # slow is not lost
            }
            broker = Broker(settings(f"b{number}", join, ofm))
            await broker.start()
            stack.push_async_callback(cut, broker)
            brokers.append(broker)
        gateway = Gateway(settings("gate", Address.parse(brokers[0].ref.address), {}), [f"http://{controller.asked}"])
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        async with asyncio.timeout(TIMEOUT):
            await gateway.leads.wait()
        made = World(controller, switches, brokers, gateway)
        await made.ready()
        yield made


@pytest.mark.timeout(300)
async def test_topics_leave_by_planes_from_the_first_message_and_a_link_that_fails_costs_none(world: World) -> None:
    assert all(world.entries())
    topics = [f"air/{number}" for number in range(20)]
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(aiomqtt.Client(*broker.server.address)) for broker in world.brokers[1:]
        ]
        for number, client in enumerate(clients):
            await client.subscribe("air/+" if number else "air/1", qos=1)
        publisher = await stack.enter_async_context(aiomqtt.Client(*world.brokers[0].server.address))

        async def publish(begin: int, end: int) -> None:
            for number in range(begin, end):
                await publisher.publish(topics[number % 20], str(number), qos=1)

        async def listen(client: aiomqtt.Client, count: int) -> list[int]:
            got: list[int] = []
            async for message in client.messages:
                assert isinstance(message.payload, bytes)
                got.append(int(message.payload))
                if len(got) == count:
                    break
            return got

        listening = [
            asyncio.ensure_future(listen(client, 400 if number else 20)) for number, client in enumerate(clients)
        ]
        await publish(0, 100)
        assert world.counted("carried") == [100, 0, 0, 0]
        assert world.counted("unwanted") == [0, 0, 0, 0]
        world.switches.set_link("s1", "s2", up=False)
        await publish(100, 200)
        world.switches.set_link("s1", "s2", up=True)
        await publish(200, 400)
        async with asyncio.timeout(TIMEOUT):
            received = [sorted(await each) for each in listening]
    assert received == [list(range(1, 400, 20)), list(range(400)), list(range(400))]
    assert world.counted("forged") == [0, 0, 0, 0]
    assert set(world.gateway.gate.queries) == {"enrol"}, "nobody was asked for a topic, or told of a subscriber"
    assert world.controller.machine.records == {}
