"""How each fault is brought about, whom it touches, and how it is repaired."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.chaos.account import Reach
from benchmarks.chaos.ground import Cable, Ground
from benchmarks.chaos.schedule import BETWEEN, Kind, Step

SLOW = 2_000_000
"""Bits per second of a slow link: several times what the devices' traffic takes."""
BLOCK = 4096


def available(cable: bool, disks: bool) -> list[Kind]:
    """What can be done where there is a link between the clusters, and where disks can be filled, or is not."""
    return [kind for kind in Kind if (cable or kind not in BETWEEN) and (disks or kind is not Kind.DISK)]


def reach(step: Step, ground: Ground) -> Reach:
    """Whom it touches. A short pause and a slow link touch nobody: everything has to arrive, later."""
    if step.kind in (Kind.PARTITION, Kind.ONE_WAY, Kind.LOSS):
        return Reach(sides=ground.sides)
    if step.kind in (Kind.PAUSE, Kind.SLOW):
        return Reach()
    return Reach(frozenset({step.broker}))


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
            **dict.fromkeys(BETWEEN, self._disturb),
        }

    async def carry(self, step: Step) -> None:
        """From the strike to the repair. Raises `BrokerError` if a broker does not start again."""
        await self._ways[step.kind](step)

    async def _kill(self, step: Step) -> None:
        site = self._ground.sites[step.broker]
        await site.end(signal.SIGKILL)
        await asyncio.sleep(step.seconds)
        await site.start()

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

    async def _disturb(self, step: Step) -> None:
        assert self._cable is not None
        repair = await asyncio.to_thread(self._strike, self._cable, step)
        try:
            await asyncio.sleep(step.seconds)
        finally:
            await asyncio.to_thread(repair)

    @staticmethod
    def _strike(cable: Cable, step: Step) -> Callable[[], None]:
        match step.kind:
            case Kind.PARTITION:
                return cable.cut()
            case Kind.SLOW:
                return cable.slow(SLOW, forth=step.forth)
            case Kind.LOSS:
                return cable.lose(step.share, forth=step.forth)
            case _:
                return cable.lose(1.0, forth=step.forth)


def fill(disk: Path) -> Path:
    """Take every block that is left on a disk, with one file."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(BLOCK)) == BLOCK:
            pass
    return filler
