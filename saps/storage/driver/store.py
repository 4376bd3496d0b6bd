"""The storage of one broker: the content left by its earlier incarnation, and the journal and commits of this one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from saps.storage.commits import Commits
from saps.storage.driver.writer import NoFile, Writer, later_on
from saps.storage.error import StorageFault
from saps.storage.journal import Journal
from saps.storage.place import Server
from saps.storage.saved import Saved

if TYPE_CHECKING:
    from saps.storage.driver.database import Database
    from saps.storage.driver.files import Sync


class Store:
    """An open storage. Without a file or database, only other brokers store the broker's changes. To be made within an
    event loop; `close` must be awaited at the end."""

    def __init__(
        self,
        place: Path | Server | None,
        sync: Sync,
        maximum_size: int = 0,
        with_wills: bool = True,
        on_backlog: Callable[[bool], None] = lambda behind: None,
    ) -> None:
        """Open the storage and load its content into `saved`.

        - `place`: a file or a database; None for neither.
        - `maximum_size`: bytes in use beyond which the storage accepts nothing new; 0 for no limit.
        - `with_wills`: whether the stored wills may still be published here, as no other broker has done so.
        - `on_backlog`: called with True when publishers must be held back, with False when not any more.

        Raises `StorageError`; its subclass `DamagedError` lists what is lost. Damaged records that could be named are
        in `saved.damaged` (`saps.storage.damage`).
        """
        self.name = ""
        """The storage's name in messages; empty without a place."""
        self.with_wills = with_wills
        self.journal = Journal()
        self.on_storage_fault: list[Callable[[StorageFault | None], None]] = []
        """Callbacks called with the fault when the storage accepts nothing new, and with None when it does again."""
        self.quarantined = 0
        """Damaged records in the quarantine, from this start and earlier ones."""
        self.missing = 0
        """Transactions that other brokers remember and this storage lacks (`saps.storage.witness`)."""
        self.saved = Saved()
        self._database: Database | None = None
        self._writer: Writer | NoFile
        if place is None:
            self.journal.disk = False
            self.journal.epoch = time.time() - time.monotonic()
            self._writer = NoFile(later_on(asyncio.get_running_loop()))
        else:
            self._writer = Writer(self._open(place, sync))
        self.held = Journal()
        """Journal of the copies of other brokers' sessions. Its commits wait for no other broker, as two brokers may
        hold each other's copies."""
        self.held_commits = Commits(self.held, self._writer) if isinstance(self._writer, Writer) else None
        """The commits of `held`; None without a place."""
        self.commits = Commits(self.journal, self._writer, maximum_size, self._tell, on_backlog)

    def _open(self, place: Path | Server, sync: Sync) -> Database:
        from saps.storage.driver.database import Database  # imported late: a broker without storage needs no SQLite

        database = Database(place, sync)
        try:
            self.saved = database.load()
        except BaseException:
            database.close()
            raise
        self.name, self.quarantined = database.name, database.quarantined
        self.journal.epoch = database.epoch
        self._database = database
        return database

    @property
    def identity(self) -> bytes:
        """Identity of the storage, shared only by its copies. The storage must have a place."""
        assert self._database is not None
        return self._database.state.store

    @property
    def number(self) -> int:
        """Number of the last transaction. The storage must have a place."""
        assert self._database is not None
        return self._database.state.number

    def flush_first(self, flush: Callable[[], None]) -> None:
        """Have each commit call `flush` first, in the storage's thread (`Journal.outside`). It may raise `OSError`."""
        assert isinstance(self._writer, Writer)
        self._writer.flush_first(flush)

    def _tell(self, storage_fault: StorageFault | None) -> None:
        for told in self.on_storage_fault:
            told(storage_fault)

    async def close(self) -> None:
        """Write all changes that are left and close the storage."""
        held = () if self.held_commits is None else (self.held_commits,)
        await self._writer.close(self.commits, *held)
