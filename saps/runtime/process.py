"""What every program does around its work: the event loop, an orderly end at SIGTERM or SIGINT, an address refused."""

from __future__ import annotations

import asyncio
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
    """Run a program. It gets the event that SIGTERM and SIGINT set, and ends in order; its result is returned."""
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
    """Wait for the start. False if `stop` came first: then the start has been cancelled."""
    task, stopping = asyncio.ensure_future(starting), asyncio.ensure_future(stop.wait())
    await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not task.done():
        task.cancel()
        return False
    await task
    return True


async def to_the_end(work: Coroutine[None, None, None]) -> None:
    """Do what must not stay half done: if it is cancelled it is done all the same, and then that is told."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


async def orders() -> AsyncIterator[str]:
    """The lines on standard input, to its end; none if it is closed, or nothing that can be waited for: a file, or
    /dev/null as under a service manager, at which uvloop would abort the process."""
    if sys.stdin is None or not _can_wait(sys.stdin.fileno()):
        return
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line.decode(errors="replace").strip()


def _can_wait(descriptor: int) -> bool:
    try:
        kind = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or os.isatty(descriptor)


def allow_many_files() -> None:
    """Raise the limit of open files as far as the system lets this process: each connection takes one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def refused(address: Address, error: OSError) -> str:
    """Why a program cannot listen at an address, in a line."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"cannot listen on {address}: {reason}"
