"""Carries a scene out: brokers up, devices connected, the play, the settling, and everything down again."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Protocol

from examples.common.machine import Processors
from examples.common.program import dismiss
from examples.smart_city.devices import DeviceError, Stage, ended_before, publish, subscribe
from examples.smart_city.processes import BrokerError, BrokerProcess, free_ports, saps_broker, stop_all
from examples.smart_city.recorder import Recorder
from examples.smart_city.scene import Broker, Publisher, Scene, Subscriber

SETTLE_TIMEOUT = 5.0
"""Seconds without any arrival after which whatever is missing counts as lost."""

AFTERMATH = 0.5
"""Seconds to listen on when everything has come: time for a late duplicate."""

LEAVING = 20.0
"""Seconds that all brokers together may take to leave, on a machine that is busy."""

Address = tuple[str, int]


class Phase(StrEnum):
    """The acts of a run, in order."""

    STARTING = "starting the brokers"
    CONNECTING = "connecting the devices"
    PLAYING = "publishing"
    SETTLING = "waiting for the last messages"
    CLOSING = "stopping the brokers"


class LoopError(Exception):
    """What runs beside did not do what it is there for. The text says what."""


class Beside(Protocol):
    """What runs beside the brokers and makes the play."""

    @property
    def processes(self) -> list[BrokerProcess]:
        """Its processes, in the order in which they start."""

    async def before(self, run: Run) -> None:
        """Start what must be there before the brokers. Raises `BrokerError`."""

    def settings(self, broker: Broker) -> Mapping[str, str]:
        """What a broker must be told. After `before`."""

    async def after(self, run: Run, overlay: str) -> None:
        """Start what joins the brokers, at the first one's address. Raises `BrokerError`."""

    async def play(self, run: Run) -> None:
        """Do it, while the devices publish; the run ends with it. Raises `BrokerError` or `LoopError`."""

    async def stop_first(self) -> None:
        """End what must not be waited for later. The rest is ended with the brokers."""


class NotStartedError(Exception):
    """A broker or a device could not start. The text says which and why."""


