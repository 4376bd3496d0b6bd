"""The acts: the scene by ALM, by ALM-LA, with its topics on the move, and by OFM, each measured at the switches."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from examples.lab_city.probe import Prober, Reach, probed
from examples.lab_city.result import Load, Outcome, Switching, outcome
from examples.smart_city.latency import Latencies
from examples.smart_city.run import Phase, Run
from examples.smart_city.scene import Broker, smart_city
from examples.smart_city.summary import counts
from lab import Counters, Lab, LabError
from lab.programs import Mesh
from lab.traffic import Background

IDLE = 2.0
"""Seconds for which a mesh is watched before its first act, to know what is not the scene's."""
STAY = 1.0
"""Seconds that the topics stay where they are between two moves."""

SWITCHING = "switching"
"""The act in which topics move."""

Show = Callable[[Run, str], AbstractAsyncContextManager[None]]
"""Shows a run, under a title, inside a block."""


async def background(lab: Lab) -> Background:
    """What crosses the links of an idle mesh."""
    await asyncio.sleep(IDLE)  # what follows the start is over then
    before, began = lab.counters(), time.monotonic()
    await asyncio.sleep(IDLE)
    return Background(lab.counters() - before, time.monotonic() - began)


class Meter:
    """What crosses the links between clusters while the devices publish, until the last message has come."""

    def __init__(self, lab: Lab, run: Run, background: Background) -> None:
        self._lab, self._run, self._background = lab, run, background
        self._began: tuple[float, Counters, int] | None = None
        self.load = Load(0, 0.0, 0.0)
        """What was found. Final when the run is over."""

    def begin(self) -> None:
        """Count from now on, and forget the latencies so far."""
        total = self._run.recorder.total
        total.latencies = Latencies()
        self._began = time.monotonic(), self._lab.counters(), total.published

    def phase(self, phase: Phase) -> None:
        """A phase of the run begins."""
        if phase is Phase.PLAYING:
            self.begin()
        elif phase is Phase.CLOSING and self._began is not None:
            at, before, published = self._began
            seen, took = (self._lab.counters() - before).inter_cluster, time.monotonic() - at
            self.load = Load(
                self._run.recorder.total.published - published,
                seen.packets - self._background.packets(took),
                seen.bytes - self._background.bytes(took),
            )


Meanwhile = Callable[[Mesh, Run, Meter], Awaitable[None]]
"""What is done while the devices publish; the act is over when it is done."""


class _InterruptedError(Exception):
    """The rest is left out."""


