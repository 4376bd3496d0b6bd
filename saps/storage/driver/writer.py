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


class Writer:
    """Writes batches for an event loop. (A `saps.storage.commits.Driver`.)"""

    def __init__(self, database: Database) -> None:
        self.commits: Commits | None = None
        """Who is told how it went. To be set before the first batch."""
        self._database = database
        self._loop = asyncio.get_running_loop()
        self._work: SimpleQueue[tuple[Batch, Commits] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="storage", daemon=True)
        self._thread.start()

    def write(self, batch: Batch) -> None:
        assert self.commits is not None
        self.put(batch, self.commits)

    def put(self, batch: Batch, commits: Commits) -> None:
        """Write a batch of these commits."""
        self._work.put((batch, commits))

    def later(self, delay: float, action: Callable[[], None]) -> None:
        if delay:
            self._loop.call_later(delay, action)
        else:
            self._loop.call_soon(action)

    async def close(self, patience: float = 10.0) -> None:
        """Write what is left, within `patience` seconds, and close the file."""
        commits, idle = self.commits, asyncio.Event()
        assert commits is not None
        commits.on_idle = idle.set
        try:
            async with asyncio.timeout(patience):
                while commits.pending or commits.journal:
                    idle.clear()
                    commits.hurry()
                    await idle.wait()
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

    def __init__(self) -> None:
        self.commits: Commits | None = None
        self._loop = asyncio.get_running_loop()

    def write(self, batch: Batch) -> None:
        assert self.commits is not None
        self.commits.written(0)

    def later(self, delay: float, action: Callable[[], None]) -> None:
        if delay:
            self._loop.call_later(delay, action)
        else:
            self._loop.call_soon(action)

    async def close(self) -> None:
        """There is nothing left to write."""
