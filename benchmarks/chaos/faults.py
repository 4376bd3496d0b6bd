"""How each fault is brought about, whom it touches, and how it is repaired."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import shutil
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.chaos.account import Reach, reach_of
from benchmarks.chaos.cable import Cable
from benchmarks.chaos.clocks import NOTICED, library
from benchmarks.chaos.ground import START, Ground, Site
from benchmarks.chaos.openflow import OpenFlow
from benchmarks.chaos.schedule import BETWEEN, CLOCKS, OPENFLOW, VOLUMES, Kind, Step
from examples.smart_city.processes import BrokerError
from saps.runtime.atomic_file import sync_directory

SLOW = 2_000_000
"""Bits per second of a slow link: several times what the devices' traffic takes."""
BLOCK = 4096
CALLERS = 5
"""Clients that connect while a broker has no descriptors for them."""


def available(lab: bool, disks: bool, job: bool = False, *, full: bool = False, database: bool = False) -> list[Kind]:
    """What can be done in a lab, and where there are `disks` of one's own, or is not; whether there is the Spark job;
    whether the brokers store in a `database`, which needs none of what happens to files; and whether what is
    acknowledged has been synced in full: nothing is promised at a loss of power else."""
    left_out: set[Kind] = set() if lab else {*BETWEEN, *OPENFLOW}
    left_out |= set() if disks and not database else VOLUMES
    left_out |= {Kind.DAMAGE} if database else {Kind.DATABASE}
    left_out |= set() if full else {Kind.POWER}
    left_out |= set() if job else {Kind.SPARK}
    left_out |= set() if library() else CLOCKS
    left_out |= set() if shutil.which("nft") else {Kind.RING}
    return [kind for kind in Kind if kind not in left_out]


def reach(step: Step, ground: Ground) -> Reach:
    """Whom it touches."""
    if step.kind is Kind.SWITCH:
        return Reach(behind(step.broker, _openflow(ground)), kept=True)
    return reach_of(step, ground.sites, ground.sides)


def behind(switch: str, openflow: OpenFlow) -> frozenset[str]:
    """The brokers that are cut off from everybody while a switch is away."""
    return frozenset(host.name for host in openflow.lab.topology.hosts if host.switch == switch)


