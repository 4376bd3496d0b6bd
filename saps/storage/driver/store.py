"""The storage of one broker: what an earlier life left, and the journal and commits of this one."""

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
    """An open storage, or none: then other brokers alone have what is stored. To be made within an event loop."""

    def __init__(
        self,
        place: Path | Server | None,
        sync: Sync,
        maximum_size: int = 0,
        with_wills: bool = True,
        on_backlog: Callable[[bool], None] = lambda behind: None,
    ) -> None:
        """`place`: a file or a database. `maximum_size`: bytes in it beyond which nothing new is taken; 0: any.
        `with_wills`: nobody else has published the wills that are stored. `on_backlog`: publishers are to be held
        back, or not any more.

        Raises `StorageError`; a `DamagedError` lists what is lost. Damaged records that could be named are in
        `saved.damaged` (`saps.storage.damage`).
        """
        self.name = ""
        """What it is called in messages."""
        self.with_wills = with_wills
        self.journal = Journal()
        self.on_storage_fault: list[Callable[[StorageFault | None], None]] = []
        """Who is told when nothing new can be stored, and with None when it can again."""
        self.quarantined = 0
        """Damaged records that are kept aside, from this start and earlier ones."""
        self.missing = 0
        """Transactions that other brokers remember and it lacks (`saps.storage.witness`)."""
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
        """Copies of other brokers' sessions, which wait for nobody else: two brokers may hold each other's."""
        self.held_commits = Commits(self.held, self._writer) if isinstance(self._writer, Writer) else None
        """Their commits; None without a file."""
        self.commits = Commits(self.journal, self._writer, maximum_size, self._tell, on_backlog)

    def _open(self, place: Path | Server, sync: Sync) -> Database:
        from saps.storage.driver.database import Database  # here: a broker without storage needs no SQLite

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
        """Which store it is: no other one has it, but its copies."""
        assert self._database is not None
        return self._database.state.store

    @property
    def number(self) -> int:
        """Its last transaction."""
        assert self._database is not None
        return self._database.state.number

    def _tell(self, storage_fault: StorageFault | None) -> None:
        for told in self.on_storage_fault:
            told(storage_fault)

    async def close(self) -> None:
        """Write what is left and close the file."""
        held = () if self.held_commits is None else (self.held_commits,)
        await self._writer.close(self.commits, *held)
