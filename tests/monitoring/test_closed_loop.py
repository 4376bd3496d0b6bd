"""The whole loop without Spark, on real sockets: traffic rises, OFGate decides on the brokers' counts, the tree carries
the messages; the traffic ends, and the tree goes.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import aiomqtt
import msgspec
import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet as pq

from saps.agents.ofgate.decisions_io import Decisions
from saps.agents.ofgate.program.decisions import DecisionService
from saps.agents.ofgate.program.gateway import Gateway
from saps.broker.broker import Broker
from saps.config import Address
from saps.config.monitoring import MonitoringSettings
from saps.config.ofgate_io import OfgateSettings
from saps.ofm.northbound.schema import Status
from tests.agents.city import TIMEOUT, City, Switch, settings

pytestmark = pytest.mark.network

TOPIC = "air/ward1"
INTERVAL = 1.0


def counted(directory: Path, column: str) -> int:
    """What the publisher's broker has counted in all."""
    files = directory.rglob("b0-*.parquet")
    return sum(row[column] for file in files for row in pq.read_table(file).to_pylist())


async def counting(stack: AsyncExitStack, directory: Path) -> list[Broker]:
    """Four brokers, each in a cluster of its own."""
    brokers: list[Broker] = []
    for number in range(4):
        join = Address.parse(brokers[0].ref.address) if brokers else None
        own = settings(f"b{number}", "either", join)
        monitoring = MonitoringSettings(directory=str(directory), interval=INTERVAL)
        broker = Broker(msgspec.structs.replace(own, cluster=f"c{number}", monitoring=monitoring))
        await broker.start()
        stack.push_async_callback(broker.stop)
        brokers.append(broker)
    return brokers


async def decided(service: DecisionService, reason: str) -> Decisions:
    """The first table from now on with this in the reason of a tree. A window may lack rows of a broker: intervals and
    windows are of one length here, and begin apart."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            table = service.request_handler.table
            if table is not None and any(reason in tree.reason for tree in table.trees):
                return table
            await asyncio.sleep(0.01)


async def test_a_busy_topic_gets_a_tree_and_loses_it_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = Switch()
    monkeypatch.setattr("saps.agents.ofgate.program.gateway.northbound", lambda *_: switch)
    async with AsyncExitStack() as stack:
        brokers = await counting(stack, tmp_path)
        gateway = Gateway(settings("gate", "either", Address.parse(brokers[0].ref.address), ""), ["http://ofc"])
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        async with asyncio.timeout(TIMEOUT):
            await gateway.leads.wait()
        city = City(brokers, gateway, switch)
        service = DecisionService(gateway, OfgateSettings(controller=("http://ofc",), decide=INTERVAL))
        await service.start()
        stack.push_async_callback(service.stop)
        for broker in brokers[1:]:
            client = await stack.enter_async_context(aiomqtt.Client(*broker.server.address))
            await client.subscribe("air/#")
        publisher = await stack.enter_async_context(aiomqtt.Client(*brokers[0].server.address))
        enough = asyncio.Event()

        async def publish() -> None:
            while not enough.is_set():
                await publisher.publish(TOPIC, bytes(200))
                await asyncio.sleep(0.005)

        traffic = asyncio.create_task(publish())
        await city.status(TOPIC, Status.CONSTRUCTED)
        await city.copied(60)  # marks of the tree among them
        table = await decided(service, "3 brokers in 3 clusters want them")
        assert [tree.topic for tree in table.trees] == [TOPIC]
        enough.set()
        await traffic
        await city.status(TOPIC, Status.NONE)
        assert service.request_handler.table is not None
        assert service.request_handler.table.trees == []
    assert counted(tmp_path, "by_tree") >= 50
    assert counted(tmp_path, "copies") > 0
