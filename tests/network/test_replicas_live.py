"""Sessions that outlive their broker, on real processes: kill -9, with a file, without, with the file gone, and with a
PostgreSQL database of the site."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from benchmarks.durable_clients import DurableClient
from benchmarks.postgres import PostgresServer
from examples.smart_city.processes import BrokerProcess, saps_broker

pytestmark = pytest.mark.network

ANY = "127.0.0.1:0"
TIMEOUT = 60.0
Stored = Literal["memory", "file", "file gone", "database"]


class Site:
    """Brokers of one site, each with its file, all with one database, or without."""

    def __init__(self, stack: AsyncExitStack, folder: Path | None, url: str, suspect_after: float) -> None:
        self.stack = stack
        self.folder = folder
        self.url = url
        self.suspect_after = suspect_after
        self.brokers: list[BrokerProcess] = []

    async def start(self, number: int, mqtt: str = ANY, overlay: str = ANY) -> None:
        join = [told(broker, "overlay") for n, broker in enumerate(self.brokers) if n != number]
        settings = {"zone": f"rack{number}", "overlay.suspect_after": str(self.suspect_after)}
        if self.folder is not None:
            settings |= {"storage.file": str(self.folder / f"b{number}.db"), "storage.sync": "normal"}
        if self.url:
            settings |= {"storage.url": self.url}
        process = saps_broker(f"b{number}", "site", mqtt, overlay, join, settings)
        self.stack.push_async_callback(process.stop, 0)
        await process.start()
        self.brokers[number : number + 1] = [process]

    async def restart(self, number: int) -> None:
        dead = self.brokers[number]
        await self.start(number, told(dead, "mqtt"), told(dead, "overlay"))

    def kill(self, number: int, gone: bool = False) -> None:
        self.brokers[number].signal(signal.SIGKILL)
        for file in self.folder.glob(f"b{number}.db*") if gone and self.folder is not None else ():
            file.unlink()

    def port(self, number: int) -> int:
        return int(told(self.brokers[number], "mqtt").rsplit(":", 1)[1])


def told(process: BrokerProcess, field: str) -> str:
    """A field of the ready line."""
    return dict(part.split("=", 1) for part in process.ready_line.split()[1:])[field]


@asynccontextmanager
async def site(folder: Path | None, brokers: int = 3, url: str = "", suspect_after: float = 2.0) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        made = Site(stack, folder, url, suspect_after)
        for number in range(brokers):
            await made.start(number)
        yield made


def client(port: int, name: str, expiry: int = 3600) -> aiomqtt.Client:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = expiry
    return aiomqtt.Client(
        "127.0.0.1",
        port,
        identifier=name,
        protocol=aiomqtt.ProtocolVersion.V5,
        clean_start=not expiry,
        properties=properties,
        timeout=TIMEOUT,
    )


async def subscribe(port: int, name: str, qos: int) -> None:
    """Have a session that waits for messages."""
    async with client(port, name) as subscriber:
        await subscriber.subscribe("news/#", qos=qos)


async def publish(port: int, numbers: range, qos: int) -> None:
    async with client(port, f"publisher{numbers.start}", 0) as publisher:
        for number in numbers:
            await publisher.publish("news/a", f"{number}", qos=qos)


async def fetch(port: int, name: str, count: int) -> list[int]:
    """What the session's client gets, in order: so many, and what comes within a moment more."""
    got: list[int] = []
    async with client(port, name) as subscriber:
        messages = aiter(subscriber.messages)
        while True:
            try:
                message = await asyncio.wait_for(anext(messages), TIMEOUT if len(got) < count else 0.5)
            except TimeoutError:
                return got
            assert isinstance(message.payload, bytes)
            got.append(int(message.payload))


@pytest.mark.parametrize(
    "stored", ["file gone", "database", *(pytest.param(name, marks=pytest.mark.soak) for name in ("memory", "file"))]
)
async def test_a_broker_is_killed_and_another_has_its_sessions(
    tmp_path: Path, stored: Stored, request: pytest.FixtureRequest
) -> None:
    """100 of 100 acknowledged messages for an offline session of a broker that is gone come at another broker, and so
    does what is published while it is down; when it is back it does not bring the old session back."""
    url = request.getfixturevalue("postgres").schema() if stored == "database" else ""
    async with site(tmp_path if stored.startswith("file") else None, url=url) as brokers:
        for qos in (1, 2):
            await subscribe(brokers.port(0), f"away{qos}", qos)
            await publish(brokers.port(1), range(100 * qos - 100, 100 * qos), 2)
        brokers.kill(0, gone=stored == "file gone")
        await publish(brokers.port(1), range(200, 210), 2)
        assert await fetch(brokers.port(2), "away1", 210) == [*range(210)]
        await brokers.restart(0)
        await publish(brokers.port(1), range(210, 215), 2)
        assert await fetch(brokers.port(0), "away2", 115) == [*range(100, 215)]
        assert await fetch(brokers.port(0), "away1", 5) == [*range(210, 215)]


