"""The thread that writes: the only one that touches the storage once it is open."""

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


Later = Callable[[float, Callable[[], None]], None]
"""Runs an action after so many seconds (`saps.storage.commits.Driver.later`)."""


def later_on(loop: asyncio.AbstractEventLoop) -> Later:
    """By an event loop."""

    def later(delay: float, action: Callable[[], None]) -> None:
        if delay:
            loop.call_later(delay, action)
        else:
            loop.call_soon(action)

    return later


class Writer:
    """Writes batches for an event loop. (A `saps.storage.commits.Driver`.)"""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._loop = asyncio.get_running_loop()
        self.later = later_on(self._loop)
        self._work: SimpleQueue[tuple[Batch, Commits] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="storage", daemon=True)
        self._thread.start()

    def write(self, batch: Batch, commits: Commits) -> None:
        self._work.put((batch, commits))

    async def close(self, *all_commits: Commits, patience: float = 10.0) -> None:
        """Write what is left of these, within `patience` seconds, and close the file."""
        try:
            async with asyncio.timeout(patience):
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
                self._database.write(batch)
            except Exception as error:  # whatever it is, the broker stays up and says so
                full, reason = self._database.engine.fault(error)
                tell(commits.failed, full, f"{self._database.name}: {reason}")
            else:
                tell(commits.written, self._database.size)


async def _written(commits: Commits) -> None:
    """Waits until everything is on disk, late changes too."""
    while commits.pending or commits.journal:
        done = asyncio.Event()
        commits.hurry()
        commits.then(done.set)
        await done.wait()


class NoFile:
    """Writes nothing: other brokers alone have what is committed. (A `saps.storage.commits.Driver`.)"""

    def __init__(self, later: Later) -> None:
        self.later = later

    def write(self, batch: Batch, commits: Commits) -> None:
        commits.written(0)

    async def close(self, *all_commits: Commits) -> None:
        """There is nothing left to write."""
