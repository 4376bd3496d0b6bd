"""Who speaks when: alerts all the time, the same words on an ordinary topic, and cameras in the middle of the play."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress

import msgspec
from aiomqtt import Client, MqttError

from examples.common.clients import connected, publish, read
from examples.common.program import Crew, Program, settled
from examples.emergency.result import HERE, THERE, TOPICS, Arrival, Emergency
from examples.emergency.worlds import World

INTERVAL = 0.25
"""Seconds between two alerts."""


class Words(msgspec.Struct):
    """An alert."""

    number: int
    due: float
    """When it was given (`time.monotonic`): not when the broker had time for it."""


class Play:
    """One run. `perform` does it all."""

    def __init__(self, program: Program, world: World) -> None:
        self._program, self._world = program, world
        self._arrivals: list[Arrival] = []
        self._given = dict.fromkeys(TOPICS, 0)
        self._pictures = 0
        self._filming = True
        self._archived = 0

    async def perform(self) -> Emergency:
        """Play it. Raises `LabError` or `BrokerError` if it cannot begin."""
        program = self._program
        async with self._world.open(program) as doors, AsyncExitStack() as stack, Crew(program) as crew:
            for city in (HERE, THERE):
                siren = await stack.enter_async_context(connected(f"siren-{city}", doors.sirens[city]))
                await siren.subscribe([("alert/#", 0), ("notice/#", 0)])
                crew.start(f"siren-{city}", self._listen(city, siren))
            archive = await stack.enter_async_context(connected("archive", doors.archive))
            await archive.subscribe("camera/#")
            crew.start("archive", self._keep(archive))
            trees = await self._world.by_trees([TOPICS[True]])
            # A client of its own for each: one that publishes nothing but alerts is never held back.
            voices = [
                (priority, await stack.enter_async_context(connected(name, doors.centre)))
                for priority, name in ((True, "centre-alerts"), (False, "centre-notices"))
            ]
            camera = await stack.enter_async_context(connected("camera", doors.cameras))
            program.begin()
            speaking = [crew.start(TOPICS[priority], self._speak(priority, client)) for priority, client in voices]
            async with program.showing(self._line, self._line):
                await program.until(1 / 3)
                before, began = self._world.across(), program.elapsed
                filling = crew.start("cameras", self._film(camera))
                await program.until(2 / 3)
                self._filming = False
                filling.cancel()
                over, ended = self._world.across(), program.elapsed
                await program.until()
                await asyncio.gather(*speaking, return_exceptions=True)
                await settled(lambda: len(self._arrivals) >= 2 * sum(self._given.values()))
        megabits = None if before is None or over is None else (over - before) * 8e-6 / max(ended - began, 1e-9)
        return Emergency(
            world=self._world.words,
            trees=trees,
            given=(self._given[True], self._given[False]),
            arrivals=self._arrivals,
            load=(began, ended),
            pictures=self._pictures,
            archived=self._archived,
            megabits=megabits,
        ).judged()

    def _line(self) -> str:
        last = {arrival.priority: arrival.late for arrival in self._arrivals if arrival.city == THERE}
        told = ", ".join(
            f"{'alert' if priority else 'notice'} {1000 * late:.0f} ms"
            for priority, late in sorted(last.items(), reverse=True)
        )
        return f"{self._pictures} pictures sent; last in {THERE}: {told or 'nothing yet'}"

    async def _speak(self, priority: bool, client: Client) -> None:
        """The same words, at the same times, with and without priority."""
        program = self._program
        for number in range(1, round(program.seconds / INTERVAL)):
            await program.ended_after(INTERVAL * number - program.elapsed)
            if program.interrupted or program.troubles:
                return
            words = Words(number, time.monotonic() - max(0.0, program.elapsed - INTERVAL * number))
            with suppress(MqttError):  # as above; what has been lost is found at the end
                await publish(client, TOPICS[priority], words)
            self._given[priority] = number

    async def _listen(self, city: str, siren: Client) -> None:
        async for message in siren.messages:
            words = read(message, Words)
            late = time.monotonic() - words.due
            self._arrivals.append(
                Arrival(city, message.topic.value == TOPICS[True], words.number, INTERVAL * words.number, late)
            )

    async def _keep(self, archive: Client) -> None:
        async for _ in archive.messages:
            self._archived += 1

    async def _film(self, camera: Client) -> None:
        """Pictures, faster than they can be carried."""
        size, rate = self._world.cameras
        due, picture = time.monotonic(), bytes(size)
        while self._filming:
            with suppress(MqttError):  # it is held back for longer than a client usually waits
                await camera.publish("camera/crossing", picture)
            self._pictures += 1
            due = max(due + 1 / rate, time.monotonic() - 0.1)  # what was missed for longer is not made up for
            await asyncio.sleep(max(0.0, due - time.monotonic()))