class Run:
    """One run of a scene. `perform` does it all; the rest may be looked at from the same loop."""

    def __init__(
        self,
        scene: Scene,
        seconds: float,
        seed: int,
        external: Sequence[Address] = (),
        *,
        open_end: bool = False,
        beside: Beside | None = None,
    ) -> None:
        """`open_end`: it lasts until `finish`, however long that is; `seconds` only says when latecomers join.
        `beside`: what else runs, with brokers that are started here."""
        self.scene = scene
        self._beside = beside
        self.seconds = seconds
        self._open_end = open_end
        self.recorder = Recorder(scene.group_of)
        self.phase = Phase.STARTING
        self.began: float | None = None
        """When the first publication was allowed, on the monotonic clock."""
        self.ended: float | None = None
        """When the last publication was done."""
        self.interrupted = False
        self.troubles: list[str] = []
        """What went wrong besides the messages: a broker that ended, a device that lost its connection."""
        self.busy: float | None = None
        """Share of this machine's processors in use while it played, by all programs."""
        self.news: list[tuple[float, str]] = []
        """What happened, with the seconds since `began`."""
        self.on_phase: Callable[[Phase], None] = lambda phase: None
        """Called as each phase begins."""
        self.processes: dict[str, BrokerProcess] = {}
        """Brokers, by name."""
        self._rng = random.Random(seed)
        self._curtain = asyncio.Event()
        self._brokers: tuple[Broker, ...] = () if external else scene.brokers
        """Those to be started here."""
        self._overlays: list[str] = []
        addresses = self._external(external) if external else self._plan_addresses()
        run_id = f"{random.SystemRandom().getrandbits(32):08x}"
        self.stage = Stage(addresses, self.recorder, run_id, readings_of=scene.readings_of)
        self._publishers: list[asyncio.Task[None]] = []
        self._subscribers: list[asyncio.Task[None]] = []
        self._watchers: list[asyncio.Task[None]] = []

    @property
    def elapsed(self) -> float:
        """Seconds of publishing so far."""
        if self.began is None:
            return 0.0
        return (self.ended or time.monotonic()) - self.began

    @property
    def sound(self) -> bool:
        """Every broker and device worked, every message arrived as it should. Final after `perform`."""
        return not self.troubles and self.recorder.sound

    def interrupt(self) -> None:
        """End early: no more publications, the messages on their way still arrive, all is taken down."""
        self.interrupted = True
        self._curtain.set()

    def finish(self) -> None:
        """End the play now and in order, as if its time were over."""
        self._curtain.set()

    async def perform(self) -> None:
        """Do it all. NotStartedError if a broker or device cannot start. It never leaves a process."""
        try:
            if not await self._unless_curtain(self._start_brokers()):
                return
            self._enter(Phase.CONNECTING)
            if not await self._unless_curtain(self._connect()):
                return
            await self._play()
            self._enter(Phase.SETTLING)
            await self._settle()
        finally:
            self._enter(Phase.CLOSING)
            await self._close()

    # -- the acts -------------------------------------------------------------------------------------------

    async def _start_brokers(self) -> None:
        """The first broker, then all others at once, each joining the first; before and after, what runs beside."""
        if not self._brokers:
            return
        try:
            if self._beside is not None:
                await self._beside.before(self)
            self._plan_processes()
            first, *others = self.processes.values()
            await first.start()
            async with asyncio.TaskGroup() as starts:
                for process in others:
                    starts.create_task(process.start())
            if self._beside is not None:
                await self._beside.after(self, self._overlays[0])
        except BrokerError as error:
            raise NotStartedError(self._with_last_words(str(error))) from None
        except ExceptionGroup as errors:
            texts = "\n".join(str(error) for error in errors.exceptions)
            raise NotStartedError(self._with_last_words(texts)) from None
        for process in self.processes.values():
            self.watch(process)

    async def _connect(self) -> None:
        """Subscribers first: they are owed every publication from the first one on."""
        early = [device for device in self.scene.subscribers if device.joins_at == 0]
        subscribed = [asyncio.Event() for _ in early]
        for device, event in zip(early, subscribed, strict=True):
            self._subscribers.append(self._device(subscribe(device, self.stage, event)))
        await _all(subscribed)
        connected = [asyncio.Event() for _ in self.scene.publishers]
        for publisher, event in zip(self.scene.publishers, connected, strict=True):
            rng = random.Random(self._rng.getrandbits(64))
            self._publishers.append(self._device(publish(publisher, self.stage, rng, event)))
        await _all(connected)

    async def _play(self) -> None:
        self._enter(Phase.PLAYING)
        self.began = time.monotonic()
        processors = Processors()
        for device in self.scene.subscribers:
            if device.joins_at > 0:
                self._subscribers.append(self._device(self._join_late(device)))
        self.stage.begin.set()
        playing = [asyncio.create_task(self._play_beside(self._beside))] if self._beside is not None else []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if self._open_end else self.seconds):
                await self._curtain.wait()
        self.stage.end.set()
        for task in playing:
            await dismiss((task,))
            if not task.cancelled():
                task.result()
        await asyncio.gather(*self._publishers)
        self.ended = time.monotonic()
        self.busy = processors.busy

    async def _play_beside(self, beside: Beside) -> None:
        """Let it play its part, which ends the run."""
        try:
            await beside.play(self)
        except (BrokerError, LoopError) as error:
            self._trouble(str(error))
        finally:
            self.finish()

    async def crowd(self, publishers: Sequence[Publisher], until: asyncio.Event) -> None:
        """Have more devices publish, until the event or the end of the play. Returns when they are connected."""
        stage = replace(self.stage, end=until)
        connected = [asyncio.Event() for _ in publishers]
        for publisher, event in zip(publishers, connected, strict=True):
            rng = random.Random(self._rng.getrandbits(64))
            self._publishers.append(self._device(publish(publisher, stage, rng, event)))
        await _all(connected)

    def watch(self, process: BrokerProcess) -> None:
        """From now on its end is trouble."""
        self._watchers.append(asyncio.create_task(self._watch(process)))

    async def _join_late(self, device: Subscriber) -> None:
        if await ended_before(self.stage.end, time.monotonic() + device.joins_at * self.seconds):
            return
        self.tell(f"{device.name} joins at {device.broker.name}: {', '.join(device.filters)}")
        await subscribe(device, self.stage, asyncio.Event())

    async def _settle(self) -> None:
        """Wait for what is on its way, then a little longer for what should not come any more."""
        arrival = self.stage.arrival
        with contextlib.suppress(TimeoutError):
            while not self.recorder.settled:
                arrival.clear()
                async with asyncio.timeout(SETTLE_TIMEOUT):
                    await arrival.wait()
        await asyncio.sleep(AFTERMATH)

    async def _close(self) -> None:
        try:
            await dismiss([*self._publishers, *self._subscribers])
        finally:
            for task in self._watchers:
                task.cancel()
            if self._beside is not None:
                await self._beside.stop_first()
            self.troubles += await stop_all(list(self.processes.values()), LEAVING)
            if self._beside is not None:
                self.troubles += await stop_all(self._beside.processes[::-1], LEAVING)

    # -- the means ------------------------------------------------------------------------------------------

    def _with_last_words(self, text: str) -> str:
        """The text, and what the brokers that did start wrote to standard error: the cause may be with them."""
        others = (process for process in self.processes.values() if process.ready_line and process.errors)
        words = (f"broker {process.name} wrote meanwhile:\n    {process.errors.splitlines()[-1]}" for process in others)
        return "\n".join([text, *words])

    def _external(self, addresses: Sequence[Address]) -> Mapping[str, Address]:
        return {broker.name: address for broker, address in zip(self.scene.brokers, addresses, strict=True)}

    def _plan_addresses(self) -> Mapping[str, Address]:
        count = len(self._brokers)
        ports = free_ports(2 * count, random.Random())
        self._overlays = [f"127.0.0.1:{port}" for port in ports[count:]]
        return {broker.name: ("127.0.0.1", port) for broker, port in zip(self._brokers, ports, strict=False)}

    def _plan_processes(self) -> None:
        for i, broker in enumerate(self._brokers):
            mqtt = "{}:{}".format(*self.stage.addresses[broker.name])
            settings = self._beside.settings(broker) if self._beside is not None else {}
            self.processes[broker.name] = saps_broker(
                broker.name, broker.cluster, mqtt, self._overlays[i], self._overlays[:1] if i else (), settings
            )

    def is_up(self, broker: Broker) -> bool:
        """The broker is ready; an external one is taken to be."""
        process = self.processes.get(broker.name)
        if process is None:
            return not self._brokers
        return process.running and bool(process.ready_line)

    def _device(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def guarded() -> None:
            try:
                await work
            except DeviceError as error:
                self._trouble(str(error))

        return asyncio.create_task(guarded())

    async def _watch(self, process: BrokerProcess) -> None:
        """A broker's end comes first in the list: the devices' lost connections follow from it."""
        self._trouble(str(await process.ended_unasked()), at=0)

    def _trouble(self, text: str, at: int | None = None) -> None:
        self.troubles.insert(len(self.troubles) if at is None else at, text)
        self.tell(text.partition("\n")[0])
        self._curtain.set()

    def tell(self, text: str) -> None:
        """Add to the news."""
        self.news.append((self.elapsed, text))

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.on_phase(phase)

    async def _unless_curtain(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do the work unless the curtain falls first: False if by an interrupt, else NotStartedError."""
        task = asyncio.create_task(work)
        curtain = asyncio.create_task(self._curtain.wait())
        try:
            await asyncio.wait((task, curtain), return_when=asyncio.FIRST_COMPLETED)
        finally:
            curtain.cancel()
            await dismiss((task,))
        if self._curtain.is_set():
            if self.interrupted:
                return False
            raise NotStartedError("\n".join(self.troubles))
        task.result()
        return True


async def _all(events: Sequence[asyncio.Event]) -> None:
    for event in events:
        await event.wait()
