"""An older copy of all files of a store is sound in itself: the other brokers remember more."""

from __future__ import annotations

import asyncio
import shutil
from functools import partial
from pathlib import Path

import pytest

from saps.broker import storage as broker_storage
from saps.broker.broker import Broker
from saps.storage.witness import REMEMBERED, WITNESS, Witness
from tests.storage.damaging import ENDINGS
from tests.storage.running import PATIENCE, broker, client, subscribed_device, until


def copy(path: Path, to: Path) -> None:
    """All files of a store, as a snapshot of the disk has them."""
    for ending in ENDINGS:
        if Path(f"{path}{ending}").exists():
            shutil.copy(f"{path}{ending}", f"{to}{ending}")
        else:
            Path(f"{to}{ending}").unlink(missing_ok=True)


def remove(path: Path) -> None:
    for ending in ENDINGS:
        Path(f"{path}{ending}").unlink(missing_ok=True)


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
    await asyncio.wait_for(answered.wait(), PATIENCE)


@pytest.mark.network
async def test_the_others_find_a_store_that_was_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(broker_storage, "EVERY", 0.1)
    path, snapshot = tmp_path / "broker.db", tmp_path / "snapshot.db"
    async with broker(None, "w") as witness:
        async with broker(path, join=witness) as running:
            await subscribed_device(running)
            await published(running, 5)
            copy(path, snapshot)
            await published(running, 5)
            assert running.store is not None
            last = running.store.number
            await remembered(witness, last)
        async with broker(path, join=witness) as running:
            await asked(running)
            store = running.store
            assert store is not None
            assert not store.missing
            assert "storage file was put back" not in caplog.text
            await remembered(witness, store.number)
        copy(snapshot, path)
        async with broker(path, join=witness) as running:
            store = running.store
            assert store is not None
            await until(lambda: store.missing >= 5)
            assert "an older copy of the storage file was put back" in caplog.text
        remove(path)
        async with broker(path, join=witness):
            await until(lambda: "another storage file is in the place" in caplog.text)


def test_a_witness_remembers_so_many_brokers() -> None:
    witness = Witness()
    assert witness.note("b", b"1", 5) == []
    assert witness.note("b", b"1", 4) == [b"1", 5]
    for number in range(REMEMBERED):
        witness.note(f"other{number}", b"2", 1)
    assert witness.note("b", b"1", 4) == []
