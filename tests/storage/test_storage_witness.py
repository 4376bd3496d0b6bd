"""An older copy of a whole store is intact in itself: the other brokers remember more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from saps.broker import storage as broker_storage
from saps.broker.broker import Broker
from saps.storage.place import Server
from saps.storage.witness import REMEMBERED, WITNESS, Witness
from tests.storage.conftest import Place
from tests.storage.damaging import ENDINGS
from tests.storage.running import TIMEOUT, broker, client, subscribed_device, until

TABLES = ("saps_brokers", "saps_records", "saps_quarantine")


class Snapshot:
    """All of a store, as a snapshot of the disk has it, or a backup of the database."""

    def __init__(self, place: Place, sql: Callable[..., object]) -> None:
        self._place = place
        self._sql = sql
        self._kept: dict[str, bytes] = {}

    def take(self) -> None:
        if isinstance(self._place, Server):
            for name in TABLES:
                self._sql(f"CREATE TABLE kept_{name} AS TABLE {name}", url=self._place.url)
        else:
            files = [Path(f"{self._place}{ending}") for ending in ENDINGS]
            self._kept = {str(file): file.read_bytes() for file in files if file.exists()}

    def remove(self) -> None:
        if isinstance(self._place, Server):
            self._sql(f"TRUNCATE {', '.join(TABLES)}", url=self._place.url)
        else:
            for ending in ENDINGS:
                Path(f"{self._place}{ending}").unlink(missing_ok=True)

    def put_back(self) -> None:
        self.remove()
        if isinstance(self._place, Server):
            for name in TABLES:
                self._sql(f"INSERT INTO {name} TABLE kept_{name}", url=self._place.url)
        for file, content in self._kept.items():
            Path(file).write_bytes(content)


async def published(running: Broker, count: int) -> None:
    async with client(running, "sender") as sender:
        for number in range(count):
            await sender.publish("a", b"%d" % number, qos=1)


async def remembered(witness: Broker, number: int) -> None:
    """The witness knows of this transaction."""
    agent = witness.agents._by_attribute[WITNESS][WITNESS]
    assert isinstance(agent, Witness)
    await until(lambda: agent._known.get("b", (b"", -1))[1] >= number)


async def asked(running: Broker) -> None:
    """What the broker asks at its start has been answered: as this is, which it asks later."""
    answered = asyncio.Event()
    call = partial(running.agents.call, f"!{WITNESS}", "note", ("probe", b"", 0), lambda answers: answered.set())
    running.mesh.act(call)
    await asyncio.wait_for(answered.wait(), TIMEOUT)


@pytest.mark.network
async def test_the_others_find_a_store_that_was_rolled_back(
    place: Place,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(broker_storage, "EVERY", 0.1)
    sql = request.getfixturevalue("postgres").sql if isinstance(place, Server) else print
    snapshot = Snapshot(place, sql)
    async with broker(None, "w") as witness:
        async with broker(place, join=witness) as running:
            await subscribed_device(running)
            await published(running, 5)
            snapshot.take()
            await published(running, 5)
            assert running.store is not None
            last = running.store.number
            await remembered(witness, last)
        async with broker(place, join=witness) as running:
            await asked(running)
            store = running.store
            assert store is not None
            assert not store.missing
            assert "storage was put back" not in caplog.text
            await remembered(witness, store.number)
        snapshot.put_back()
        async with broker(place, join=witness) as running:
            store = running.store
            assert store is not None
            await until(lambda: store.missing >= 5)
            assert "an older copy of the storage was put back" in caplog.text
        snapshot.remove()
        async with broker(place, join=witness):
            await until(lambda: "another storage is in the place" in caplog.text)


def test_a_witness_remembers_so_many_brokers() -> None:
    witness = Witness()
    assert witness.note("b", b"1", 5) == []
    assert witness.note("b", b"1", 4) == [b"1", 5]
    for number in range(REMEMBERED):
        witness.note(f"other{number}", b"2", 1)
    assert witness.note("b", b"1", 4) == []
