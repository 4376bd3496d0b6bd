"""The storage of one broker: what an earlier life left, and the journal and commits of this one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from saps.storage.commits import Commits
from saps.storage.database import Database, Sync
from saps.storage.journal import Journal
from saps.storage.saved import Saved
from saps.storage.trouble import Trouble
from saps.storage.writer import Writer


class Store:
    """An open storage file. To be made within an event loop."""

    def __init__(
        self,
        path: Path,
        sync: Sync,
        maximum_size: int = 0,
        with_wills: bool = True,
        on_backlog: Callable[[bool], None] = lambda behind: None,
    ) -> None:
        """`maximum_size`: bytes of the file beyond which nothing new is taken; 0: any. `with_wills`: nobody else has
        published the wills that are stored. `on_backlog`: publishers are to be held back, or not any more.

        Raises `StorageError`.
        """
        database = Database(path, sync)
        try:
            self.saved: Saved = database.load()
        except BaseException:
            database.close()
            raise
        self.with_wills = with_wills
        self.journal = Journal()
        self.on_trouble: list[Callable[[Trouble | None], None]] = []
        """Who is told when nothing new can be stored, and with None when it can again."""
        self._writer = Writer(database)
        self.commits = self._writer.commits = Commits(self.journal, self._writer, maximum_size, self._tell, on_backlog)

    def _tell(self, trouble: Trouble | None) -> None:
        for told in self.on_trouble:
            told(trouble)

    async def close(self) -> None:
        """Write what is left and close the file."""
        await self._writer.close()
