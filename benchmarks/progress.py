"""What a long command does around its work: a bar on the terminal, and the same end for SIGTERM as for Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import NoReturn

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


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


def _interrupted(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def interrupt_at_termination() -> None:
    """SIGTERM raises KeyboardInterrupt from now on."""
    signal.signal(signal.SIGTERM, _interrupted)
