"""The thread that writes: the only one that touches the storage file once it is open."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable
from queue import SimpleQueue

from saps.storage.commits import Commits
from saps.storage.driver.database import Database
from saps.storage.journal import Batch

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
        self.commits: Commits | None = None
        """Who is told how it went. To be set before the first batch."""
        self._database = database
        self._loop = asyncio.get_running_loop()
        self.later = later_on(self._loop)
        self.lanes: list[Commits] = []
        """Others that write to the same file."""
        self._work: SimpleQueue[tuple[Batch, Commits] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="storage", daemon=True)
        self._thread.start()

    def write(self, batch: Batch) -> None:
        assert self.commits is not None
        self.put(batch, self.commits)

    def put(self, batch: Batch, commits: Commits) -> None:
        """Write a batch of these commits."""
        self._work.put((batch, commits))

    async def close(self, patience: float = 10.0) -> None:
        """Write what is left, within `patience` seconds, and close the file."""
        assert self.commits is not None
        try:
            async with asyncio.timeout(patience):
                for commits in (self.commits, *self.lanes):
                    await _written(commits)
        except TimeoutError:
            logger.error("%s: could not write everything", self._database.path)
        self._work.put(None)
        await asyncio.to_thread(self._thread.join)
        self._database.close()

    def _run(self) -> None:
        tell = self._loop.call_soon_threadsafe
        while (work := self._work.get()) is not None:
            batch, commits = work
            try:
                self._database.write(batch)
            except Exception as error:  # whatever it is, the broker stays up and says so
                full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
                tell(commits.failed, full, f"{self._database.path}: {error}")
            else:
                tell(commits.written, self._database.size)


async def _written(commits: Commits) -> None:
    """Waits until everything is on disk, late changes too."""
    idle = asyncio.Event()
    commits.on_idle = idle.set
    while commits.pending or commits.journal:
        idle.clear()
        commits.hurry()
        await idle.wait()


class Lane:
    """Writes the batches of other commits to the same file. (A `saps.storage.commits.Driver`.)"""

    def __init__(self, writer: Writer) -> None:
        self.commits: Commits | None = None
        self._writer = writer
        self.later = writer.later

    def write(self, batch: Batch) -> None:
        assert self.commits is not None
        self._writer.put(batch, self.commits)


class NoFile:
    """Writes nothing: other brokers alone have what is committed. (A `saps.storage.commits.Driver`.)"""

    def __init__(self, later: Later) -> None:
        self.commits: Commits | None = None
        self.later = later

    def write(self, batch: Batch) -> None:
        assert self.commits is not None
        self.commits.written(0)

    async def close(self) -> None:
        """There is nothing left to write."""
