"""Two versions of the protocol in one mesh: a rolling upgrade, and the bytes of a broker of version 1."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack

import msgspec
import pytest

from saps.agents.user import SubscriberAgent
from saps.broker import Broker
from saps.config import Address, BrokerSettings
from saps.config.links import LinkSettings
from saps.messages import Message
from saps.overlay.frames import (
    Baseline,
    Collect,
    Data,
    DefineBroker,
    Find,
    Frame,
    Gathered,
    Insert,
    Locate,
    Outstanding,
    Ping,
    Pong,
    Roster,
    Run,
    Spread,
    Told,
)
from saps.overlay.keys import BrokerRef, Ref, broker_key
from saps.subscriptions import Subscription
from saps.wire import VERSION, FrameReader, hello
from tests.network.meshes import settings
from tests.test_links import ORDER, PATIENCE, address, ends, silent

pytestmark = pytest.mark.network


def of_version(version: int, name: str, cluster: str, join: list[Address]) -> BrokerSettings:
    """A broker that speaks no later version."""
    return msgspec.structs.replace(settings(name, cluster, join), links=LinkSettings(highest_version=version))


def spoken(broker: Broker) -> dict[str, int]:
    """The version in use towards each other broker."""
    found = broker.links._outbound.values()
    return {link.to.name: link._version for link in found if link._version is not None}


class Talker:
    """A publisher and a subscriber inside a broker. Each of its publications waits for the one before."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.last = 0
        self.received: dict[str, list[int]] = defaultdict(list)
        self._changed = asyncio.Event()
        self._agent = SubscriberAgent(broker.hub, f"s-{broker.ref.name}", self._take)

    async def subscribe(self) -> None:
        ready = asyncio.Event()
        self._agent.subscribe(Subscription("a/#", 1), ready.set)
        await ready.wait()

    async def publish(self, count: int) -> None:
        """So many numbers, with QoS 1."""
        for _ in range(count):
            self.last += 1
            done = asyncio.Event()
            message = Message("a/b", f"{self.broker.ref.name} {self.last}".encode(), 1)
            self.broker.hub.publish(message, None, lambda reached, done=done: done.set())  # type: ignore[misc]
            await done.wait()

    async def has(self, name: str, last: int) -> None:
        """Wait for a number of another one."""
        while last not in self.received[name]:
            self._changed.clear()
            await self._changed.wait()

    def _take(self, message: Message) -> None:
        name, number = message.payload.split()
        self.received[name.decode()].append(int(number))
        self._changed.set()


async def test_a_mesh_is_upgraded_one_broker_after_the_other_while_messages_flow() -> None:
    """From version 1 to the latest. Brokers that stay lose, double and reorder nothing of QoS 1."""
    async with AsyncExitStack() as stack, asyncio.timeout(3 * PATIENCE):
        brokers: dict[str, Broker] = {}
        for number in range(4):
            brokers[f"b{number}"] = await started(stack, 1, number, list(brokers.values()))
        staying = [Talker(brokers["b0"]), Talker(brokers["b3"])]
        for talker in staying:
            await talker.subscribe()
        for number in (1, 2):
            publishing = [asyncio.create_task(talker.publish(200)) for talker in staying]
            await brokers[f"b{number}"].stop()
            others = [broker for name, broker in brokers.items() if name != f"b{number}"]
            brokers[f"b{number}"] = await started(stack, VERSION, number, others)
            await asyncio.gather(*publishing)
        upgraded = [Talker(brokers["b1"]), Talker(brokers["b2"])]
        for talker in upgraded:
            await talker.subscribe()
        everyone = [*staying, *upgraded]
        before = {talker.broker.ref.name: talker.last for talker in everyone}
        await asyncio.gather(*(talker.publish(50) for talker in everyone))
        for talker in everyone:
            for other in everyone:
                name = other.broker.ref.name
                await talker.has(name, other.last)
                first = 1 if talker in staying else before[name] + 1
                assert talker.received[name] == list(range(first, other.last + 1))
        assert set(spoken(brokers["b0"]).values()) == {1}
        assert spoken(brokers["b1"]) == {"b0": 1, "b2": VERSION, "b3": 1}


