"""The OpenFlow side of the feed: software switches, controller, OFGate with its small decider; what it decides and why.

Brokers count each topic; once a second OFGate asks them for their counts, works out what a tree would save and cost
(`monitoring.selection.score`), and builds trees for the topics that are worth one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from contextlib import suppress

import aiohttp
import msgspec

from examples.common.program import Program, settled
from examples.smart_city.ofm import OfmPrograms
from examples.smart_city.processes import BrokerProcess
from examples.smart_city.run import Run
from examples.smart_city.scene import Broker, Scene
from examples.smart_city.traffic import Counted
from examples.social_feed.scarce import chosen, rows
from saps.agents.ofgate.decisions_io import Decisions

ENOUGH = 0.999
"""As a share of the run: then it ends, as soon as a tree is in use (on a busy machine that takes its time)."""
ROOMS = (1, 3)
"""Numbers of trees for which there might be room in each switch."""
LOOK = 0.5
"""Seconds between two looks at what is decided."""


class Decided(msgspec.Struct):
    """A topic that got a tree."""

    after: float
    """Seconds from the beginning until it was decided."""
    reason: str
    in_use: float | None = None
    """Seconds until the tree was there."""


class _Status(msgspec.Struct, frozen=True):
    topic: str
    status: str


class _Topics(msgspec.Struct, frozen=True):
    topics: list[_Status]


class Trees:
    """The programs, and what they decide. (A `run.Beside`.) Without OFM nothing but the play's time."""

    def __init__(self, program: Program, scene: Scene, ofm: bool) -> None:
        self.decided: dict[str, Decided] = {}
        """By topic."""
        self._program = program
        self._brokers_each = math.ceil(len(scene.brokers) / len(scene.clusters))
        self._programs = OfmPrograms(scene.brokers, "small") if ofm else None
        self.counted = Counted(self._programs.counts) if self._programs is not None else None
        """What the brokers count, if they do."""

    async def scarce(self) -> dict[int, list[str]]:
        """Read the counts; who would be left with room for few trees. After the run, before `close`."""
        if self._programs is None or self.counted is None:
            return {}
        await asyncio.to_thread(self.counted.read)
        counted = await asyncio.to_thread(lambda directory: list(rows(directory)), self._programs.counts)
        return {room: chosen(counted, room, self._brokers_each) for room in ROOMS}

    @property
    def processes(self) -> list[BrokerProcess]:
        return self._programs.processes if self._programs is not None else []

    async def before(self, run: Run) -> None:
        if self._programs is not None:
            await self._programs.start_network()

    def settings(self, broker: Broker) -> Mapping[str, str]:
        return self._programs.settings(broker) if self._programs is not None else {}

    async def after(self, run: Run, overlay: str) -> None:
        if self._programs is not None:
            await self._programs.start_gate(overlay)

    async def play(self, run: Run) -> None:
        self._program.begin()
        watching = asyncio.create_task(self._watch())
        try:
            await self._program.until(ENOUGH)
            if self._programs is not None:
                await settled(lambda: self._in_use() or self._program.curtain.is_set())
            await self._program.until()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def stop_first(self) -> None:
        if self._programs is not None:
            await self._programs.stop_deciding()

    def close(self) -> None:
        """Clear away what the programs left. After the run."""
        if self._programs is not None:
            self._programs.clear()

    def _in_use(self) -> bool:
        return any(each.in_use is not None for each in self.decided.values())

    async def _watch(self) -> None:
        if self._programs is None:
            return
        async with aiohttp.ClientSession() as session:
            while True:
                with suppress(aiohttp.ClientError, TimeoutError):
                    await self._look(session, self._programs.door)
                await asyncio.sleep(LOOK)

    async def _look(self, session: aiohttp.ClientSession, door: str) -> None:
        now = round(self._program.elapsed, 2)
        async with session.get(f"{door}/v1/decisions") as response:
            table = msgspec.json.decode(await response.read(), type=Decisions | None)
        for tree in table.trees if table is not None else ():
            if tree.topic not in self.decided:
                self.decided[tree.topic] = Decided(now, tree.reason)
                self._program.tell(f"a tree for {tree.topic}: {tree.reason}")
        async with session.get(f"{door}/v1/topics") as response:
            topics = msgspec.json.decode(await response.read(), type=_Topics).topics
        for each in topics:
            entry = self.decided.get(each.topic)
            if entry is not None and entry.in_use is None and each.status == "constructed":
                entry.in_use = now
