"""The programs on the mesh, each an MQTT 5 client with a list of brokers: when one dies it goes to the next.

| topic | QoS | |
| --- | --- | --- |
| ``parking/PARK/free`` | 1, retained | how many places are free; said by the sign alone, so that it is never old |
| ``parking/PARK/reserve`` | 1 | a request, with response topic and correlation data (MQTT 5.0, 4.10) |
| ``$share/desk/parking/+/reserve`` | 1 | the workers' subscription: each request goes to one of them |
| ``parking/PARK/sold`` | 1 | a worker to the sign |
| ``reply/DRIVER`` | 1 | the answer |
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from aiomqtt import Client, Message

from examples.common.clients import at_any_broker, publish, read, while_listening
from examples.common.mesh import Address
from examples.common.program import Program, settled
from examples.parking.ledger import Ledger
from examples.parking.town import PARKS, CarPark, Plan

ASK_AGAIN = 1.5
"""Seconds after which a driver repeats a request."""


class Free(msgspec.Struct, frozen=True):
    """What a sign says."""

    free: int
    places: int


class Request(msgspec.Struct, frozen=True):
    """What a driver asks."""

    driver: str


class Answer(msgspec.Struct, frozen=True):
    """What a worker answers; no place: the car park is full."""

    park: str
    place: int | None
    worker: str


class Worker:
    """Takes requests in turns with the others, and answers them from the ledger."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self.answered = 0
        self.repeated = 0
        """Requests that had their place already."""
        self._ledger = ledger

    async def work(self, brokers: Sequence[Address], ready: asyncio.Event) -> None:
        """Until cancelled."""

        async def serve(client: Client) -> None:
            waiting: asyncio.Queue[Message] = asyncio.Queue()
            await client.subscribe("$share/desk/parking/+/reserve", 1)
            ready.set()
            await while_listening(client, waiting.put_nowait, self._answer_all(client, waiting))

        await at_any_broker(self.name, brokers, serve)

    async def _answer_all(self, client: Client, waiting: asyncio.Queue[Message]) -> None:
        while True:
            message = await waiting.get()
            park, asked = message.topic.value.split("/")[1], message.properties
            if asked is None:
                continue
            request: bytes = asked.CorrelationData  # type: ignore[attr-defined]
            place, before = self._ledger.reserve(park, request.decode())
            self.answered += 1
            self.repeated += before
            reply: str = asked.ResponseTopic  # type: ignore[attr-defined]
            await publish(client, reply, Answer(park, place, self.name), 1, CorrelationData=request)
            if place is not None:
                await client.publish(f"parking/{park}/sold", str(place), 1)


class Sign:
    """A car park's sign: says how many places are free, whenever it has changed."""

    def __init__(self, park: CarPark, ledger: Ledger) -> None:
        self.park = park
        self._ledger = ledger

    async def work(self, brokers: Sequence[Address], ready: asyncio.Event) -> None:
        """Until cancelled."""
        changed = asyncio.Event()

        async def show(client: Client) -> None:
            await client.subscribe(f"parking/{self.park.name}/sold", 1)
            changed.set()  # something may have been sold while there was no connection
            await while_listening(client, lambda _: changed.set(), self._tell(client, changed, ready))

        await at_any_broker(f"sign-{self.park.name}", brokers, show)

    async def _tell(self, client: Client, changed: asyncio.Event, ready: asyncio.Event) -> None:
        while True:
            await changed.wait()
            changed.clear()
            free = Free(self._ledger.free(self.park.name), self.park.places)
            await publish(client, f"parking/{self.park.name}/free", free, 1, retain=True)
            ready.set()


class Driver:
    """Looks for a place: the nearest car park that its sign says has one, then the next, until all have said no."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.began = False
        self.answer: Answer | None = None
        """The place it has got."""
        self.full: list[str] = []
        """The car parks that have said no."""
        self.requests = 0
        """How often it asked, repetitions included."""
        self._signs: dict[str, Free] = {}
        self._answers: dict[str, asyncio.Future[Answer]] = {}

    @property
    def done(self) -> bool:
        """It has a place, or knows that there is none."""
        return self.answer is not None or len(self.full) == len(self.plan.by_distance())

    async def work(self, program: Program, brokers: Sequence[Address]) -> None:
        """Come, look, ask. A driver who has begun goes on to the end."""
        if await program.ended_after(self.plan.begins * program.seconds - program.elapsed) and program.interrupted:
            return
        self.began = True

        async def look(client: Client) -> None:
            await client.subscribe([("parking/+/free", 1), (f"reply/{self.plan.name}", 1)])
            await while_listening(client, self._hear, self._ask_around(client))

        await at_any_broker(self.plan.name, brokers, look)

    def _hear(self, message: Message) -> None:
        if message.topic.value.startswith("parking/"):
            self._signs[message.topic.value.split("/")[1]] = read(message, Free)
            return
        asked: str = message.properties.CorrelationData.decode()  # type: ignore[union-attr]
        if (waiting := self._answers.get(asked)) is not None and not waiting.done():
            waiting.set_result(read(message, Answer))

    async def _ask_around(self, client: Client) -> None:
        await settled(lambda: len(self._signs) == len(PARKS), ASK_AGAIN)
        while not self.done:
            park = self._next()
            answer = await self._ask(client, park.name)
            if answer.place is not None:
                self.answer = answer
            else:
                self.full.append(park.name)

    def _next(self) -> CarPark:
        """The nearest with a free place; if no sign shows any, the nearest that has not said no itself."""
        left = [park for park in self.plan.by_distance() if park.name not in self.full]
        return next((park for park in left if park.name in self._signs and self._signs[park.name].free), left[0])

    async def _ask(self, client: Client, park: str) -> Answer:
        """Ask until there is an answer: always the same request, or it might get two places."""
        request = f"{self.plan.name} {park}"
        answer = self._answers.setdefault(request, asyncio.get_running_loop().create_future())
        while True:
            self.requests += 1
            await publish(
                client,
                f"parking/{park}/reserve",
                Request(self.plan.name),
                1,
                ResponseTopic=f"reply/{self.plan.name}",
                CorrelationData=request.encode(),
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(ASK_AGAIN):
                    return await asyncio.shield(answer)
