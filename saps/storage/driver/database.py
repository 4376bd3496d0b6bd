"""The records of one broker in an engine: loaded once, then written a transaction at a time.

Each record has a checksum (`saps.storage.records`), each transaction a number and the totals of all records. What is
damaged is named and set aside; what is missing stops the start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from saps.storage.damage import DamagedError, StorageError
from saps.storage.driver import reading
from saps.storage.driver.clock import Moment, jump, moment
from saps.storage.driver.engine import Aside, Change, Engine
from saps.storage.driver.files import StorageFile, Sync
from saps.storage.journal import Batch, Table
from saps.storage.place import Server
from saps.storage.records import State
from saps.storage.saved import Saved

logger = logging.getLogger(__name__)

NAMED = 20
"""Damaged records that are named in the log; ``saps storage verify`` names all."""


class Database:
    """The open storage of one broker. Used by one thread at a time."""

    def __init__(self, place: Path | Server, sync: Sync, now: Callable[[], Moment] = moment) -> None:
        """Open the storage, or make it. Raises `DamagedError` if acknowledged transactions are missing, `StorageError`
        if it is in use, of another kind, or cannot be reached; then nothing has been changed."""
        self.opened = now()
        self.epoch = self.opened.wall - time.monotonic()
        """Seconds since the epoch at moment 0 of the monotonic clock. All that is stored goes by it, whatever
        becomes of the wall clock meanwhile."""
        self.engine = _engine(place, sync, self.opened)
        self.state, self._then = self.engine.state, self.engine.then
        self._place = place
        self.name = self.engine.name
        self._sums: dict[Table, dict[Any, int]] = {}
        """Of each record, its checksum; empty until `load`."""
        self._doubt: tuple[State, list[Change]] | None = None
        """The last transaction, if it is not known whether the engine has it."""
        self.quarantined = 0
        """Records that have been set aside, now and earlier."""

    @property
    def size(self) -> int:
        """Bytes in use, since the last transaction."""
        return self.engine.size

    def close(self) -> None:
        """Close it, in order."""
        self.engine.close(self._now())

    def load(self) -> Saved:
        """All that is stored and sound. Damaged records are named, logged and set aside. If the machine's clock has
        jumped since the last transaction, what ends at a time has been moved by that, in the engine, too.

        Raises `DamagedError` if records may be missing that cannot be named.
        """
        with self.engine.told():
            with self.engine.records() as records:
                reader = reading.Reader(records)
                reader.read()
            if reader.lost:
                raise DamagedError(self._place, reader.lost)
            self._sums = reader.sums
            if reader.saved.damaged:
                self._set_aside(reader)
            self.quarantined = len(reader.quarantine) + len(reader.set_aside)
            if jumped := jump(self._then, self.opened):
                logger.warning(
                    "%s: the clock says %s, last written %s: it has jumped by %.0f s; nothing expires by that",
                    *(self.name, self.opened.text, self._then.text, jumped),
                )
                reader.saved.move(jumped)
                self.write(reader.saved.timed())
                self._then = self.opened
        return reader.saved

    def write(self, batch: Batch) -> None:
        """Write all changes in one transaction, or none of them. Raises what the engine does (`Engine.fault`); then
        either may be, until the next one, which may repeat what has been written."""
        if self._doubt is not None:
            self._find_out(*self._doubt)
        if not self._sums:
            self.load()
        totals, changes = dict(self.state.totals), []
        for table, rows in batch.items():
            change, name = Change(table, rows, self._sums[table]), table.value
            count, total = totals.get(name, (0, 0))
            totals[name] = count + change.count, total + change.total
            changes.append(change)
        self._commit(State(self.state.store, self.state.number + 1, totals), changes)

    def _commit(self, state: State, changes: list[Change], aside: list[Aside] | None = None) -> None:
        self._doubt = state, changes
        self.engine.commit(state, changes, self._now(), aside or ())
        self._done(state, changes)

    def _find_out(self, state: State, changes: list[Change]) -> None:
        if self.engine.reached() == state.number:
            self._done(state, changes)
        self._doubt = None

    def _done(self, state: State, changes: list[Change]) -> None:
        self.state, self._doubt = state, None
        for change in changes:
            change.done()

    def _now(self) -> Moment:
        return moment(self.epoch + time.monotonic())

    def _set_aside(self, reader: reading.Reader) -> None:
        """Damaged records leave their tables for the quarantine."""
        damaged, totals = reader.saved.damaged, dict(self.state.totals)
        for named in damaged[:NAMED]:
            logger.error("%s: damaged and set aside: %s", self.name, named)
        if len(damaged) > NAMED:
            logger.error("%s: %d more damaged records were set aside", self.name, len(damaged) - NAMED)
        for table, sums in reader.sums.items():
            totals[table.value] = len(sums), sum(sums.values())
        pairs = zip(damaged, reader.set_aside, strict=True)
        aside = [Aside(named.table, row, str(named)) for named, row in pairs]
        self._commit(State(self.state.store, self.state.number + 1, totals), [], aside)


def _engine(place: Path | Server, sync: Sync, now: Moment) -> Engine:
    if isinstance(place, Path):
        return StorageFile(place, sync, now)
    with needing_psycopg():
        from saps.storage.driver.postgresql import PostgreSQL  # here: most brokers need none of it
    return PostgreSQL(place, sync, now)


@contextmanager
def needing_psycopg() -> Iterator[None]:
    """Around an import that needs the library. Raises `StorageError` without it."""
    try:
        yield
    except ImportError:
        raise StorageError("a database needs psycopg: install saps[postgresql]") from None
