"""A short selection of the fault suite: three brokers, some faults from a seed, and what must come to their devices."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.chaos import database
from benchmarks.chaos.disk.disks import possible
from benchmarks.chaos.faults import available
from benchmarks.chaos.ground import Ground, on_loopback
from benchmarks.chaos.run import Run, Traffic
from benchmarks.chaos.schedule import VERSIONS, Kind, steps

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 200.0
"""Seconds to wait for what must come."""
CALM = {"overlay.suspect_after": "15"}
"""A short pause is not taken for a death, however busy the machine; a broken link shows a death all the same."""
KINDS = (Kind.PAUSE, Kind.RESTART, Kind.BLACKOUT, Kind.DAMAGE, Kind.GUEST, Kind.CLOCK, Kind.REBOOT)
"""The last two need libfaketime. A reboot is a kill, and more."""
ON_DISKS = (Kind.POWER, Kind.BROKEN, Kind.SYNC, Kind.DESCRIPTORS)
"""These need root and FUSE."""


async def test_nothing_is_lost_whatever_happens_to_brokers_disks_and_clocks(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.chaos.run.LATE", 20.0)  # a busy machine is no gap
    monkeypatch.setattr("benchmarks.chaos.run.NOTICED", 0.0)  # none that lives is taken for dead later: they are calm
    disks = possible()
    synced = CALM | {"storage.sync": "full"}
    async with on_loopback(3, tmp_path, random.Random(seed), synced, disks=disks) as ground:
        had = available(lab=False, disks=disks)
        kinds = [kind for kind in KINDS + ON_DISKS * disks if kind in had]
        if Kind.REBOOT not in kinds:
            kinds.append(Kind.KILL)
        await endure(seed, ground, kinds)
        assert {site.version for site in ground.sites.values()} == {VERSIONS[0]}


@pytest.mark.skipif(not database.possible(), reason="PostgreSQL is not installed (scripts/setup_debian.sh)")
async def test_nothing_is_lost_whatever_happens_to_brokers_and_their_database(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.chaos.run.LATE", 20.0)
    monkeypatch.setattr("benchmarks.chaos.run.NOTICED", 0.0)
    synced = CALM | {"storage.sync": "full"}
    async with on_loopback(3, tmp_path, random.Random(seed), synced, database=True) as ground:
        await endure(seed, ground, [Kind.DATABASE, Kind.KILL, Kind.WIPE, Kind.BLACKOUT])


async def endure(seed: int, ground: Ground, kinds: list[Kind]) -> None:
    """Carry out each fault, and judge."""
    many = len(kinds) + (len(ground.sites) - 1 if Kind.RESTART in kinds else 0)
    drawn = steps(seed, list(ground.sites), kinds, many)
    planned = [msgspec.structs.replace(step, calm=0.2) for step in drawn]
    outcome = await Run(ground, None, Traffic(rate=8.0, topics=3, roamers=1)).carry_out(
        [[step] for step in planned], TIMEOUT, lambda *_: None
    )
    assert [incident.step for incident in outcome.incidents] == planned
    assert {incident.step.kind for incident in outcome.incidents} == set(kinds)
    assert all(count.delivered > count.published > 0 for count in outcome.counts)
    for count in outcome.counts:
        assert not count.qos or (count.lost, count.doubled, count.disordered) == (0, 0, 0), outcome.details
    assert outcome.sessions_lost == 0, (outcome.details, outcome.incidents)
    assert outcome.good, outcome.not_recovered


async def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    """Neither processes nor files nor mounts, however often it is told."""
    command = [sys.executable, "-m", "benchmarks.chaos", "--loopback", "--brokers", "2", "--kinds", "pause"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(TIMEOUT):
            while b"all flows after" not in (line := await process.stdout.readline()):
                assert line, "it ended by itself"
            assert named_after(tmp_path), "the brokers do not show what this test looks for"
            ended = asyncio.create_task(process.communicate())
            while not ended.done():
                process.send_signal(signal.SIGINT)
                await asyncio.wait([ended], timeout=0.1)
            _, errors = await ended
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 130, errors.decode()
    assert not named_after(tmp_path)
    assert not mounted_in(tmp_path)
    assert not os.listdir(tmp_path)


def mounted_in(folder: Path) -> bool:
    """Something is mounted inside."""
    return str(folder) in Path("/proc/mounts").read_text()


def named_after(folder: Path) -> list[str]:
    """The commands of all processes that have this folder in them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(folder) in command:
                found.append(command)
    return found
