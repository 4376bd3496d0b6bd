"""Checks passwords in threads with a low priority. The number of running and waiting checks is bounded."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from saps.frontend.mqtt.access.users import Stored

logger = logging.getLogger(__name__)

ONE_HOST = 4
"""One host may take the queue's size divided by this number, so that an attacker leaves room for others."""


class ThreadedChecker:
    """Checks passwords in threads. (A `saps.frontend.mqtt.access.guard.PasswordChecker`.)

    `hashlib.scrypt` releases the interpreter's lock, so the event loop goes on.
    """

    def __init__(self, threads: int = 1, queue: int = 64) -> None:
        """Make a checker with `threads` threads and at most `queue` checks that wait or run."""
        self._queue = queue
        self._executor = ThreadPoolExecutor(threads, "password", initializer=_yield_to_others)
        self._waiting: Counter[str] = Counter()
        """By host: the number of accepted and unfinished checks."""
        self._total = 0
        """Number of accepted and unfinished checks."""

    def check(
        self, stored: Stored, password: bytes, host: str, wanted: Callable[[], bool], done: Callable[[bool], None]
    ) -> bool:
        if self._total >= self._queue or self._waiting[host] >= max(1, self._queue // ONE_HOST):
            return False
        self._total += 1
        self._waiting[host] += 1
        job = asyncio.get_running_loop().run_in_executor(self._executor, _check, stored, password, wanted)
        job.add_done_callback(lambda job: self._finish(job, host, done))
        return True

    async def close(self) -> None:
        """Drop the waiting checks, and wait for the running checks to end."""
        await asyncio.to_thread(self._executor.shutdown, wait=True, cancel_futures=True)

    def _finish(self, job: asyncio.Future[bool], host: str, done: Callable[[bool], None]) -> None:
        self._total -= 1
        self._waiting[host] -= 1
        if not self._waiting[host]:
            del self._waiting[host]
        if job.cancelled():
            return
        error = job.exception()
        if error is not None:
            logger.error("a password could not be checked: %s", error)
        done(error is None and job.result())


def _check(stored: Stored, password: bytes, wanted: Callable[[], bool]) -> bool:
    return wanted() and stored.matches(password)


def _yield_to_others() -> None:
    """Lower the priority of this thread below the event loop's. Only Linux has a priority for each thread."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, 10)