async def test_what_a_broker_has_kept_for_one_that_stands_still_survives_its_own_kill(tmp_path: Path) -> None:
    """The publishers' broker is killed, and starts again with its file, before the other one is heard again."""
    async with site(tmp_path) as brokers, client(brokers.port(0), "there", 0) as subscriber:
        await subscriber.subscribe("news/#", qos=2)
        await publish(brokers.port(1), range(5), 2)
        brokers.brokers[0].signal(signal.SIGSTOP)
        await asyncio.sleep(4)
        await publish(brokers.port(1), range(5, 105), 2)
        brokers.kill(1)
        await brokers.restart(1)
        await publish(brokers.port(1), range(105, 110), 2)
        brokers.brokers[0].signal(signal.SIGCONT)
        messages, got = aiter(subscriber.messages), list[int]()
        while len(got) < 110:
            message = await asyncio.wait_for(anext(messages), TIMEOUT)
            assert isinstance(message.payload, bytes)
            got.append(int(message.payload))
        assert got == [*range(110)]


async def test_a_broker_that_is_stopped_waits_for_no_copies(tmp_path: Path) -> None:
    """It need not give up what it has written itself, though the brokers with its copies do not answer any more."""
    async with site(tmp_path, suspect_after=TIMEOUT) as brokers:
        await subscribe(brokers.port(0), "away", 1)
        async with client(brokers.port(0), "publisher", 0) as publisher:
            await publisher.publish("news/a", "0", qos=1)
            for other in brokers.brokers[1:]:
                other.signal(signal.SIGSTOP)
            with pytest.raises(aiomqtt.MqttError):
                await publisher.publish("news/a", "1", qos=1, timeout=0.2)
        await brokers.brokers[0].stop(TIMEOUT)
        assert "leaves" in brokers.brokers[0].errors
        assert "could not write everything" not in brokers.brokers[0].errors


async def is_present(port: int, name: str) -> bool:
    """What CONNACK says of a client's session; its connection then breaks."""
    client = DurableClient(port, name)
    reader, writer = await client.dial()
    writer.write(client.greeting())
    packet = await asyncio.wait_for(reader.readexactly(4), TIMEOUT)
    writer.transport.abort()
    assert packet[0] == 0x20
    assert not packet[3], f"refused: {packet[3]}"
    return bool(packet[2])


async def test_sessions_are_present_elsewhere_soon_after_their_broker_was_killed() -> None:
    """Also those without subscriptions or messages, of clients that connect at once."""
    names = [f"client{number}" for number in range(20)]
    async with site(None) as brokers:
        assert not any([await is_present(brokers.port(0), name) for name in names])
        brokers.kill(0)
        began = time.monotonic()
        asked = [is_present(brokers.port(1 + number % 2), name) for number, name in enumerate(names)]
        assert all(await asyncio.gather(*asked))
        took = time.monotonic() - began
        print(f"{len(names)} sessions present at other brokers {took:.2f} s after kill -9 of theirs")


async def test_all_are_killed_at_once_and_the_database_has_everything(postgres: PostgresServer) -> None:
    """Of three brokers that lose power, two start again: also the sessions of the third are there, in order."""
    async with site(None, url=postgres.schema()) as brokers:
        for number in range(3):
            await subscribe(brokers.port(number), f"away{number}", 2)
        await publish(brokers.port(1), range(50), 2)
        for number in range(3):
            brokers.kill(number)
        for number in (1, 2):
            await brokers.restart(number)
        assert await is_present(brokers.port(1), "away0")  # before, nothing that is published is made up for it
        await publish(brokers.port(1), range(50, 55), 2)
        for number in range(3):
            assert await fetch(brokers.port(1 + number % 2), f"away{number}", 55) == [*range(55)]
