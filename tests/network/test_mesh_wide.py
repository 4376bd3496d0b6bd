"""What is one for the whole mesh, on real brokers: retained messages, shared subscriptions, wills."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack

import aiomqtt
import pytest

from examples.smart_city.processes import BrokerProcess, saps_broker
from tests.network.meshes import Client, mesh

pytestmark = pytest.mark.network

ANY = "127.0.0.1:0"
TIMEOUT = 60.0


async def test_retained_messages_are_the_whole_meshs() -> None:
    """Set at one broker, seen by new subscribers at all others; replaced and deleted at still others."""
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(mesh())
        writers = [await stack.enter_async_context(Client(broker.server.address)) for broker in brokers]
        for number in range(10):
            await writers[number % 5].publish(f"state/{number}", f"old {number}", 1, retain=True)
        for number in range(10):
            await writers[(number + 1) % 5].publish(f"state/{number}", f"new {number}", 1, retain=True)
        await writers[3].publish("state/0", b"", 1, retain=True)
        expected = {(f"state/{number}", f"new {number}".encode()) for number in range(1, 10)}
        for broker in brokers:
            for filters in (["state/#"], ["+/+"], [f"state/{number}" for number in range(10)]):
                client = await stack.enter_async_context(Client(broker.server.address))
                await client.subscribe(*filters)
                await client.until(lambda client=client: len(client.received) >= 9)  # type: ignore[misc]
                assert set(client.received) == expected
                assert len(client.received) == 9
        # What is set while one subscribes comes, once.
        late = await stack.enter_async_context(Client(brokers[4].server.address))
        publishing = [
            asyncio.create_task(writers[number % 4].publish(f"late/{number}", b"x", 1, retain=True))
            for number in range(20)
        ]
        await late.subscribe("late/+")
        await asyncio.gather(*publishing)
        await late.until(lambda: len(late.received) >= 20)
        assert sorted(late.received) == sorted((f"late/{number}", b"x") for number in range(20))


async def test_retained_messages_outlive_the_brokers_that_leave() -> None:
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(mesh())
        async with Client(brokers[1].server.address) as writer:
            for number in range(10):
                await writer.publish(f"state/{number}", b"x", 1, retain=True)
        for _ in range(3):
            await brokers.pop(1).stop()
        for broker in brokers:
            client = await stack.enter_async_context(Client(broker.server.address))
            await client.subscribe("#")
            await client.until(lambda client=client: len(client.received) >= 10)  # type: ignore[misc]


async def test_a_group_gets_each_message_once_wherever_its_members_are() -> None:
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(mesh())
        members = [await stack.enter_async_context(Client(broker.server.address)) for broker in brokers[1:4]]
        for member in members:
            await member.subscribe("$share/workers/job/+")
        plain = await stack.enter_async_context(Client(brokers[4].server.address))
        await plain.subscribe("job/#")
        publishers = [
            await stack.enter_async_context(Client(broker.server.address)) for broker in (brokers[0], brokers[4])
        ]
        for number in range(30):
            await publishers[number % 2].publish(f"job/{number % 3}", b"%d" % number, number // 2 % 2)
        await plain.until(lambda: len(plain.received) >= 30)
        await members[0].until(lambda: len(members[0].received) > 0)
        await reached(lambda: sum(len(member.received) for member in members) >= 30)
        got = Counter(int(payload) for member in members for _, payload in member.received)
        assert got == dict.fromkeys(range(30), 1)


async def test_kill_9_loses_nothing_that_is_the_whole_meshs() -> None:
    """A broker is killed: what was retained there is found elsewhere, its client's will is published once, and its
    members of a group are taken over by the others."""
    async with AsyncExitStack() as stack:
        processes: list[BrokerProcess] = []
        for number in range(4):
            join = [told(processes[0], "overlay")] if processes else []
            process = saps_broker(f"b{number}", f"c{number % 2}", ANY, ANY, join)
            processes.append(await stack.enter_async_context(process))
            stack.push_async_callback(process.stop, 0)
        addresses = [address(process) for process in processes]
        watcher = await stack.enter_async_context(Client(addresses[0]))
        await watcher.subscribe("gone/#")
        will = aiomqtt.Will("gone/device", b"bye", 1)
        device = await stack.enter_async_context(Client(addresses[2], "device", will))
        worker = await stack.enter_async_context(Client(addresses[2], "near"))
        other = await stack.enter_async_context(Client(addresses[3], "far"))
        for member in (worker, other):
            await member.subscribe("$share/workers/job")
        publisher = await stack.enter_async_context(Client(addresses[0]))
        for number in range(20):
            await device.publish(f"state/{number}", b"on", 1, retain=True)
        for number in range(10):
            await publisher.publish("job", b"%d" % number, 1)
        processes[2].signal(signal.SIGKILL)
        for number in range(10, 20):
            await publisher.publish("job", b"%d" % number, 1)
        await watcher.until(lambda: bool(watcher.received), TIMEOUT)
        workers = worker, other
        await reached(lambda: {int(payload) for one in workers for _, payload in one.received} == set(range(20)))
        late = await stack.enter_async_context(Client(addresses[1]))
        await late.subscribe("state/+", "gone/#")
        await late.until(lambda: len(late.received) >= 20, TIMEOUT)
        assert sorted(late.received) == sorted((f"state/{number}", b"on") for number in range(20))
        await publisher.publish("gone/end", b"end", 1)
        await watcher.expect("gone/end", b"end")
        assert watcher.received == [("gone/device", b"bye"), ("gone/end", b"end")]


async def reached(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds, which more than one client decides."""
    end = asyncio.get_running_loop().time() + TIMEOUT
    while not condition():
        assert asyncio.get_running_loop().time() < end, "it does not come true"
        await asyncio.sleep(0.01)


def told(process: BrokerProcess, field: str) -> str:
    """A field of the ready line."""
    return dict(part.split("=", 1) for part in process.ready_line.split()[1:])[field]


def address(process: BrokerProcess) -> tuple[str, int]:
    """Where clients attach."""
    host, port = told(process, "mqtt").rsplit(":", 1)
    return host, int(port)
