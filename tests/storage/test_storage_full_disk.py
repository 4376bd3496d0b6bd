"""A disk with no space left: a small file system in memory, filled to the last block (root; Linux)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from saps.frontend.mqtt.codec.packets import Ack, Disconnect, Publish
from saps.frontend.mqtt.codec.reasons import Reason
from tests.storage.running import TIMEOUT, Peer, broker, client, recovery, subscribed_device, taken

BIG = 20_000
"""Bytes of a publication: a few hundred of them fill the file system."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system of 4 MiB of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=4m", "saps-test", str(disk))
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        yield disk
    finally:
        subprocess.run(("umount", str(disk)), check=True)


def fill(disk: Path) -> Path:
    """Take every block that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)) == 4096:
            pass
    return filler


@pytest.mark.network
async def test_without_space_it_refuses_stays_up_and_goes_on_when_there_is_some(small_disk: Path) -> None:
    """What was acknowledged before is delivered; what was not is refused with 0x97, or was never answered."""
    async with broker(small_disk / "broker.db") as running:
        await subscribed_device(running)
        async with Peer(running, "first") as first, Peer(running, "second") as second:
            assert (await first.welcome(), await second.welcome()) == (0, 0)
            assert await second.answer(Publish("a", b"before", 1, packet_id=1)) == Reason.SUCCESS
            filler = fill(small_disk)
            well = recovery(running)
            acknowledged = 0
            while True:  # the write-ahead log may still have room for some
                first.send(Publish("a", b"%06d" % acknowledged + bytes(BIG), 1, packet_id=1))
                answer = await first.next()
                if not isinstance(answer, Ack) or answer.reason != Reason.SUCCESS:
                    break
                acknowledged += 1
            assert answer == Disconnect(Reason.QUOTA_EXCEEDED), "nobody was told that it is stored"
            assert await second.answer(Publish("a", b"refused", 1, packet_id=1)) == Reason.QUOTA_EXCEEDED
            async with Peer(running, "another", 3600) as another:
                assert await another.welcome() == Reason.QUOTA_EXCEEDED
            filler.unlink()
            await asyncio.wait_for(well.wait(), TIMEOUT)
            assert await second.answer(Publish("a", b"after", 1, packet_id=2)) == Reason.SUCCESS
    async with broker(small_disk / "broker.db") as again, client(again, "device", 3600) as device:
        payloads = [payload[:6] for _, payload in await taken(device, acknowledged + 2)]
        while payloads[-1] != b"after":
            payloads += [payload[:6] for _, payload in await taken(device, 1)]
    assert payloads[: acknowledged + 1] == [b"before", *(b"%06d" % number for number in range(acknowledged))]
    assert b"refused" not in payloads
    assert len(payloads) <= acknowledged + 3, "besides, only what was never answered may come"
