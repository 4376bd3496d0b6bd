"""The whole loop: traffic on a topic rises, it is decided, the tree is built; the traffic ends, and the tree goes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any

import aiohttp
import msgspec

from examples.smart_city.ofm import INTERVAL, Decider, OfmPrograms
from examples.smart_city.processes import BrokerProcess
from examples.smart_city.run import LoopError, Run
from examples.smart_city.scene import Broker, Crowd
from examples.smart_city.traffic import SPAN, Counted, Crossings, Sums, crossings
from saps.agents.ofgate.decisions_io import Decisions, Tree
from saps.ofm.northbound.schema import OfmStats

LOOK = 0.25
"""Seconds between two looks at OFGate and the controller."""
STAY = 6.0
"""Seconds that the topic stays on its tree, for all to see and to be measured, unless it is to be longer."""
SETTLED = 1.0
"""Seconds after a change of mode that do not count in the figures: it falls into a counting interval."""
CORE = f"{1:016x}"
"""Datapath id of the switch between the clusters."""
NAMES: Mapping[Decider, str] = {"spark": "the Spark job", "small": "OFGate's small decider"}


class Mode(StrEnum):
    """How a topic travels. By OFM it does once the switches count more and more of its packets."""

    ALM = "ALM"
    CONSTRUCTION = "under construction"
    OFM = "OFM"
    GOING = "tree is going"


MODES = {"constructing": Mode.CONSTRUCTION, "constructed": Mode.OFM, "updating": Mode.OFM, "deleting": Mode.GOING}
"""By OFGate's status; all else is ALM."""


class Facts(msgspec.Struct):
    """What the loop came to. Times in seconds; None: it did not come so far."""

    decider: Decider
    topic: str
    interval: float
    """Between two decisions."""
    decided_after: float | None = None
    """From the rise of the traffic until OFGate had the decision."""
    intervals: float | None = None
    """The same, in intervals."""
    built_after: float | None = None
    """From the decision to the tree's use."""
    copies_by_alm: float | None = None
    """Packets from one cluster to others, per publication, before the tree."""
    copies_by_ofm: float | None = None
    """With it."""
    links_by_alm: float | None = None
    """Links between clusters that a publication takes, up and down, before the tree."""
    links_by_ofm: float | None = None
    """With it."""
    gone_after: float | None = None
    """From the end of the traffic until the tree was gone."""
    reason: str = ""
    """Of the decision, in its own words."""
    modes: list[Mode] = []
    """The topic's modes, one after the other."""

    @property
    def complete(self) -> bool:
        """The loop has closed, and the tree spared copies."""
        return self.gap is None

    @property
    def gap(self) -> str | None:
        """What the loop did not come to, in words; None if it has closed."""
        if self.decided_after is None:
            return f"{NAMES[self.decider]} had not decided for a tree"
        if self.built_after is None:
            return "the tree was not in use"
        if self.gone_after is None:
            return "the tree was not gone"
        if self.copies_by_alm is None or self.copies_by_ofm is None:
            return "too little was counted to compare the tree with ALM"
        if self.copies_by_ofm >= self.copies_by_alm:
            return "the tree spared no packets between clusters"
        return None


