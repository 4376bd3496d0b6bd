"""The mesh's clock at a broker is right however long its start takes, and whatever its machine's clock says."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from examples.smart_city.processes import free_ports
from saps.broker.broker import Broker
from saps.broker.metrics import samples
from saps.config import Address
from saps.config.settings import OverlaySettings
from saps.config.storage import StorageSettings
from saps.storage.driver.database import Database
from saps.storage.journal import Table
from tests.network.meshes import TIMEOUT, Client, cut, mesh, settings

pytestmark = pytest.mark.network

DAY = 86_400_000_000_000
TRIES = 18


async def test_a_broker_that_began_a_day_ahead_is_let_in_again_with_the_right_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with mesh(2) as brokers:
        contact = Address.parse(brokers[0].ref.address)
        lives = []
        for ahead in (DAY, 0, -DAY, 0):
            with monkeypatch.context() as clock:
                clock.setattr(
                    "saps.broker.broker.time.time_ns", lambda ahead=ahead, right=time.time_ns: right() + ahead
                )
                broker = Broker(settings("again", "c2", [contact]))
                await broker.start()
            try:
                lives.append(broker.ref.incarnation)
                async with Client(broker.server.address) as there, Client(brokers[1].server.address) as here:
                    await there.subscribe("a/b")
                    await here.publish("a/b", b"%d" % len(lives), 1)
                    await there.expect("a/b", b"%d" % len(lives))
            finally:
                await broker.stop()
        assert lives == sorted(set(lives))


def forget_members(storage: Path) -> None:
    """Leave only the incarnation in the file of members."""
    file = Path(f"{storage}.members")
    file.write_bytes(msgspec.json.encode(msgspec.json.decode(file.read_bytes()) | {"members": {}}))


async def test_a_broker_that_began_a_day_ahead_is_heard_by_those_who_know_though_its_contact_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As after a loss of power of all brokers, beside an OFGate or a broker that has gone on."""
    file = tmp_path / "again.db"

    def again(contact: Broker) -> Broker:
        known = settings("again", "c2", [Address.parse(contact.ref.address)])
        return Broker(replace(known, storage=StorageSettings(file=str(file))))

    async with mesh(1) as (witness,):
        with monkeypatch.context() as clock:
            clock.setattr("saps.broker.broker.time.time_ns", lambda right=time.time_ns: right() + DAY)
            ahead = again(witness)
            await ahead.start()
        await cut(ahead)
        forget_members(file)
        contact = Broker(settings("contact", "c1", [Address.parse(witness.ref.address)]))
        await contact.start()
        later = again(contact)
        try:
            await later.start()
            assert later.ref.incarnation == ahead.ref.incarnation + 1
            async with Client(later.server.address) as there, Client(witness.server.address) as here:
                await there.subscribe("a/b")
                await here.publish("a/b", b"1", 1)
                await there.expect("a/b", b"1")
        finally:
            await cut(later)
            await cut(contact)


async def test_a_broker_with_a_wrong_clock_is_named_by_its_peers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("saps.overlay.node.COMPARE", 0.2)
    monkeypatch.setattr("saps.overlay.membership.clocks.COMPARE", 0.2)
    async with mesh(2) as brokers:
        with monkeypatch.context() as clock:
            clock.setattr("saps.broker.broker.time.time_ns", lambda right=time.time_ns: right() + DAY)
            ahead = Broker(settings("ahead", "c2", [Address.parse(brokers[0].ref.address)]))
            await ahead.start()
        try:
            async with asyncio.timeout(TIMEOUT):
                while caplog.text.count("the clock of broker ahead is 86400.0 s ahead of this one's") < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            for broker in brokers:
                (sample,) = [
                    each
                    for each in samples(broker, ready=True, origins_refused=0)
                    if each.name == "clock_ahead_seconds"
                ]
                assert isinstance(sample.value, Mapping)
                assert sample.value["ahead"] == pytest.approx(86_400, abs=1)
        finally:
            await cut(ahead)


@asynccontextmanager
async def waited_for_join(_folder: Path) -> AsyncIterator[list[Broker]]:
    """Two brokers, of which the second has waited a second and a half for the first."""
    (port,) = free_ports(1, random.Random(os.urandom(8)))
    at = Address("127.0.0.1", port)
    early = Broker(settings("early", "c1", [at]))
    late = Broker(replace(settings("late", "c1"), overlay=OverlaySettings(listen=at, alm_order="la")))
    starting = asyncio.create_task(early.start())
    try:
        await asyncio.sleep(1.5)
        await late.start()
        await starting
        yield [late, early]
    finally:
        await cut(early)
        await cut(late)


@asynccontextmanager
async def found_a_large_store(folder: Path) -> AsyncIterator[list[Broker]]:
    """Two brokers, of which the second has 5,000 sessions in its file."""
    file = folder / "b.db"
    database = Database(file, "off")
    rows = {n: (n, f"old{n}", None, 86_400, time.time() + 86_400, None, 0, None, 0) for n in range(1, 5001)}
    database.write({Table.SESSIONS: rows})  # type: ignore[dict-item]
    database.close()
    async with mesh(1) as (first,):
        join = [Address.parse(first.ref.address)]
        stored = Broker(replace(settings("stored", "c1", join), storage=StorageSettings(file=str(file))))
        try:
            await stored.start()
            assert len(stored.server.frontend.sessions) == 5000
            yield [first, stored]
        finally:
            await cut(stored)


@pytest.mark.parametrize("slow_start", [waited_for_join, found_a_large_store])
async def test_what_is_acknowledged_later_is_later_though_a_broker_was_slow_to_start(
    slow_start: Callable[[Path], AbstractAsyncContextManager[list[Broker]]], tmp_path: Path
) -> None:
    """The last retained message stays, the last CONNECT wins, and messages expire in time, at both brokers."""
    async with slow_start(tmp_path) as (on_time, slow), AsyncExitStack() as stack:
        writers = [await stack.enter_async_context(Client(each.server.address)) for each in (on_time, slow)]
        expected = set()
        for number in range(TRIES):
            first, second = writers if number % 2 else reversed(writers)
            await first.publish(f"state/{number}", b"first", 1, retain=True)
            await second.publish(f"state/{number}", b"second", 1, retain=True)
            expected.add((f"state/{number}", b"second"))
        for broker in (on_time, slow):
            reader = await stack.enter_async_context(Client(broker.server.address))
            await reader.subscribe("state/#")
            await reader.until(lambda reader=reader: len(reader.received) >= TRIES)  # type: ignore[misc]
            assert {*reader.received} == expected
        for number in range(TRIES):
            homes = (on_time, slow) if number % 2 else (slow, on_time)
            before, after = [
                await stack.enter_async_context(Client(home.server.address, f"roaming{number}")) for home in homes
            ]
            await before.until(lambda both=(before, after): not all(each.connected for each in both))  # type: ignore[misc]
            assert after.connected
        await writers[1].publish("short", b"x", 1, retain=True, expiry=1)
        reader = await stack.enter_async_context(Client(on_time.server.address))
        await reader.subscribe("short")
        await reader.expect("short", b"x")
        await asyncio.sleep(1.2)
        reader = await stack.enter_async_context(Client(on_time.server.address))
        await reader.subscribe("short", "state/0")
        await reader.expect("state/0", b"second")
        assert ("short", b"x") not in reader.received
