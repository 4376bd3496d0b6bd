"""`python -m examples.parking`: drivers reserve places at four brokers, one of which is killed on the way.

At the end what the drivers were told is compared with the ledger, and what every living broker and a Web page show
with both.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path

import aiohttp

from examples.common.mesh import Mesh
from examples.common.program import TIMEOUT, Crew, Program, arguments, carry_out
from examples.parking.check import faults, signs
from examples.parking.desk import Driver, Sign, Worker
from examples.parking.ledger import Ledger, found
from examples.parking.picture import Outcome, board, draw, render
from examples.parking.town import PARKS, drivers
from examples.parking.web import WebPage, retained

CLUSTERS = ("centre", "centre", "harbour", "harbour")
WORKERS = 4
KILLED_AT = 0.4
"""As a share of the run."""


def parser() -> ArgumentParser:
    """The command's options."""
    given = arguments(
        "parking",
        "Drivers look at retained counts of free places and reserve by request and response; workers take the requests "
        "in turns. A broker is killed on the way. No place may be sold twice.",
        15,
        "how long drivers come",
    )
    given.add_argument(
        "--kill", choices=("b2", "b3", "b4", "none"), default="b3", help="the broker that is killed (default: b3)"
    )
    return given


async def play(program: Program) -> Outcome:
    """The mesh, the desk, the drivers; then the check."""
    with tempfile.TemporaryDirectory(prefix="saps-parking-") as folder:
        file = Path(folder) / "ledger.sqlite"
        found(file, PARKS)
        ledgers = [Ledger(file) for _ in range(WORKERS + 1)]
        try:
            async with Mesh(program, CLUSTERS, web=True) as mesh, Crew(program) as crew:
                return await Desk(program, mesh, crew, ledgers).open()
        finally:
            for ledger in ledgers:
                ledger.close()


class Desk:
    """One run on a mesh that is up."""

    def __init__(self, program: Program, mesh: Mesh, crew: Crew, ledgers: list[Ledger]) -> None:
        self.program, self.mesh, self.crew = program, mesh, crew
        self.ledger = ledgers[-1]
        self.page = WebPage(lambda: program.elapsed)
        self.workers = [Worker(f"worker-{n}", ledger) for n, ledger in enumerate(ledgers[:-1], 1)]
        self.drivers = [Driver(plan) for plan in drivers(program.arguments.seed)]
        self.killed: tuple[str, float] | None = None

    def brokers(self, first: int) -> list[tuple[str, int]]:
        """A device's list of brokers: its own, then the others."""
        names = self.mesh.names
        return [self.mesh.addresses[names[(first + n) % len(names)]] for n in range(len(names))]

    async def open(self) -> Outcome:
        """Open the desk, let the drivers come, check."""
        program, crew = self.program, self.crew
        for n, park in enumerate(PARKS):
            crew.start(f"sign of {park.name}", Sign(park, self.ledger).work(self.brokers(n), crew.ready()))
        for n, worker in enumerate(self.workers):
            crew.start(worker.name, worker.work(self.brokers(n), crew.ready()))
        crew.start("Web page", self._show(crew.ready()))
        await crew.all_ready()
        program.begin()
        coming = [crew.start(d.plan.name, d.work(program, self.brokers(n))) for n, d in enumerate(self.drivers)]
        async with program.showing(self._line, lambda: board(self.page)):
            await self._kill()
            await program.until()
            await program.settled(lambda: all(each.done() for each in coming))
            return await self._outcome()

    async def _show(self, ready: asyncio.Event) -> None:
        try:
            await self.page.follow(self.mesh.webs["b1"], ready)
        except aiohttp.ClientError as error:
            self.program.storage_fault(f"Web page: {error}")

    async def _kill(self) -> None:
        """The power cut."""
        name = self.program.arguments.kill
        await self.program.until(KILLED_AT)
        if name != "none" and not self.program.curtain.is_set():
            await self.mesh.kill(name)
            self.killed = name, round(self.program.elapsed, 2)
            self.program.tell(f"broker {name} was killed")

    async def _outcome(self) -> Outcome:
        problems = list(faults(self.drivers, self.ledger.taken()))
        if not self.program.interrupted:
            await self.program.settled(lambda: not self._wrong_on_page())
            problems += [*self._wrong_on_page(), *await self._wrong_signs()]
        return Outcome(
            seconds=self.program.seconds,
            drivers=sum(driver.began for driver in self.drivers),
            parked=sum(driver.answer is not None for driver in self.drivers),
            refused=sum(driver.done and driver.answer is None for driver in self.drivers),
            requests=sum(driver.requests for driver in self.drivers),
            repeated=sum(worker.repeated for worker in self.workers),
            by_worker={worker.name: worker.answered for worker in self.workers},
            killed=self.killed[0] if self.killed else None,
            killed_at=self.killed[1] if self.killed else None,
            seen=self.page.seen,
            problems=problems,
        )

    async def _wrong_signs(self) -> list[str]:
        """What the living brokers say of the signs, when it is right or a while has passed."""
        living = [self.mesh.webs[name] for name in self.mesh.names if self.mesh.alive(name)]
        timeout = time.monotonic() + TIMEOUT
        while not self.program.troubles:
            wrong = list(signs(self.ledger.taken(), await retained(living, PARKS)))
            if not wrong or time.monotonic() > timeout:
                return wrong
        return []

    def _wrong_on_page(self) -> list[str]:
        return list(signs(self.ledger.taken(), {("the Web page", park.name): self.page.free(park) for park in PARKS}))

    def _line(self) -> str:
        free = ", ".join(f"{park.name} {self.page.free(park)}" for park in PARKS)
        parked = sum(driver.answer is not None for driver in self.drivers)
        return f"{parked} parked; free: {free}"


def main() -> None:
    """The entry point of the command."""
    sys.exit(carry_out(parser().parse_args(), play, render, draw))


if __name__ == "__main__":
    main()
