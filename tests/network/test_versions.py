"""Two versions of the protocol in one mesh: the present one, and a next one that is made up."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack

import msgspec
import pytest

from saps.agents.user import SubscriberAgent
from saps.broker.broker import Broker
from saps.config import Address, BrokerSettings
from saps.config.links import LinkSettings
from saps.messages import Message, Subscription
from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Baseline, Broadcast, Gathered, Outstanding, Roster
from saps.overlay.frames.delivery import Told
from saps.overlay.frames.framing import LOWEST_VERSION, VERSION, FrameReader, hello
from saps.overlay.frames.ring import Ping, Pong
from saps.overlay.frames.versions import SINCE
from saps.overlay.ring.keys import BrokerRef, broker_key
from saps.routing.batch import Batch
from tests.links.test_links import ORDER, TIMEOUT, address, ends, silent
from tests.network.meshes import settings

pytestmark = pytest.mark.network

NEXT = VERSION + 1


def of_version(version: int, name: str, cluster: str, join: list[Address]) -> BrokerSettings:
    """A broker that speaks no later version."""
    return msgspec.structs.replace(settings(name, cluster, join), links=LinkSettings(highest_version=version))


def spoken(broker: Broker) -> dict[str, int]:
    """The version in use towards each other broker."""
    found = broker.links._outbound.values()
    return {link.to.name: link.version for link in found if link.version is not None}


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
            self.broker.hub.publish(Batch.of(message), None, lambda reached, done=done: done.set())  # type: ignore[misc]
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


async def test_a_mesh_is_upgraded_one_broker_after_the_other_while_messages_flow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To a next version that is made up. Brokers that stay lose, double and reorder nothing of QoS 1."""
    newer(monkeypatch)
    async with AsyncExitStack() as stack, asyncio.timeout(3 * TIMEOUT):
        brokers: dict[str, Broker] = {}
        for number in range(4):
            brokers[f"b{number}"] = await started(stack, VERSION, number, list(brokers.values()))
        staying = [Talker(brokers["b0"]), Talker(brokers["b3"])]
        for talker in staying:
            await talker.subscribe()
        for number in (1, 2):
            publishing = [asyncio.create_task(talker.publish(200)) for talker in staying]
            await brokers[f"b{number}"].stop()
            others = [broker for name, broker in brokers.items() if name != f"b{number}"]
            brokers[f"b{number}"] = await started(stack, NEXT, number, others)
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
                first = talker.received[name][
                    0
                ]  # its broker is back just now: perhaps some from before (guarantees.md)
                assert first == 1 if talker in staying else first <= before[name] + 1
                assert talker.received[name] == list(range(first, other.last + 1))
        assert set(spoken(brokers["b0"]).values()) == {VERSION}
        assert spoken(brokers["b1"]) == {"b0": VERSION, "b2": NEXT, "b3": VERSION}


async def started(stack: AsyncExitStack, version: int, number: int, others: list[Broker]) -> Broker:
    """Broker b`number`, joined through the first of the others."""
    join = [Address.parse(broker.ref.address) for broker in others]
    broker = Broker(of_version(version, f"b{number}", f"c{number % 2}", join))
    await broker.start()
    stack.push_async_callback(broker.stop)
    return broker


def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A next version is made up: it is the first that has this frame, this question, and this kind of answer."""
    for kind in (Told, Roster, Outstanding):
        monkeypatch.setitem(SINCE, kind, NEXT)


async def test_a_broker_of_an_older_version_is_sent_only_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is queued, before its version is known and after; questions that it cannot read count as unanswered."""
    newer(monkeypatch)
    key = broker_key("old")
    sent: list[Frame] = [
        Broadcast(BrokerRef("new", 1, "", "c"), 5, [(key, key)], Roster(1), 2),
        Gathered(6, [Baseline("new", 1, [3]), Outstanding("new", 1, 3, 0)], True, 1),
        Told(7, []),
    ]
    async with asyncio.timeout(TIMEOUT), ends("new") as (new,), silent() as (port, accepted):
        new.links.side.speaks = NEXT
        old = BrokerRef("old", 1, f"127.0.0.1:{port}", "c")
        for frame in (*sent, Ping()):
            new.send(old, frame)
        reader, writer = await accepted.get()
        writer.write(hello(old, ORDER, highest=VERSION))
        await new.until(lambda: bool(new.frames))
        for frame in (*sent, Pong()):
            new.send(old, frame)
        await new.until(lambda: len(new.frames) == 2)
        assert new.frames == [(old, Gathered(5, [], False, 2, outdated=True))] * 2
        parser, heard = FrameReader(), []
        while Pong() not in heard:
            heard += parser.feed(await reader.read(1 << 16))
        writer.close()
    answer = Gathered(6, [Baseline("new", 1, [3])], False, 1)
    assert [frame for frame in heard if not isinstance(frame, Ping | Pong)] == [answer, answer]


async def test_brokers_of_the_same_next_version_say_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    newer(monkeypatch)
    async with asyncio.timeout(TIMEOUT), ends("a", "b") as (a, b):
        a.links.side.speaks = b.links.side.speaks = NEXT
        a.send(b.ref, Told(7, []))
        await b.until(lambda: bool(b.frames))
        assert b.frames == [(a.ref, Told(7, []))]


async def test_brokers_without_a_version_in_common_are_no_mesh() -> None:
    async with asyncio.timeout(TIMEOUT), ends("a") as (a,):
        reader, writer = await asyncio.open_connection(*address(a.ref))
        writer.write(hello(BrokerRef("old", 1, "127.0.0.1:1", "c"), ORDER, highest=LOWEST_VERSION - 1))
        while await reader.read(1 << 16):
            pass
        writer.close()
        assert a.sessions == []
