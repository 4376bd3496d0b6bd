"""What every program does around its work: the event loop, an orderly end at SIGTERM or SIGINT, an address refused."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Callable, Coroutine
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


def allow_many_files() -> None:
    """Raise the limit of open files as far as the system lets this process: each connection takes one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def refused(address: Address, error: OSError) -> str:
    """Why a program cannot listen at an address, in a line."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"cannot listen on {address}: {reason}"
