"""What every example is as a program: its arguments, its time, Ctrl-C, what it shows meanwhile, its exit status.

Exit status: 0 if the application did what it is for; 1 if not, or if something failed on the way; 2 if it could not
start; 130 if it was interrupted: it ends in order all the same, and shows what it has. A second Ctrl-C cuts that short.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
from aiomqtt import MqttError
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from examples.common.drawing import Picture
from examples.smart_city.arguments import new_file, positive
from examples.smart_city.processes import BrokerError

LINE_INTERVAL = 2.0
"""Seconds between two status lines."""
LOOK = 0.01
"""Seconds between two looks at what is waited for."""
TIMEOUT = 60.0
"""Seconds for whatever must come, on a machine that is busy."""
AGAIN = 1.0
"""Seconds after which a task that has not ended is cancelled again."""


class Result(msgspec.Struct, kw_only=True):
    """What comes of a run; each example adds its own."""

    problems: list[str] = []
    """What is wrong, in words. None: the application did what it is for."""
    interrupted: bool = False


R = TypeVar("R", bound=Result)


class Program:
    """One run of an example: how long it lasts, what goes wrong, what is told."""

    def __init__(self, arguments: argparse.Namespace, console: Console) -> None:
        self.arguments = arguments
        self.troubles: list[str] = []
        """Brokers and devices that failed."""
        self.interrupted = False
        self.begun = asyncio.Event()
        """Set when the play begins."""
        self.curtain = asyncio.Event()
        """Set at the end of the play: its time is over, it was interrupted, or something failed."""
        self._console = console
        self._plain: bool = arguments.plain or not console.is_terminal
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long the play is to last."""
        return float(self.arguments.seconds)

    @property
    def elapsed(self) -> float:
        """Seconds since the play began; 0 before."""
        return time.monotonic() - self._began if self.begun.is_set() else 0.0

    def begin(self) -> None:
        """The play begins: its time counts from now."""
        self._began = time.monotonic()
        self.begun.set()

    async def beginning(self) -> None:
        """Wait for the beginning, or for an early end."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self.begun, self.curtain)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def until(self, share: float = 1.0) -> None:
        """Wait until this share of the play is over, or the curtain falls. At 1 it falls."""
        with suppress(TimeoutError):
            async with asyncio.timeout(share * self.seconds - self.elapsed):
                await self.curtain.wait()
        if share >= 1:
            self.curtain.set()

    async def ended_after(self, seconds: float) -> bool:
        """Wait so long. True as soon as the curtain has fallen."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.curtain.wait()
        return self.curtain.is_set()

    async def settled(self, true: Callable[[], bool]) -> bool:
        """Wait until it is true, for `TIMEOUT` seconds at most, and not any more when something has failed."""
        await settled(lambda: true() or bool(self.troubles))
        return true()

    def storage_fault(self, text: str) -> None:
        """Something failed that is needed: the play ends."""
        self.troubles.append(text)
        self.curtain.set()

    def interrupt(self) -> None:
        """End early and in order."""
        self.interrupted = True
        self.curtain.set()

    def tell(self, text: str) -> None:
        """Say a piece of news, on its own line."""
        self._console.print(Text(f"{self.elapsed:5.1f} s  {text}"), soft_wrap=True)

    @asynccontextmanager
    async def showing(self, line: Callable[[], str], screen: Callable[[], RenderableType]) -> AsyncIterator[None]:
        """Show the run inside the block: by `screen` in a terminal, else by a `line` now and then."""
        telling = asyncio.create_task(self._lines(line) if self._plain else self._live(screen))
        try:
            yield
        finally:
            telling.cancel()
            (outcome,) = await asyncio.gather(telling, return_exceptions=True)
            if isinstance(outcome, Exception):
                raise outcome

    async def _lines(self, line: Callable[[], str]) -> None:
        while True:
            await asyncio.sleep(LINE_INTERVAL)
            self.tell(line())

    async def _live(self, screen: Callable[[], RenderableType]) -> None:
        with Live(screen(), console=self._console, auto_refresh=False, transient=True) as live:
            while True:
                live.update(screen(), refresh=True)
                await asyncio.sleep(0.25)


