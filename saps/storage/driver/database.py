"""Loads one broker's records from an engine, then writes them one transaction at a time.

Each record has a checksum (`saps.storage.records`); each transaction has a number and the totals of all records.
Damaged records are named and set aside; missing records stop the start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from saps.storage.damage import DamagedError, StorageError
from saps.storage.driver import reading
from saps.storage.driver.clock import Moment, jump, moment
from saps.storage.driver.engine import Aside, Change, Engine
from saps.storage.driver.files import StorageFile, Sync
from saps.storage.driver.log import Log, Written
from saps.storage.journal import Batch, Table
from saps.storage.place import Server
from saps.storage.records import State
from saps.storage.saved import Saved

logger = logging.getLogger(__name__)

NAMED = 20
"""Most damaged records that the log names; ``saps storage verify`` names all."""


class _Transaction(NamedTuple):
    state: State
    """The storage's state after it."""
    changes: list[Change]
    written: Written | None = None
    """What it does to the log; None at the start, when it ends the log."""


class Database:
    """The open storage of one broker, for one thread at a time."""

    def __init__(self, place: Path | Server, sync: Sync, now: Callable[[], Moment] = moment) -> None:
        """Open the storage, or make it. Raises `DamagedError` if acknowledged transactions are missing, `StorageError`
        if the storage is in use, has another format, or cannot be reached. In both cases nothing has been changed."""
        self.opened = now()
        self.epoch = self.opened.wall - time.monotonic()
        """Seconds since the epoch at time 0 of the monotonic clock. All stored times are relative to it, so that later
        jumps of the wall clock do not matter."""
        self.engine = _engine(place, sync, self.opened)
        self.state, self._then = self.engine.state, self.engine.then
        self._place = place
        self.name = self.engine.name
        self._sums: dict[Table, dict[Any, int]] = {}
        """Checksum of each record, by table and key; empty until `load`."""
        self._doubt: _Transaction | None = None
        """The last transaction, while it is unknown whether the engine has it."""
        self._log = Log()
        self.quarantined = 0
        """Records in the quarantine, from this start and earlier ones."""

    @property
    def size(self) -> int:
        """Bytes in use after the last transaction."""
        return self.engine.size

    def close(self) -> None:
        """Close the storage in order."""
        self.engine.close(self._now())

    def load(self) -> Saved:
        """Return all intact records. Logs damaged records and sets them aside. If the machine's clock has jumped since
        the last transaction, shifts the ends of sessions, wills and messages by the jump, in the engine as well.

        Raises `DamagedError` if records may be missing that cannot be named, `StorageError` if the engine fails.
        """
        with self.engine.told():
            with self.engine.records() as records:
                reader = reading.Reader(records)
                reader.read()
            if reader.lost:
                raise DamagedError(self._place, reader.lost)
            self._sums = reader.sums
            if reader.saved.damaged or reader.sums[Table.LOG]:
                self._begin(reader)
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
        """Write all changes in one transaction, or none of them. Raises the engine's errors (`Engine.fault` explains
        them). After an error, it is unknown until the next call whether the batch was written; that call may repeat
        its changes."""
        if self._doubt is not None:
            self._find_out(self._doubt)
        if not self._sums:
            self.load()
        written = self._log.written(batch, self.state.number + 1, self._sums)
        self._commit(self._transaction(written.batch, dict(self.state.totals), written))

    def _transaction(
        self, batch: Batch, totals: dict[str, tuple[int, int]], written: Written | None = None
    ) -> _Transaction:
        """Return the next transaction, with these changes to the tables. `totals`: those before it."""
        changes = []
        for table, rows in batch.items():
            change, name = Change(table, rows, self._sums[table]), table.value
            count, total = totals.get(name, (0, 0))
            totals[name] = count + change.count, total + change.total
            changes.append(change)
        return _Transaction(State(self.state.store, self.state.number + 1, totals), changes, written)

    def _commit(self, transaction: _Transaction, aside: list[Aside] | None = None) -> None:
        self._doubt = transaction
        self.engine.commit(transaction.state, transaction.changes, self._now(), aside or ())
        self._done(transaction)

    def _find_out(self, transaction: _Transaction) -> None:
        """Ask the engine whether it has the transaction in doubt, and end the doubt."""
        if self.engine.reached() == transaction.state.number:
            self._done(transaction)
        self._doubt = None

    def _done(self, transaction: _Transaction) -> None:
        self.state, self._doubt = transaction.state, None
        for change in transaction.changes:
            change.done()
        if transaction.written is not None:
            self._log.done(transaction.written)

    def _now(self) -> Moment:
        return moment(self.epoch + time.monotonic())

    def _begin(self, reader: reading.Reader) -> None:
        """Bring the log into the tables, log the damaged records and move them into the quarantine, in one
        transaction."""
        damaged, totals = reader.saved.damaged, dict(self.state.totals)
        for named in damaged[:NAMED]:
            logger.error("%s: damaged and set aside: %s", self.name, named)
        if len(damaged) > NAMED:
            logger.error("%s: %d more damaged records were set aside", self.name, len(damaged) - NAMED)
        for table, sums in reader.sums.items():
            totals[table.value] = len(sums), sum(sums.values())
        pairs = zip(damaged, reader.set_aside, strict=True)
        aside = [Aside(named.table, row, str(named)) for named, row in pairs if row is not None]
        self._commit(self._transaction(reader.fold(), totals), aside)


def _engine(place: Path | Server, sync: Sync, now: Moment) -> Engine:
    if isinstance(place, Path):
        return StorageFile(place, sync, now)
    with needing_psycopg():
        from saps.storage.driver.postgresql import PostgreSQL  # imported here because psycopg is optional
    return PostgreSQL(place, sync, now)


@contextmanager
def needing_psycopg() -> Iterator[None]:
    """Turn the `ImportError` of an import that needs psycopg into a `StorageError`."""
    try:
        yield
    except ImportError:
        raise StorageError("a database needs psycopg: install saps[postgresql]") from None
