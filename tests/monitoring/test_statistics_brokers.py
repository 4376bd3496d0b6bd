"""Real brokers in three clusters count what they carry: in their files, and by one call along the overlay."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet as pq

from monitoring.counts.features import windows
from saps.broker.broker import Broker
from saps.config import Address
from saps.config.monitoring import MonitoringSettings
from saps.statistics import Row
from saps.statistics.agent import gather
from tests.network.meshes import TIMEOUT, Client, settings

pytestmark = pytest.mark.network

HOUR = 3_600_000


async def brokers(stack: AsyncExitStack, directory: Path) -> list[Broker]:
    started: list[Broker] = []
    for number in range(4):
        join = [Address.parse(started[0].ref.address)] if started else []
        own = settings(f"b{number}", f"c{number % 3}", join)
        counting = MonitoringSettings(directory=str(directory), interval=3600.0)
        broker = Broker(msgspec.structs.replace(own, monitoring=counting))
        stack.push_async_callback(broker.stop)
        await broker.start()
        started.append(broker)
    return started


def rows_of(directory: Path) -> list[Row]:
    return [Row(**row) for file in sorted(directory.rglob("*.parquet")) for row in pq.read_table(file).to_pylist()]


async def gathered(broker: Broker) -> tuple[list[Row], bool]:
    found: asyncio.Future[tuple[list[Row], bool]] = asyncio.get_running_loop().create_future()

    def done(rows: list[Row], complete: bool) -> None:
        found.set_result((rows, complete))

    broker.mesh.act(lambda: gather(broker.agents, 100, done))
    async with asyncio.timeout(TIMEOUT):
        return await found


async def test_what_brokers_count_is_what_happened(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        mesh = await brokers(stack, tmp_path)
        clients = [await stack.enter_async_context(Client(broker.server.address)) for broker in mesh]
        await clients[1].subscribe("city/air")
        await clients[2].subscribe("city/+")
        await clients[3].subscribe("city/#")
        for number in range(20):
            await clients[0].publish("city/air", f"{number:04}", qos=number % 2)
        await clients[0].publish("city/air", "last", 1)
        for client in clients[1:]:
            await client.expect("city/air", b"last")
        for broker in mesh:
            assert broker.options.statistics is not None
            await broker.options.statistics.roll()
        seen = {row.broker: row for row in rows_of(tmp_path) if row.topic == "city/air"}
        publisher = seen["b0"]
        assert (publisher.messages, publisher.publishers) == (21, 1)
        assert 84 <= publisher.bytes <= 84 + 2 * 21
        assert publisher.brokers == 3
        assert sum(publisher.latency) == 11
        members = {name: (row.received, row.subscribers) for name, row in seen.items() if name != "b0"}
        assert members == dict.fromkeys(("b1", "b2", "b3"), (21, 1))
        # c0 holds b0 and b3, so two other clusters want each message: one copy to each.
        assert sum(row.copies for row in seen.values()) == 42
        (window,) = windows(seen.values(), 10**6 * HOUR)
        assert (window.messages, window.up, window.far, window.reach) == (21, 21, 42, 63)
        assert window.sites == "c0:1:1|c1:1:0|c2:1:0"
        told, complete = await gathered(mesh[2])
        assert complete
        assert {row for row in map(str, told) if "city/air" in row} == set(map(str, seen.values()))


async def test_a_broker_that_leaves_writes_what_it_has_counted(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        mesh = await brokers(stack, tmp_path)
        client = await stack.enter_async_context(Client(mesh[0].server.address))
        await client.publish("t", "x", 1)
    assert sum(row.messages for row in rows_of(tmp_path)) == 1
