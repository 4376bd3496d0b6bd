"""What a long command does around its work: a bar or its figures on the terminal, and the same end for SIGTERM as for
Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.client import SetupError
from benchmarks.processes import StartError

P = TypeVar("P")


@contextlib.contextmanager
def progress_bar(console: Console, total: int) -> Iterator[Callable[[str], None]]:
    """Gives what is to be told of each of `total` steps before it begins."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    # Drawn once a second: the bar shares a processor with the generator.
    with Progress(*columns, console=console, refresh_per_second=1) as progress:
        task = progress.add_task("starting", total=total)
        started = False

        def show(what: str) -> None:
            nonlocal started
            progress.update(task, description=what, advance=1 if started else 0)
            started = True

        yield show
        progress.update(task, description="done", advance=1)


def shown(points: Iterable[P], headers: Sequence[str], cells: Callable[[P], Sequence[str]]) -> list[P]:
    """The figures, each printed as it comes, below these headers. Ends the program, with one line and status 1, if a
    broker fails."""
    found: list[P] = []
    print(*headers, sep="  ", flush=True)
    try:
        for point in points:
            found.append(point)
            print(*cells(point), sep="  ", flush=True)
    except (SetupError, StartError, EOFError, OSError) as error:
        sys.exit(f"failed after {len(found)} figures: {error}")
    return found


def _interrupted(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def interrupt_at_termination() -> None:
    """SIGTERM raises KeyboardInterrupt from now on."""
    signal.signal(signal.SIGTERM, _interrupted)