class Loop:
    """Programs, observation and the acts. (A `run.Beside`.)"""

    def __init__(
        self, crowd: Crowd, brokers: tuple[Broker, ...], decider: Decider, timeout: float, stay: float = STAY
    ) -> None:
        """`timeout`: seconds for what must come; `stay`: seconds that the topic stays on its tree."""
        self.crowd = crowd
        self.facts = Facts(decider, crowd.topic, INTERVAL[decider])
        self.act = "the switches and the job start"
        """What is waited for, in words."""
        self.trees: dict[str, Crossings] = {}
        """What the switches counted of the present or last tree, by topic."""
        self._latest: dict[str, Crossings] = {}
        """At the last look."""
        self.status: dict[str, Mode] = {}
        """By topic, where it is not ALM."""
        self._programs = OfmPrograms(brokers, decider)
        self.counted = Counted(self._programs.counts)
        """What the brokers count."""
        self.page = self._programs.page
        """Address of the operator's page."""
        self._timeout = timeout
        self._stay = stay
        self._job: asyncio.Task[None] | None = None
        self._decided: Decisions | None = None
        self._looked = asyncio.Event()
        """Set after each look."""

    # ---- what runs beside (`run.Beside`)

    @property
    def processes(self) -> list[BrokerProcess]:
        return self._programs.processes

    async def before(self, run: Run) -> None:
        self._job = asyncio.create_task(self._programs.start_job())
        await self._programs.start_network()

    def settings(self, broker: Broker) -> Mapping[str, str]:
        return self._programs.settings(broker)

    async def after(self, run: Run, overlay: str) -> None:
        await self._programs.start_gate(overlay)

    async def play(self, run: Run) -> None:
        gone = asyncio.Event()
        run.tell(f"look at the operator's page: {self.page}")
        try:
            assert self._job is not None
            self.act = f"waiting for {NAMES[self.facts.decider]}"
            await self._job
            run.tell(f"{NAMES[self.facts.decider]} is ready")
            for process in self.processes:
                run.watch(process)
            async with aiohttp.ClientSession() as session, _while(self._watch(session)):
                decider = NAMES[self.facts.decider]
                await self._until(decider, "its first table of decisions", lambda: self._decided is not None)
                await self._rise(run, gone)
                await asyncio.sleep(self._stay)
                await self._end(run, gone)
        finally:
            gone.set()

    async def stop_first(self) -> None:
        if self._job is not None:
            self._job.cancel()
            await asyncio.gather(self._job, return_exceptions=True)
        await self._programs.stop_deciding()

    def close(self) -> None:
        """Clear away what the programs left. After the run."""
        self._programs.clear()

    # ---- the acts

    async def _rise(self, run: Run, gone: asyncio.Event) -> None:
        """The crowd comes, and the tree."""
        facts, topic = self.facts, self.crowd.topic
        self.act = "the crowd comes: traffic rises"
        await run.crowd(self.crowd.gates, gone)
        began, instant = time.monotonic(), time.time()
        run.tell(f"{len(self.crowd.gates)} gates begin to publish to {topic}")
        await self._until(NAMES[facts.decider], "its decision for a tree", lambda: self._tree() is not None)
        decided = time.monotonic()
        facts.decided_after = round(decided - began, 2)
        facts.intervals = round(facts.decided_after / facts.interval, 2)
        facts.reason = getattr(self._tree(), "reason", "")
        run.tell(f"{NAMES[facts.decider]} decides for a tree: {facts.reason}")
        self.act = "decided: the tree is built"
        await self._until("the controller", "the tree", lambda: self.mode(topic) is Mode.OFM)
        built = time.monotonic()
        facts.built_after = round(built - decided, 2)
        run.tell(f"{topic} uses its tree, {built - began:.1f} s after the rise")
        self.act = "the topic is on OFM"
        self._rose, self._built = instant, time.time()

    async def _end(self, run: Run, gone: asyncio.Event) -> None:
        """The crowd goes, and the tree."""
        facts, topic = self.facts, self.crowd.topic
        gone.set()
        ended, instant = time.monotonic(), time.time()
        run.tell("the gates are closed: the traffic ends")
        self.act = "the crowd is gone: the tree will go"
        await self._until(NAMES[facts.decider], "the end of the tree", lambda: self.mode(topic) is Mode.ALM)
        facts.gone_after = round(time.monotonic() - ended, 2)
        run.tell(f"the tree of {topic} is gone, {facts.gone_after:.1f} s after the end of the traffic")
        self.act = "the loop is closed"
        await self._measure(instant)

    async def _measure(self, ended: float) -> None:
        """Copies per publication, before the tree and with it."""
        facts, topic = self.facts, self.crowd.topic
        await asyncio.to_thread(self.counted.read)
        tree = self.trees[topic]
        alm = self.counted.between(self._rose, self._built).get(topic, Sums()).alone
        if alm.messages:
            facts.copies_by_alm, facts.links_by_alm = round(alm.between_clusters(tree), 2), round(alm.links(tree), 2)
        ofm = self.counted.between(self._built + SETTLED, ended).get(topic, Sums())
        if ofm.messages:
            facts.copies_by_ofm, facts.links_by_ofm = round(ofm.between_clusters(tree), 2), round(ofm.links(tree), 2)

    # ---- observation

    def mode(self, topic: str) -> Mode:
        """How a topic travels now."""
        return self.status.get(topic, Mode.ALM)

    def figures(self, topic: str) -> tuple[float, float, float]:
        """Of the last seconds: publications a second, packets between clusters a second, these per publication."""
        until = self.counted.latest
        sums = self.counted.between(until - SPAN, until).get(topic, Sums())
        each = sums.between_clusters(self.trees.get(topic, Crossings()))
        return sums.messages / SPAN, sums.messages / SPAN * each, each

    def _tree(self) -> Tree | None:
        """The decision for the crowd's topic, if it is to have a tree."""
        trees = self._decided.trees if self._decided is not None else []
        return next((tree for tree in trees if tree.topic == self.crowd.topic), None)

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        """Look again and again."""
        while True:
            with suppress(aiohttp.ClientError, TimeoutError, OSError):  # a program that ends is told by who watches it
                await self._look(session)
                self._looked.set()
            await asyncio.sleep(LOOK)

    async def _look(self, session: aiohttp.ClientSession) -> None:
        await asyncio.to_thread(self.counted.read)
        body = await _get(session, f"{self._programs.door}/v1/decisions")
        self._decided = msgspec.json.decode(body, type=Decisions | None)
        found: dict[str, Any] = msgspec.json.decode(await _get(session, f"{self._programs.door}/v1/topics"))
        status = {tree.topic: Mode.CONSTRUCTION for tree in (self._decided.trees if self._decided is not None else [])}
        status |= {each["topic"]: MODES[each["status"]] for each in found["topics"] if each["status"] in MODES}
        for topic in status:
            url = f"{self._programs.northbound}/v1/ofms/{topic.replace('/', '%2F')}/stats"
            stats = msgspec.json.decode(await _get(session, url), type=OfmStats)
            counted, before = crossings(stats, CORE), self._latest.get(topic, Crossings())
            self._latest[topic] = counted
            if counted.sent:
                self.trees[topic] = counted
            if status[topic] is Mode.OFM and self.mode(topic) is not Mode.OFM and not counted.sent > before.sent > 0:
                status[topic] = Mode.CONSTRUCTION
        self.status = status
        if self.facts.modes[-1:] != [self.mode(self.crowd.topic)]:
            self.facts.modes.append(self.mode(self.crowd.topic))

    async def _until(self, who: str, what: str, true: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                while not true():
                    self._looked.clear()
                    await self._looked.wait()
        except TimeoutError:
            words = [f"{each.label}: {each.errors.splitlines()[-1]}" for each in self.processes if each.errors]
            slow = f"{who} was slow: {what} did not come within {self._timeout:g} s"
            raise LoopError("\n    ".join([slow, *words])) from None


async def _get(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url) as response:
        response.raise_for_status()
        return await response.read()


class _while:  # noqa: N801  # reads as the block's condition
    """Does some work while the block lasts."""

    def __init__(self, work: Awaitable[None]) -> None:
        self._task = asyncio.ensure_future(work)

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