class Play:
    """All acts. `interrupt` ends the present one in order and leaves out the others."""

    def __init__(self, lab: Lab, seconds: float, seed: int, moves: int, show: Show) -> None:
        """`moves`: how often the topics move in the act of switching; it ends with OFM if odd."""
        self._lab, self._seconds, self._seed, self._moves, self._show = lab, seconds, seed, moves, show
        brokers = [Broker(host.name, host.cluster) for host in lab.topology.hosts]
        self._scene = smart_city(brokers, random.Random(seed))
        self._run: Run | None = None
        self._starting: Mesh | None = None
        self.result: dict[str, Outcome] = {}
        """What the acts that are over came to."""
        self.troubles: list[str] = []
        self.interrupted = False

    @property
    def topics(self) -> list[str]:
        """All topics of the scene."""
        return sorted({topic for publisher in self._scene.publishers for topic in publisher.topics})

    def interrupt(self) -> None:
        """Whatever is under way ends early."""
        if self._run is not None:
            self._run.interrupt()
        elif self._starting is not None:
            self._starting.kill()
        self.interrupted = True

    async def perform(self) -> None:
        """Do it all. Raises `LabError` if a program does not start, `NotStartedError` if a device does not."""
        try:
            async with self._programs("plain", ofm=False) as mesh:
                await self._act("ALM", mesh, self._stay)
            async with self._programs("la", ofm=False) as mesh:
                await self._act("ALM-LA", mesh, self._stay)
            async with self._programs("la", ofm=True) as mesh:
                await self._act(SWITCHING, mesh, self._move)
                await self._act("OFM", mesh, self._by_trees)
        except _InterruptedError:
            pass
        order = ("ALM", "ALM-LA", "OFM", SWITCHING)
        self.result = {name: self.result[name] for name in order if name in self.result}

    @asynccontextmanager
    async def _programs(self, order: str, *, ofm: bool) -> AsyncIterator[Mesh]:
        mesh = Mesh(self._lab, order=order, ofm=ofm, management=True)
        self._starting = mesh
        try:
            await asyncio.to_thread(mesh.__enter__)
        except LabError:
            if self.interrupted:
                raise _InterruptedError from None
            raise
        finally:
            self._starting = None
        try:
            self._background = await background(self._lab)
            yield mesh
        finally:
            await asyncio.to_thread(mesh.stop)

    async def _act(self, name: str, mesh: Mesh, meanwhile: Meanwhile) -> None:
        """One act: the devices publish until what is done meanwhile is over. Then it is probed, unless topics moved."""
        addresses = [mesh.clients[broker.name] for broker in self._scene.brokers]
        run = Run(self._scene, self._seconds, self._seed, addresses, open_end=True)
        meter = Meter(self._lab, run, self._background)
        run.on_phase = meter.phase
        if self.interrupted:
            raise _InterruptedError
        async with AsyncExitStack() as stack:
            prober = None if name == SWITCHING else Prober(mesh, self._scene, self._background, ofm=name == "OFM")

            async def work() -> None:
                await meanwhile(mesh, run, meter)
                if prober is not None:  # before the devices go: OFGate keeps trees only for topics that somebody wants
                    await stack.enter_async_context(prober)

            await self._perform(name, run, work())
            self.troubles += [*run.troubles, *mesh.failed()]
            found = outcome(counts(run.recorder.total), meter.load)
            if name == SWITCHING:
                found = Switching(**msgspec.structs.asdict(found), moves=self._moves, topics=len(self.topics))
            elif prober is not None and not run.interrupted:
                found = _with(found, [await prober.reach(*each) for each in probed(self._scene)])
            self.result[name] = found
        if run.interrupted:
            raise _InterruptedError

    async def _perform(self, name: str, run: Run, work: Awaitable[None]) -> None:
        self._run = run
        try:
            async with self._show(run, f"SAPS smart city: {name}"), asyncio.TaskGroup() as group:
                performance = group.create_task(run.perform())
                group.create_task(self._beside(performance, run, work))
        except ExceptionGroup as faults:
            raise faults.exceptions[0] from None
        finally:
            self._run = None

    @staticmethod
    async def _beside(performance: asyncio.Task[None], run: Run, work: Awaitable[None]) -> None:
        """Do the work, then let the run finish; give it up if the run ends by itself."""
        working = asyncio.ensure_future(work)
        try:
            await asyncio.wait((working, performance), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            working.cancel()
            run.finish()

    async def _stay(self, _mesh: Mesh, run: Run, _meter: Meter) -> None:
        """Let the act take its time."""
        await run.stage.begin.wait()
        await asyncio.sleep(self._seconds)

    async def _by_trees(self, mesh: Mesh, run: Run, meter: Meter) -> None:
        """Have all topics use OFM; count once every publisher does."""
        await run.stage.begin.wait()
        await asyncio.to_thread(mesh.exploit, self.topics)
        sent_by = {topic: each.broker.name for each in self._scene.publishers for topic in each.topics}
        await asyncio.to_thread(mesh.until, lambda status: _all_in(status, sent_by), "publishers in all trees")
        await asyncio.sleep(STAY)
        run.tell(f"{len(self.topics)} topics use OFM")
        meter.begin()
        await asyncio.sleep(self._seconds)

    async def _move(self, mesh: Mesh, run: Run, _meter: Meter) -> None:
        """Move all topics between ALM and OFM, again and again."""
        await run.stage.begin.wait()
        for move in range(self._moves):
            await asyncio.sleep(STAY)
            to_ofm = move % 2 == 0
            await asyncio.to_thread(mesh.exploit if to_ofm else mesh.release, self.topics)
            run.tell(f"{len(self.topics)} topics have moved to {'OFM' if to_ofm else 'ALM'}")
        await asyncio.sleep(STAY)


def _all_in(status: Any, sent_by: Mapping[str, str]) -> bool:
    """OFGate's trees have the publishers' brokers, and nothing is being changed."""
    trees = {each["topic"]: each for each in status["topics"] if each["status"] == "constructed"}
    return all(
        topic in trees and broker in {*trees[topic]["members"], *trees[topic]["senders"]}
        for topic, broker in sent_by.items()
    )


def _with(found: Outcome, reaches: list[Reach]) -> Outcome:
    copies = statistics.mean(reach.copies for reach in reaches)
    hops = max(reach.hops for reach in reaches)
    return msgspec.structs.replace(found, inter_cluster_packets_per_publication=round(copies, 2), max_hops=hops)