class Crew:
    """Devices and services as tasks: one that fails is trouble; all end with the block."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._tasks: list[asyncio.Task[None]] = []
        self._ready: list[asyncio.Event] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for outcome in await dismiss(self._tasks):
            if isinstance(outcome, Exception) and error is None:
                raise outcome

    def ready(self) -> asyncio.Event:
        """A sign that someone must give before the play can begin."""
        self._ready.append(asyncio.Event())
        return self._ready[-1]

    async def all_ready(self) -> None:
        """Wait until all have given their signs, or for an early end. Too long a wait is trouble."""
        program = self._program
        if not await settled(lambda: all(sign.is_set() for sign in self._ready) or program.curtain.is_set()):
            program.storage_fault("not everybody was ready in time")

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have it work until it is done. A lost connection, or a wait in vain, is trouble; a fault ends the program."""

        async def guarded() -> None:
            try:
                await work
            except (MqttError, TimeoutError) as error:
                self._program.storage_fault(f"{name}: {str(error) or 'nothing came in time'}")
            except Exception:
                self._program.curtain.set()
                raise

        task = asyncio.create_task(guarded(), name=name)
        self._tasks.append(task)
        return task


async def dismiss(tasks: Collection[asyncio.Task[None]]) -> list[BaseException | None]:
    """Cancel them, and again those that have not ended: before Python 3.12 `asyncio.wait_for`, with which aiomqtt
    waits, may take a cancellation for itself. Returns what each has ended with."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def settled(true: Callable[[], bool], seconds: float = TIMEOUT) -> bool:
    """Wait until it is true; False if it is not after so many `seconds`."""
    since = time.monotonic()
    while not (found := true()) and time.monotonic() - since < seconds:  # noqa: ASYNC110  # the state of many things
        await asyncio.sleep(LOOK)
    return found


def arguments(name: str, description: str, seconds: float, seconds_help: str) -> argparse.ArgumentParser:
    """A parser with the options that all examples have; `seconds` is the default of how long the play lasts."""
    parser = argparse.ArgumentParser(
        prog=f"python -m examples.{name}",
        description=description,
        epilog=f"What it shows, and how to change it: examples/{name}/README.md. "
        "Exit status: 0 right, 1 something was wrong, 2 it could not start, 130 interrupted.",
    )
    parser.add_argument(
        "--seconds", type=positive, default=seconds, metavar="N", help=f"{seconds_help} (default: {seconds:g})"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of everything that is random (default: 1)")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the result there, too")
    parser.add_argument("--picture", type=new_file, metavar="FILE", help="draw the run there, as SVG")
    parser.add_argument("--plain", action="store_true", help="a line now and then instead of the live screen")
    return parser


def carry_out(
    given: argparse.Namespace,
    play: Callable[[Program], Awaitable[R]],
    render: Callable[[R], RenderableType],
    draw: Callable[[R], Picture],
) -> int:
    """Run an example: the play, then its result as a table, as JSON and as a picture. Gives the exit status."""
    return asyncio.run(_carry_out(given, play, render, draw))


async def _carry_out(
    given: argparse.Namespace,
    play: Callable[[Program], Awaitable[R]],
    render: Callable[[R], RenderableType],
    draw: Callable[[R], Picture],
) -> int:
    console = Console()
    program = Program(given, console)
    playing = asyncio.ensure_future(play(program))
    _heed_signals(program, playing)
    try:
        result = await playing
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 130 if program.interrupted else 2
    except asyncio.CancelledError:
        return 130
    result.problems[:0] = program.troubles
    result.interrupted = program.interrupted
    _conclude(result, given, console, render, draw)
    return 130 if program.interrupted else 1 if result.problems else 0


def _conclude(
    result: R,
    given: argparse.Namespace,
    console: Console,
    render: Callable[[R], RenderableType],
    draw: Callable[[R], Picture],
) -> None:
    lines = [Text(problem, "bold red") for problem in result.problems[:8]]
    if len(result.problems) > 8:
        lines.append(Text(f"... and {len(result.problems) - 8} more", "bold red"))
    if result.interrupted:
        lines.append(Text("Interrupted: this is what there is so far.", "yellow"))
    console.print(Group(render(result), *lines))
    if given.json is not None:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    if given.picture is not None:
        given.picture.write_text(draw(result).svg())


def _heed_signals(program: Program, playing: asyncio.Future[Any]) -> None:
    """The first signal ends the play early and in order, a second one cuts that short."""

    def interrupt() -> None:
        if program.interrupted:
            playing.cancel()
        program.interrupt()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)
