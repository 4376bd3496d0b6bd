"""One run: brokers, devices, and one fault after the other while messages flow."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import msgspec

from benchmarks.chaos.account import ROAMING, Count, Incident, Reach, Recorder, Stream
from benchmarks.chaos.cable import Cable
from benchmarks.chaos.devices import PacedPublisher, Roamer, Witness, topic_of
from benchmarks.chaos.faults import Faults, reach
from benchmarks.chaos.ground import Ground, Site
from benchmarks.chaos.openflow import WAYS
from benchmarks.chaos.schedule import QUIET, Step
from benchmarks.durable_clients import DurableClient
from examples.smart_city.processes import BrokerError
from lab import LabError

TIMEOUT = 60.0
"""Seconds to wait for what must come."""
POLL = 0.05
ROUND = 10
"""Messages of each stream that must all arrive everywhere before the mesh counts as recovered."""
LATE = 2.0
"""Seconds after which messages that have not come, though later ones have, are given up."""
NOTICED = 2.0
"""Seconds after a repair in which a broker may still be taken for dead because of the fault: `overlay.suspect_after`
and a heartbeat."""

Report = Callable[[Sequence[Incident], Recorder], None]


class Traffic(msgspec.Struct, frozen=True):
    """What the devices do: at each broker a publisher of each QoS, and subscribers that take everything."""

    rate: float = 20.0
    """Publications a second of each publisher to each of its topics."""
    topics: int = 1
    """Of each publisher, with a message to each at once."""
    qos: tuple[int, ...] = (0, 1, 2)
    subscribers: int = 1
    """At each broker."""
    roamers: int = 0
    """Subscribers that go from broker to broker with their sessions."""


class Outcome(msgspec.Struct, kw_only=True):
    """What came of it."""

    seconds: float
    counts: list[Count]
    incidents: list[Incident]
    sessions_lost: int
    """Times a broker did not know the session of a device that came back, and should have."""
    not_recovered: list[str]
    """Faults after which messages did not flow everywhere again."""
    never_came: bool
    """Something that is owed had not come when the run was given up."""
    details: list[str]
    places: dict[str, int] = {}
    """From where in their streams owed messages of QoS 1 and 2 are lost."""
    tree_topics: int = 0
    """Publications to topics that were to leave by OpenFlow multicast, as far as they were counted."""
    by_tree: int = 0
    """Those of them that did."""

    @property
    def good(self) -> bool:
        """What is promised has been kept: of QoS 1 and 2 nothing is lost, doubled or out of order."""
        wrong = sum(c.lost + c.doubled + c.disordered for c in self.counts if c.qos)
        return not (wrong or self.sessions_lost or self.not_recovered or self.never_came)


class Run:
    """The devices and the recorder at a ground whose brokers are up. Use `carry_out`."""

    def __init__(self, ground: Ground, cable: Cable | None, traffic: Traffic, *, keep: bool = False) -> None:
        """`keep`: the whole history, to be judged again."""
        self._ground, self._faults = ground, Faults(ground, cable)
        self._begun = time.monotonic()
        if ground.logs is not None:
            (ground.logs / "begun").write_text(f"{self._begun:.3f}\n")
        self._publishers = [
            PacedPublisher(name, qos, _streams(name, site, qos, traffic.topics), traffic.rate, site.dial, self._clock)
            for site in ground.sites.values()
            for qos in traffic.qos
            for name in [f"{site.name}-qos{qos}"]
        ]
        streams = [stream for publisher in self._publishers for stream in publisher.streams.values()]
        places = {f"{site.name}-sub{n}": site for site in ground.sites.values() for n in range(traffic.subscribers)}
        self._witnesses = {name: Witness(name, site.dial, self._clock) for name, site in places.items()}
        dials = [site.dial for site in ground.sites.values()]
        self._roamers = [Roamer(f"roamer{n}", dials, self._clock) for n in range(traffic.roamers)]
        self._witnesses |= {roamer.client_id: roamer for roamer in self._roamers}
        self.recorder = Recorder(
            streams,
            ((name, places[name].name if name in places else ROAMING) for name in self._witnesses),
            {} if keep else None,
        )
        for witness in self._witnesses.values():
            witness.recorder = self.recorder
        self._sure = [stream for stream in streams if stream.qos]

    def _clock(self) -> float:
        return time.monotonic() - self._begun

    async def carry_out(self, phases: Iterable[Sequence[Step]], seconds: float, report: Report) -> Outcome:
        """One phase after the other, none of them begun after so many seconds, and none after a program that did not
        start again.

        Raises `LabError` if the programs of OpenFlow multicast do not start at all, and `TimeoutError` if not even the
        first messages arrive."""
        failed: list[str] = []
        witnesses = list(self._witnesses.values())
        async with (
            _alive(witnesses),
            _alive(self._publishers),
            _pacing(self._publishers),
            contextlib.AsyncExitStack() as stack,
        ):
            await _until(lambda: all(witness.subscribed.is_set() for witness in witnesses))
            self._set_active(True)
            if await self._last_gap(self._clock()) is None:
                raise TimeoutError("no messages flow between the brokers, before any fault")
            await self._plant()
            await stack.enter_async_context(_tasks([asyncio.create_task(roamer.roam()) for roamer in self._roamers]))
            for phase in phases:
                if self._clock() > seconds:
                    break
                try:
                    if not phase:
                        await asyncio.sleep(QUIET)
                    elif not await self._endure(phase, report):
                        failed.append(self._complaint(phase))
                    await self._count()
                except (BrokerError, LabError) as error:
                    failed.append(str(error))
                    break
            self._set_active(False)
            settled = await self._settled()
        openflow = self._ground.openflow
        lost = [
            f"{client.client_id} had a new session at {moment - self._begun:.2f} s"
            for client in [*self._publishers, *witnesses]
            for moment in client.sessions_lost
            if not self.recorder.may_begin_anew(client.client_id, moment - self._begun)
        ]
        return Outcome(
            seconds=round(self._clock(), 1),
            counts=self.recorder.judge(),
            incidents=self.recorder.incidents,
            sessions_lost=len(lost),
            not_recovered=failed,
            never_came=not settled,
            details=self.recorder.details + lost,
            places=dict(self.recorder.places),
            tree_topics=openflow.publications if openflow is not None else 0,
            by_tree=openflow.carried if openflow is not None else 0,
        )

    async def _endure(self, phase: Sequence[Step], report: Report) -> bool:
        """Faults that overlap, until messages flow everywhere again; False if that does not happen. Raises as
        `Faults.carry`, when all of them are over."""
        incidents: list[Incident] = []
        self.recorder.watch(self._clock() + min(step.calm for step in phase))
        ended = await asyncio.gather(*(self._carry(step, incidents) for step in phase), return_exceptions=True)
        repaired, struck = self._clock(), incidents[0].struck
        for error in ended:
            if error is not None:
                self.recorder.close(incidents, repaired, repaired)
                raise error
        last = await self._last_gap(struck)
        flowing = self._clock()
        if last is not None and any(incident.reach != Reach() for incident in incidents):
            await asyncio.sleep(repaired + NOTICED - flowing)
            first, last = last, await self._last_gap(struck)
            flowing = flowing if first == last else self._clock()
        recovered = self._clock() if last is None else max(repaired, last)
        self.recorder.close(incidents, recovered, flowing)
        report(incidents, self.recorder)
        return last is not None

    async def _carry(self, step: Step, incidents: list[Incident]) -> None:
        await asyncio.sleep(step.calm)
        incident = self.recorder.strike(step, reach(step, self._ground), self._clock())
        incidents.append(incident)
        try:
            await self._faults.carry(step)
        finally:
            incident.repaired = self._clock()

    async def _count(self) -> None:
        """See how much has left along trees. Raises `LabError` if OFGate has ended."""
        if self._ground.openflow is not None:
            await self._ground.openflow.count()

    async def _plant(self) -> None:
        """Have trees made for the topics that are to have them, where there is OpenFlow multicast."""
        openflow = self._ground.openflow
        if openflow is None:
            return
        published = [item for publisher in self._publishers for item in publisher.streams.items()]
        topics = {topic: stream.broker for topic, stream in published if not topic.endswith(WAYS[0])}
        await openflow.start_gate(topics, [site.overlay for site in self._ground.sites.values()])
        await openflow.built()

    def _complaint(self, phase: Sequence[Step]) -> str:
        """What is wrong after faults the mesh has not recovered from."""
        cut_off = [client.client_id for client in [*self._publishers, *self._witnesses.values()] if not client.attached]
        silent = [
            f"{name} to {subscriber}"
            for (subscriber, name), flow in self.recorder.flows.items()
            if self.recorder.streams[name].qos and flow.last + ROUND < self.recorder.streams[name].last
        ]
        unacknowledged = [stream.name for stream in self._sure if stream.done[-ROUND - 1] == math.inf]
        names = ", ".join(f"{step.kind} {step.broker}".strip() for step in phase)
        words = [f"{names} until {self.recorder.incidents[-1].repaired:.1f} s"]
        words += [f"not attached: {', '.join(cut_off)}"] if cut_off else []
        words += [f"nothing arrives of {', '.join(silent)}"] if silent else []
        words += [f"no acknowledgements for {', '.join(unacknowledged)}"] if unacknowledged else []
        return "; ".join(words)

    async def _last_gap(self, struck: float) -> float | None:
        """Wait until the newest `ROUND` messages of each stream arrive everywhere. Gives the moment of the publication
        of the last one since `struck` that did not arrive, 0 if all did, and None if there is no end of those."""
        end = self._clock() + TIMEOUT
        while self._clock() < end:
            goals = {stream.name: stream.last + ROUND for stream in self._sure}
            if not await self._reached(goals, end):
                return None
            late = self._clock() + LATE
            while any(self._lacks(stream, goals[stream.name]) for stream in self._sure):
                await asyncio.sleep(POLL)
                if self._clock() > late:
                    break
            else:
                return self.recorder.last_gap(goals, struck)
        return None

    async def _reached(self, goals: dict[str, int], end: float) -> bool:
        """Wait until everybody has heard of each stream something as late as its goal."""
        flows = self.recorder.flows
        while not all(flow.last >= goals[name] for (_, name), flow in flows.items() if name in goals):
            if self._clock() > end:
                return False
            await asyncio.sleep(POLL)
        return True

    def _lacks(self, stream: Stream, goal: int) -> bool:
        """Somebody lacks one of the last `ROUND` messages up to the goal, or its publisher the acknowledgement."""
        wanted = range(goal - ROUND + 1, goal + 1)
        missing = any(n in self.recorder.flows[name, stream.name].missing for name in self._witnesses for n in wanted)
        return missing or any(stream.done[number - 1] == math.inf for number in wanted)

    async def _settled(self) -> bool:
        """Wait until all that is owed has come."""
        goals = {stream.name: stream.last for stream in self._sure}
        with contextlib.suppress(TimeoutError):
            await _until(lambda: all(p.finished for p in self._publishers), TIMEOUT)
            await _until(lambda: self.recorder.complete(goals), TIMEOUT / 4)
            return True
        return False

    def _set_active(self, active: bool) -> None:
        for publisher in self._publishers:
            publisher.active = active


def _streams(publisher: str, site: Site, qos: int, topics: int) -> dict[str, Stream]:
    """So many of a publisher at a site, by topic."""
    names = [f"{publisher}-{number}" for number in range(topics)] if topics > 1 else [publisher]
    return {topic_of(name, site.way): Stream(name, site.name, qos) for name in names}


@contextlib.asynccontextmanager
async def _alive(clients: Sequence[DurableClient]) -> AsyncIterator[None]:
    async with _tasks([asyncio.create_task(client.run()) for client in clients]):
        yield


@contextlib.asynccontextmanager
async def _pacing(publishers: Sequence[PacedPublisher]) -> AsyncIterator[None]:
    async with _tasks([asyncio.create_task(publisher.pace()) for publisher in publishers]):
        yield


@contextlib.asynccontextmanager
async def _tasks(tasks: Sequence[asyncio.Task[None]]) -> AsyncIterator[None]:
    """They run inside. What one of them raises is raised at the end; nothing of it is lost."""
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for result in ended:
        if isinstance(result, Exception):
            raise result


async def _until(condition: Callable[[], bool], seconds: float = TIMEOUT) -> None:
    """Wait for it. Raises `TimeoutError`."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        await asyncio.sleep(5 * POLL)
