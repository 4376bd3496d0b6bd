"""A broker with storage: its state after a restart, a full and a broken disk, and a file it cannot use."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from saps.config import SettingError
from saps.frontend.mqtt.codec.packets import Disconnect, Publish
from saps.frontend.mqtt.codec.reasons import Reason
from saps.storage.driver.writer import Writer
from saps.storage.journal import Batch
from tests.storage.conftest import Place
from tests.storage.running import TIMEOUT, Peer, broker, client, recovery, subscribed_device, taken


@pytest.mark.network
async def test_an_orderly_restart_keeps_sessions_messages_and_what_is_retained(place: Place) -> None:
    async with broker(place) as running:
        async with client(running, "device", 3600) as device:
            await device.subscribe("a/+", qos=2)
        async with client(running, "sender") as sender:
            for number in range(20):
                await sender.publish(f"a/{number}", b"%d" % number, qos=1)
            await sender.publish("kept", b"old", qos=1, retain=True)
            await sender.publish("kept", b"new", qos=1, retain=True)
            await sender.publish("deleted", b"x", qos=1, retain=True)
            await sender.publish("deleted", b"", qos=1, retain=True)
    async with broker(place) as running:
        async with client(running, "device", 3600) as device:
            assert await taken(device, 20) == [(f"a/{number}", b"%d" % number) for number in range(20)]
        async with client(running, "fresh") as fresh:
            await fresh.subscribe([("kept", 1), ("deleted", 1), ("end", 1)])
            await fresh.publish("end", b"", qos=1)
            assert await taken(fresh, 2) == [("kept", b"new"), ("end", b"")]
    async with broker(place) as running, client(running, "device", 3600) as device:
        await device.publish("a/end", b"", qos=1)
        assert await taken(device, 1) == [("a/end", b"")], "what was acknowledged came again"


@pytest.mark.network
async def test_a_full_file_refuses_what_is_new_until_it_has_been_fetched(place: Place) -> None:
    async with broker(place, maximum_size=400_000) as running:
        well, sent, big = recovery(running), 0, Publish("a", bytes(10_000), 1, packet_id=1)
        await subscribed_device(running)
        async with Peer(running, "sender") as sender:
            assert await sender.welcome() == Reason.SUCCESS
            while (reason := await sender.answer(big)) == Reason.SUCCESS:
                sent += 1
            assert reason == Reason.QUOTA_EXCEEDED
            assert 10 < sent < 60
            async with Peer(running, "another", 3600) as another:
                assert await another.welcome() == Reason.QUOTA_EXCEEDED
            async with client(running, "device", 3600) as device:
                assert len(await taken(device, sent)) == sent
                await asyncio.wait_for(well.wait(), TIMEOUT)
            assert await sender.answer(Publish("a", b"again", 1, packet_id=1)) == Reason.SUCCESS
        async with client(running, "device", 3600) as device:
            assert await taken(device, 1) == [("a", b"again")]


@pytest.mark.network
async def test_a_broken_disk_refuses_and_comes_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fails below the engine: every transaction does, until it is whole again."""
    broken = False
    async with broker(place) as running:
        assert running.store is not None
        assert isinstance(running.store._writer, Writer)
        database = running.store._writer._database
        write = database.write

        def failing(batch: Batch) -> None:
            if broken:
                raise OSError(5, "Input/output error")
            write(batch)

        monkeypatch.setattr(database, "write", failing)
        await subscribed_device(running)
        well = recovery(running)
        async with Peer(running, "first") as first, Peer(running, "second") as second:
            assert (await first.welcome(), await second.welcome()) == (0, 0)
            assert await second.answer(Publish("a", b"before", 1, packet_id=1)) == Reason.SUCCESS
            broken = True
            first.send(Publish("a", b"unanswered", 1, packet_id=1))
            assert await first.next() == Disconnect(Reason.UNSPECIFIED_ERROR), "an answer that is not true"
            assert await second.answer(Publish("a", b"refused", 1, packet_id=1)) == Reason.UNSPECIFIED_ERROR
            assert await second.answer(Publish("a", b"refused", 2, packet_id=2)) == Reason.UNSPECIFIED_ERROR
            async with Peer(running, "device", 3600) as device:
                assert await device.welcome() == Reason.UNSPECIFIED_ERROR
            broken = False
            await asyncio.wait_for(well.wait(), TIMEOUT)
            assert await second.answer(Publish("a", b"stored", 1, packet_id=3)) == Reason.SUCCESS
        async with client(running, "device", 3600) as stored:
            assert [payload for _, payload in await taken(stored, 3)] == [b"before", b"unanswered", b"stored"]


@pytest.mark.network
async def test_a_damaged_file_stops_the_broker_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "broker.db"
    file.write_bytes(b"no database at all" * 100)
    with pytest.raises(SettingError, match=str(file)):
        async with broker(file):
            pass
    process = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).parent / "saps"), "broker", "--name", "b", "--mqtt", "127.0.0.1:0"),
        *("--overlay", "127.0.0.1:0", "--set", f"storage.file={file}"),
        stdout=-1,
        stderr=-1,
    )
    _, errors = await asyncio.wait_for(process.communicate(), TIMEOUT)
    assert process.returncode == 2
    assert str(file) in errors.decode().replace("\n", "")