class Faults:
    """Carries steps out. `carry` returns when the fault is repaired, also if it is cancelled in between."""

    def __init__(self, ground: Ground, cable: Cable | None) -> None:
        self._ground, self._cable = ground, cable
        self._ways: dict[Kind, Callable[[Step], Awaitable[None]]] = {
            Kind.KILL: self._kill,
            Kind.PAUSE: self._stop,
            Kind.FREEZE: self._stop,
            Kind.RESTART: self._restart,
            Kind.DISK: self._fill,
            Kind.CLOCK: self._jump,
            Kind.REBOOT: self._reboot,
            Kind.WIPE: self._wipe,
            Kind.GONE: self._replace,
            Kind.DAMAGE: self._damage,
            Kind.BLACKOUT: self._black_out,
            Kind.POWER: self._cut_power,
            Kind.BROKEN: self._break_disk,
            Kind.SYNC: self._slow_disk,
            Kind.DATABASE: self._restart_database,
            Kind.STROBE: self._strobe,
            Kind.DESCRIPTORS: self._exhaust,
            Kind.GUEST: self._invite,
            **dict.fromkeys(BETWEEN, self._disturb),
            **dict.fromkeys(OPENFLOW, self._end_program),
            Kind.SWITCH: self._restart_switch,
        }

    async def carry(self, step: Step) -> None:
        """From the strike to the repair. Raises `BrokerError` or `LabError` if a program does not start again."""
        await self._ways[step.kind](step)

    async def _kill(self, step: Step) -> None:
        site = self._ground.sites[step.broker]
        await site.end(signal.SIGKILL)
        await asyncio.sleep(step.seconds)
        await site.start()

    async def _wipe(self, step: Step) -> None:
        site = self._ground.sites[step.broker]
        await site.end(signal.SIGKILL)
        await self._ground.wipe(site)
        await asyncio.sleep(step.seconds)
        await site.start()

    async def _replace(self, step: Step) -> None:
        site = self._ground.sites[step.broker]
        await site.end(signal.SIGKILL)
        await self._ground.wipe(site)
        site.succeed()
        await asyncio.sleep(step.seconds)
        await site.start()

    async def _damage(self, step: Step) -> None:
        site = self._ground.sites[step.broker]
        await site.end(signal.SIGKILL)
        damage(site.file, random.Random(step.draw))
        await asyncio.sleep(step.seconds)
        try:
            await site.start()
        except BrokerError:  # it refuses what is damaged, and says how to go on without
            await site.repair()
            await site.start()

    async def _black_out(self, step: Step) -> None:
        sites = list(self._ground.sites.values())
        rng = random.Random(step.draw)
        await asyncio.gather(*(site.end(signal.SIGKILL) for site in sites))
        for site in sites:
            await self._lose(site, rng.getrandbits(32))

        async def again(site: Site, delay: float) -> None:
            await asyncio.sleep(delay)
            await site.start()

        await asyncio.gather(*(again(site, rng.uniform(0, step.seconds)) for site in sites))

    async def _lose(self, site: Site, seed: int) -> None:
        """What its disk had not synced, if what is acknowledged had to be."""
        if self._ground.disks is not None and site.settings["storage.sync"] == "full":
            await self._ground.disks.lose(site.folder, seed)

    async def _cut_power(self, step: Step) -> None:
        site = self._ground.sites[step.broker]
        await site.end(signal.SIGKILL)
        await self._lose(site, step.draw)
        await asyncio.sleep(step.seconds)
        await site.start()

    async def _break_disk(self, step: Step) -> None:
        disks, folder = self._ground.disks, self._ground.sites[step.broker].folder
        assert disks is not None
        await disks.fail(folder)
        try:
            await asyncio.sleep(step.seconds)
        finally:
            await disks.mend(folder)

    async def _slow_disk(self, step: Step) -> None:
        disks, folder = self._ground.disks, self._ground.sites[step.broker].folder
        assert disks is not None
        await disks.slow(folder, step.share)
        try:
            await asyncio.sleep(step.seconds)
        finally:
            await disks.mend(folder)

    async def _restart_database(self, step: Step) -> None:
        assert self._ground.database is not None
        await self._ground.database.restart(step.seconds)

    async def _strobe(self, step: Step) -> None:
        clock = self._ground.sites[step.broker].clock
        try:
            for number in range(max(2, round(step.seconds / NOTICED))):
                clock.set(0 if number % 2 else step.jump)
                await asyncio.sleep(NOTICED)
        finally:
            clock.set(0)

    async def _exhaust(self, step: Step) -> None:
        site = self._ground.sites[step.broker]
        pid = site.process.pid if site.process is not None else None
        assert pid is not None
        limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), limit[1]))
        callers: list[asyncio.StreamWriter] = []
        try:
            for _ in range(CALLERS):
                with contextlib.suppress(OSError, TimeoutError):
                    callers.append((await asyncio.wait_for(site.dial(), step.seconds / CALLERS))[1])
                await asyncio.sleep(step.seconds / CALLERS)
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
            for writer in callers:
                writer.close()

    async def _invite(self, step: Step) -> None:
        guest = await self._ground.sites[step.broker].host_guest()
        try:
            await asyncio.sleep(step.seconds)
        finally:
            await guest.stop(START if step.draw % 2 else 0)

    async def _stop(self, step: Step) -> None:
        site = self._ground.sites[step.broker]
        site.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(step.seconds)
        finally:
            site.signal(signal.SIGCONT)

    async def _restart(self, step: Step) -> None:
        site = self._ground.sites[step.broker]
        await site.end(signal.SIGTERM)
        site.version = step.version
        await site.start()

    async def _fill(self, step: Step) -> None:
        filler = await asyncio.to_thread(fill, self._ground.sites[step.broker].folder)
        try:
            await asyncio.sleep(step.seconds)
        finally:
            filler.unlink()

    async def _jump(self, step: Step) -> None:
        clock = self._ground.sites[step.broker].clock
        clock.set(step.jump)
        try:
            await asyncio.sleep(step.seconds)
        finally:
            clock.set(0)

    async def _reboot(self, step: Step) -> None:
        site = self._ground.sites[step.broker]
        await site.end(signal.SIGKILL)
        site.clock.set(step.jump)
        try:
            await asyncio.sleep(step.seconds)
            await site.start()
        finally:
            site.clock.set(0)

    async def _disturb(self, step: Step) -> None:
        assert self._cable is not None
        repair = await asyncio.to_thread(self._strike, self._cable, step)
        try:
            await asyncio.sleep(step.seconds)
        finally:
            await asyncio.to_thread(repair)

    async def _end_program(self, step: Step) -> None:
        await _openflow(self._ground).restart(step.kind, step.seconds)

    async def _restart_switch(self, step: Step) -> None:
        await _openflow(self._ground).restart_switch(step.broker, step.seconds)

    @staticmethod
    def _strike(cable: Cable, step: Step) -> Callable[[], None]:
        match step.kind:
            case Kind.PARTITION | Kind.CUT:
                return cable.cut()
            case Kind.SLOW:
                return cable.slow(SLOW, forth=step.forth)
            case Kind.MANGLE:
                return cable.mangle(step.share, step.draw, forth=step.forth)
            case Kind.RING:
                return cable.ring()
            case Kind.LOSS:
                return cable.lose(step.share, forth=step.forth)
            case _:
                return cable.lose(1.0, forth=step.forth)


def _openflow(ground: Ground) -> OpenFlow:
    assert ground.openflow is not None
    return ground.openflow


def damage(file: Path, rng: random.Random) -> str:
    """Do one thing to the files of a stopped broker's storage that disks do. A loss of power does not undo it. Says
    what."""
    files = [
        each for each in (file, Path(f"{file}-wal"), Path(f"{file}-mark")) if each.exists() and each.stat().st_size
    ]
    victim = rng.choice(files)
    content = bytearray(victim.read_bytes())
    match rng.choice(("flip", "cut", "lose", "copy")):
        case "flip":
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            said = "a bit flipped"
        case "cut":
            del content[len(content) // 2 :]
            said = "cut in half"
        case "copy":
            block = min(BLOCK, len(content))
            source, target = (rng.randrange(0, len(content) - block + 1) for _ in range(2))
            content[target : target + block] = content[source : source + block]
            said = "a block copied over another"
        case _:
            victim.unlink()
            sync_directory(victim.parent)
            return f"{victim.name}: gone"
    with victim.open("wb") as changed:
        changed.write(content)
        changed.flush()
        os.fsync(changed.fileno())
    return f"{victim.name}: {said}"


def fill(disk: Path) -> Path:
    """Take every block that is left on a disk, with one file."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(BLOCK)) == BLOCK:
            pass
    return filler
