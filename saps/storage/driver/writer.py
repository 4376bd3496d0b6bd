"""The writer thread: the only thread that uses the storage once it is open."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from saps.storage.commits import Commits
from saps.storage.journal import Batch

if TYPE_CHECKING:
    from saps.storage.driver.database import Database

logger = logging.getLogger(__name__)


CLOSE_TIMEOUT = 10.0
"""Seconds to write what is left at the end."""

Later = Callable[[float, Callable[[], None]], None]
"""Runs an action after a delay in seconds (`saps.storage.commits.Driver.later`)."""


def later_on(loop: asyncio.AbstractEventLoop) -> Later:
    """Return a `Later` that runs actions in an event loop."""

    def later(delay: float, action: Callable[[], None]) -> None:
        if delay:
            loop.call_later(delay, action)
        else:
            loop.call_soon(action)

    return later


class Writer:
    """Writes batches in a thread and reports to an event loop. (A `saps.storage.commits.Driver`.)"""

    def __init__(self, database: Database) -> None:
        """Start the thread. To be called within the event loop. The writer owns `database` now, and closes it."""
        self._database = database
        self._loop = asyncio.get_running_loop()
        self.later = later_on(self._loop)
        self._flush: Callable[[], None] = lambda: None
        self._work: SimpleQueue[tuple[Batch, Commits] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="storage", daemon=True)
        self._thread.start()

    def write(self, batch: Batch, commits: Commits) -> None:
        self._work.put((batch, commits))

    def flush_first(self, flush: Callable[[], None]) -> None:
        """Call `flush` before each batch is written, in the thread. It flushes files beside the storage."""
        self._flush = flush

    async def close(self, *all_commits: Commits) -> None:
        """Write all that is left in the journals of `all_commits`, then end the thread and close the storage. After
        `CLOSE_TIMEOUT` seconds it logs an error and closes without the rest."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                for commits in all_commits:
                    await _written(commits)
        except TimeoutError:
            logger.error("%s: could not write everything", self._database.name)
        self._work.put(None)
        await asyncio.to_thread(self._thread.join)
        self._database.close()

    def _run(self) -> None:
        tell, engine = self._loop.call_soon_threadsafe, self._database.engine
        while True:
            try:
                work = self._work.get(timeout=engine.rest)
            except Empty:
                engine.keep()
                continue
            if work is None:
                return
            batch, commits = work
            try:
                self._flush()
                if batch:
                    self._database.write(batch)
            except Exception as error:  # any error: the broker stays up and reports it
                full, reason = self._database.engine.fault(error)
                tell(commits.failed, full, f"{self._database.name}: {reason}")
            else:
                tell(commits.written, self._database.size)


async def _written(commits: Commits) -> None:
    """Wait until all changes are on disk, including late ones."""
    while commits.pending or commits.journal:
        done = asyncio.Event()
        commits.hurry()
        commits.then(done.set)
        await done.wait()


class NoFile:
    """Writes nothing: only other brokers store this broker's changes. (A `saps.storage.commits.Driver`.)"""

    def __init__(self, later: Later) -> None:
        self.later = later

    def write(self, batch: Batch, commits: Commits) -> None:
        commits.written(0)

    async def close(self, *all_commits: Commits) -> None:
        """Do nothing: nothing is left to write."""
