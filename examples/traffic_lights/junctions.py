"""The programs on the mesh: a controller at each junction, and the traffic office that sees them all.

| topic | QoS | who says it | who needs it |
| --- | --- | --- | --- |
| ``traffic/JUNCTION/queues`` | 1 | a junction, at each step | its neighbours, the office |
| ``traffic/JUNCTION/phase`` | 1 | the same | the office |

A controller knows of the city what its own detectors count and what its neighbours say, like a box at a real junction.
"""

from __future__ import annotations

import asyncio

import msgspec
from aiomqtt import Client, Message

from examples.common.clients import connected, publish, read, while_listening
from examples.common.mesh import Address
from examples.common.program import TIMEOUT, Program, settled
from examples.traffic_lights.control import max_pressure, neighbours
from examples.traffic_lights.street import JUNCTIONS, NORTH_SOUTH, Junction, Lanes, Street


class Queues(msgspec.Struct, frozen=True, array_like=True):
    """What a junction's detectors counted."""

    step: int
    lanes: tuple[int, ...]


class Phase(msgspec.Struct, frozen=True, array_like=True):
    """What a junction has decided."""

    step: int
    phase: int


def name_of(junction: Junction) -> str:
    """The junction's level in topics."""
    return f"j{junction[0] + 1}{junction[1] + 1}"


NAMES = {name_of(junction): junction for junction in JUNCTIONS}


class City:
    """The street with its lights. It goes on when every junction has set its light for the step."""

    def __init__(self, program: Program, street: Street, pace: float) -> None:
        """`pace`: seconds that a step takes at least."""
        self.street = street
        self._program, self._pace = program, pace
        self._phases: dict[Junction, int] = {}
        self._turn = asyncio.Condition()
        self.decided: dict[Junction, list[int]] = {junction: [] for junction in JUNCTIONS}
        """The phases, step by step."""
        self.over = False

    async def set_light(self, junction: Junction, phase: int) -> None:
        """The junction's light for this step; returns at the beginning of the next one."""
        step = self.street.step
        async with self._turn:
            self._phases[junction] = phase
            self.decided[junction].append(phase)
            self._turn.notify_all()
            await self._turn.wait_for(lambda: self.street.step > step or self.over)

    async def go_on(self) -> None:
        """Step by step, until the curtain falls."""
        while not self._program.curtain.is_set():
            due = asyncio.create_task(asyncio.sleep(self._pace))
            if not await settled(lambda: len(self._phases) == len(JUNCTIONS) or bool(self._program.troubles)):
                self._program.storage_fault("not every junction has set its light in time")
            await due
            if self._program.troubles:
                break
            async with self._turn:
                self.street.advance(self._phases)
                self._phases = {}
                self.over = self._program.curtain.is_set()
                self._turn.notify_all()
        self.over = True


class Controller:
    """The controller at one junction."""

    def __init__(self, junction: Junction) -> None:
        self.junction = junction
        self._heard: dict[Junction, Queues] = {}
        self._news = asyncio.Event()

    async def work(self, program: Program, at: Address, city: City, ready: asyncio.Event) -> None:
        """Decide at each step, until the play is over."""
        async with connected(f"controller-{name_of(self.junction)}", at) as client:
            around = neighbours(self.junction)
            await client.subscribe([(f"traffic/{name_of(each)}/queues", 1) for each in around])
            ready.set()
            await while_listening(client, self._hear, self._decide_until(program, client, city))

    async def _decide_until(self, program: Program, client: Client, city: City) -> None:
        await program.beginning()
        phase = NORTH_SOUTH
        while not city.over:
            phase = await self._decide(client, city, phase)
            await city.set_light(self.junction, phase)

    async def _decide(self, client: Client, city: City, phase: int) -> int:
        """Tell the own queues, wait for the neighbours' of the same step, choose."""
        topic, step, own = f"traffic/{name_of(self.junction)}", city.street.step, city.street.lanes(self.junction)
        await publish(client, f"{topic}/queues", Queues(step, own), 1)
        lanes = await self._lanes_at(step) | {self.junction: own}
        phase = max_pressure(self.junction, phase, lanes)
        await publish(client, f"{topic}/phase", Phase(step, phase), 1)
        return phase

    async def _lanes_at(self, step: int) -> dict[Junction, Lanes]:
        around = neighbours(self.junction)
        async with asyncio.timeout(TIMEOUT):
            while any(each not in self._heard or self._heard[each].step < step for each in around):
                self._news.clear()
                await self._news.wait()
        return {each: self._heard[each].lanes for each in around}

    def _hear(self, message: Message) -> None:
        self._heard[NAMES[message.topic.value.split("/")[1]]] = read(message, Queues)
        self._news.set()


class Leadership:
    """The traffic office: what it has heard of every junction."""

    def __init__(self) -> None:
        self.phases: dict[Junction, list[Phase]] = {junction: [] for junction in JUNCTIONS}
        self.queues: dict[Junction, list[Queues]] = {junction: [] for junction in JUNCTIONS}

    async def work(self, at: Address, ready: asyncio.Event) -> None:
        """Listen until cancelled."""
        async with connected("traffic-office", at) as client:
            await client.subscribe([("traffic/+/phase", 1), ("traffic/+/queues", 1)])
            ready.set()
            async for message in client.messages:
                _, name, what = message.topic.value.split("/")
                if what == "phase":
                    self.phases[NAMES[name]].append(read(message, Phase))
                else:
                    self.queues[NAMES[name]].append(read(message, Queues))

    def complete(self, steps: int) -> bool:
        """All junctions have told all that they did in so many steps."""
        return all(len(said[each]) >= steps for each in JUNCTIONS for said in (self.phases, self.queues))
