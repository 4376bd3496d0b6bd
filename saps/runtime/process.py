"""The frame of every program: the event loop, an orderly end at SIGTERM or SIGINT, orders on standard input and the
lines that answer them."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TypeVar

from saps.config import Address

try:
    from uvloop import new_event_loop
except ImportError:  # no uvloop on this platform
    from asyncio import new_event_loop  # type: ignore[assignment]

T = TypeVar("T")
_ENDING = (signal.SIGINT, signal.SIGTERM)


def run(program: Callable[[asyncio.Event], Coroutine[None, None, T]]) -> T:
    """Run a program and return its result. SIGTERM and SIGINT set the event that the program gets; it then ends in
    order."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_until_signalled(program))


async def _until_signalled(program: Callable[[asyncio.Event], Coroutine[None, None, T]]) -> T:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in _ENDING:
        loop.add_signal_handler(number, stop.set)
    result = await program(stop)
    for number in _ENDING:  # one more of them must not make an orderly end look like another
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    return result


async def started(starting: Coroutine[None, None, None], stop: asyncio.Event) -> bool:
    """Wait for the start. Returns False, and cancels the start, if `stop` comes first."""
    task, stopping = asyncio.ensure_future(starting), asyncio.ensure_future(stop.wait())
    await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not task.done():
        task.cancel()
        return False
    await task
    return True


async def to_the_end(work: Coroutine[None, None, None]) -> None:
    """Complete work that must not be left half done: a cancellation is raised only when the work has ended."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


async def orders() -> AsyncIterator[str]:
    """Yield the lines on standard input until its end. Yields none if it is closed or a file such as /dev/null under a
    service manager, for which uvloop would abort the process."""
    if sys.stdin is None or not _can_wait(sys.stdin.fileno()):
        return
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line.decode(errors="replace").strip()


def say(line: str) -> None:
    """Print a line at once and in one write, so that programs that share an output do not mix their lines. `print`
    writes the line and its end apart where the output is not buffered."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _can_wait(descriptor: int) -> bool:
    try:
        kind = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or os.isatty(descriptor)


def allow_many_files() -> None:
    """Raise the limit of open files to the hard limit, since each connection takes one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def refused(address: Address, error: OSError) -> str:
    """Return a line that says why a program cannot listen at an address."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"cannot listen on {address}: {reason}"


def calm_garbage_collector() -> None:
    """Fewer and shorter pauses for the collection of reference cycles.

    What has been loaded so far lives for ever, so it is not looked at again. Beyond that a young collection comes after
    50,000 more containers made than freed, instead of 700. The cost: up to that many dead ones linger if they form
    cycles (some MiB); messages in flight do not, they are freed by their reference counts.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