async def started(stack: AsyncExitStack, version: int, number: int, others: list[Broker]) -> Broker:
    """Broker b`number`, joined through the first of the others."""
    join = [Address.parse(broker.ref.address) for broker in others]
    broker = Broker(of_version(version, f"b{number}", f"c{number % 2}", join))
    await broker.start()
    stack.push_async_callback(broker.stop)
    return broker


OLD = BrokerRef("old", 1, "127.0.0.1:99", "c")
RECORDED_HELLO = bytes.fromhex("0000002596a4534150530101a6616c6d2d6c6194a36f6c6401ac3132372e302e302e313a3939a163c2")
RECORDED: dict[str, Frame] = {
    "00000002910e": Ping(),
    "0000001893120194a36f6c6401ac3132372e302e302e313a3939a163": DefineBroker(1, OLD),
    "000000119b140107060000a3612f62c4017800c2c0": Data(1, 7, 6, 0, 0, "a/b", b"x", 0, False),
    "0000002c940100c09395c40562006f6c6403c400c400a36f6c6494a36f6c6401ac3132372e302e302e313a3939a16301": Insert(
        0, None, Ref(broker_key("old"), OLD, 1)
    ),
    "0000002b960900c095c40562006f6c6403c400c400a36f6c6494a36f6c6401ac3132372e302e302e313a3939a16309": Find(
        0, None, broker_key("old"), OLD, 9
    ),
    "00000044980b01c094a36f6c6401ac3132372e302e302e313a3939a1630395c40562006f6c6403c400c400a36f6c6495c40562006f6c7803"
    "c400c400a36f6c789402a36f6c640100": Locate(
        1, None, OLD, 3, broker_key("old"), broker_key("olx"), Collect("old", 1, 0)
    ),
}
"""What a broker of version 1 has sent, and what it meant; written down from the code of that time (5b21cb3)."""
LAST_TAG = 40
"""Of the frames of version 1."""


async def test_the_recorded_bytes_of_version_1_are_understood() -> None:
    async with asyncio.timeout(PATIENCE), ends("new") as (new,):
        _, writer = await asyncio.open_connection(*address(new.ref))
        writer.write(RECORDED_HELLO + bytes.fromhex("".join(RECORDED)))
        await new.until(lambda: len(new.frames) == len(RECORDED))
        assert new.frames == [(OLD, frame) for frame in RECORDED.values()]
        writer.close()


async def test_a_broker_of_version_1_is_sent_only_what_it_knows() -> None:
    """Whatever is queued, before its version is known and after; questions that it cannot read count as unanswered."""
    key = broker_key("old")
    newer: list[Frame] = [
        Run(1, 1, 0, 0, 4, "a/b", 1, [b"x", b"y"]),
        Spread(BrokerRef("new", 1, "", "c"), 5, [(key, key)], Roster(1), 2),
        Gathered(6, [Baseline("new", 1, 3), Outstanding("new", 1, 3, 0)], True, 1),
        Told(7, []),
    ]
    async with asyncio.timeout(PATIENCE), ends("new") as (new,), silent() as (port, accepted):
        old = BrokerRef("old", 1, f"127.0.0.1:{port}", "c")
        for frame in (*newer, Ping()):
            new.send(old, frame)
        reader, writer = await accepted.get()
        writer.write(hello(old, ORDER, highest=1))
        await new.until(lambda: bool(new.frames))
        for frame in (*newer, Pong()):
            new.send(old, frame)
        await new.until(lambda: len(new.frames) == 2)
        assert new.frames == [(old, Gathered(5, [], False, 2, outdated=True))] * 2
        parser, heard = FrameReader(), []
        while Pong() not in heard:
            heard += parser.feed(await reader.read(1 << 16))
        writer.close()
    assert all(frame.__struct_config__.tag <= LAST_TAG for frame in heard)  # type: ignore[operator]
    both = [Data(1, 1, 0, 0, 5, "a/b", b"x", 1, False), Data(1, 2, 1, 0, 6, "a/b", b"y", 1, False)]
    answer = Gathered(6, [Baseline("new", 1, 3)], False, 1)
    assert [frame for frame in heard if not isinstance(frame, Ping | Pong)] == [*both, answer, *both, answer]
