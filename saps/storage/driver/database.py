"""The storage file: SQLite in WAL mode, for one broker at a time.

A file is made under another name and renamed when it is complete, so an empty one is as damaged as any other that does
not read as it was written: it is never taken for "nothing was stored". Each record has a checksum
(`saps.storage.records`), each transaction a number that a mark beside the file repeats (`saps.storage.driver.marks`).
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from saps.storage.damage import DamagedError
from saps.storage.driver import reading
from saps.storage.driver.clock import Moment, jump, moment
from saps.storage.driver.files import Sync, examined, locked, make, opened, told
from saps.storage.driver.marks import FLUSH, Mark
from saps.storage.journal import Batch, Row, Table
from saps.storage.records import DROP, KINDS, PUT, PUT_STATE, SEEDS, State, keys, seal, seal_state
from saps.storage.saved import Saved

logger = logging.getLogger(__name__)

NAMED = 20
"""Damaged records that are named in the log; ``saps storage verify`` names all."""


class _Change:
    """What a batch changes in one table."""

    __slots__ = ("_fresh", "_sums", "count", "gone", "put", "table", "total")

    def __init__(self, table: Table, rows: dict[Any, Row | None], sums: dict[Any, int]) -> None:
        self.table = table
        self.gone: list[Any] = []
        """The keys of rows that are there and are to go."""
        self.put: list[list[Any]] = []
        """Rows with their checksums."""
        self.count = self.total = 0
        """How the table's totals change."""
        self._sums = sums
        self._fresh: dict[Any, int] = {}
        seed, known = SEEDS[table], sums.get
        for key, row in rows.items():
            before = known(key)
            if before is not None:
                self.count -= 1
                self.total -= before
            if row is not None:
                columns = seal(row, seed)
                self.put.append(columns)
                self._fresh[key] = columns[-1]
            elif before is not None:
                self.gone.append(key)
        self.count += len(self.put)
        self.total += sum(self._fresh.values())

    def done(self) -> None:
        """The file has it."""
        for key in self.gone:
            del self._sums[key]
        self._sums.update(self._fresh)


class Database:
    """An open storage file. Used by one thread at a time."""

    def __init__(self, path: Path, sync: Sync, now: Callable[[], Moment] = moment) -> None:
        """Open the file, or make it. Raises `DamagedError` if acknowledged transactions are missing, `StorageError`
        if it is in use or of another kind; then nothing has been changed."""
        self.path = path
        self.opened = now()
        self.epoch = self.opened.wall - time.monotonic()
        """Seconds since the epoch at moment 0 of the monotonic clock. All that is stored goes by it, whatever
        becomes of the wall clock meanwhile."""
        self._sync = sync
        self._flushed = 0.0
        self._changed = False
        with told(path):
            if not path.exists():
                make(path, {}, self.opened)
            self._marks = locked(path)
            try:
                self.state, self._then = examined(path, self._marks, self.opened)
                self._connection = opened(path, sync)
                self._page_size = self._number("page_size")
            except BaseException:
                self._marks.close()
                raise
        self._sums: dict[Table, dict[Any, int]] = {}
        """Of each record, its checksum; empty until `load`."""
        self.size = 0
        """Bytes of the file that are in use, since the last transaction."""
        self.quarantined = 0
        """Records that have been set aside, now and earlier."""

    def close(self) -> None:
        """Close the file, in order."""
        self._connection.close()
        if self._changed:
            self._marks.write(self._mark(clean=True))
            if self._sync == "full":
                self._marks.flush()
        self._marks.close()

    def load(self) -> Saved:
        """All that is stored and sound. Damaged records are named, logged and set aside. If the machine's clock has
        jumped since the last transaction, what ends at a time has been moved by that, in the file, too.

        Raises `DamagedError` if records may be missing that cannot be named.
        """
        reader = reading.Reader(self._connection)
        with told(self.path):
            reader.read()
            if reader.lost:
                raise DamagedError(self.path, reader.lost)
            self._sums = reader.sums
            if reader.saved.damaged:
                self._set_aside(reader)
            self.quarantined = len(reader.quarantine) + len(reader.set_aside)
            if jumped := jump(self._then, self.opened):
                logger.warning(
                    "%s: the clock says %s, last written %s: it has jumped by %.0f s; nothing expires by that",
                    *(self.path, self.opened.text, self._then.text, jumped),
                )
                reader.saved.move(jumped)
                self.write(reader.saved.timed())
                self._then = self.opened
        return reader.saved

    def write(self, batch: Batch) -> None:
        """Write all changes in one transaction, or none of them. Raises `sqlite3.Error` or `OSError`."""
        if not self._sums:
            self.load()
        totals, changes = dict(self.state.totals), []
        for table, rows in batch.items():
            change, name = _Change(table, rows, self._sums[table]), table.value
            count, total = totals.get(name, (0, 0))
            totals[name] = count + change.count, total + change.total
            changes.append(change)
        with self._transaction(State(self.state.store, self.state.number + 1, totals)):
            for change in changes:
                if change.gone:
                    self._connection.executemany(DROP[change.table], keys(change.table, change.gone))
                if change.put:
                    self._connection.executemany(PUT[change.table], change.put)
        for change in changes:
            change.done()
        self._note()

    @contextmanager
    def _transaction(self, state: State) -> Iterator[None]:
        """What is executed within leads to this state, or to none."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            yield
            execute(PUT_STATE, seal_state(state))
            size = (self._number("page_count") - self._number("freelist_count")) * self._page_size
            execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise
        self.state, self.size = state, size

    def _note(self) -> None:
        """Have the mark say how far the file goes. If that fails the transaction is repeated, which changes nothing."""
        self._changed = True
        self._marks.write(self._mark())
        if self._sync == "full" and (now := time.monotonic()) >= self._flushed + FLUSH:
            self._marks.flush()
            self._flushed = now

    def _number(self, name: str) -> int:
        found: int = self._connection.execute(f"PRAGMA {name}").fetchone()[0]
        return found

    def _mark(self, clean: bool = False) -> Mark:
        wall = self.epoch + time.monotonic()
        return Mark(self.state.store, self.state.number, moment(wall), self._sync, clean)

    def _set_aside(self, reader: reading.Reader) -> None:
        """Damaged records leave their tables for the quarantine."""
        damaged, totals = reader.saved.damaged, dict(self.state.totals)
        for named in damaged[:NAMED]:
            logger.error("%s: damaged and set aside: %s", self.path, named)
        if len(damaged) > NAMED:
            logger.error("%s: %d more damaged records were set aside", self.path, len(damaged) - NAMED)
        for table, sums in reader.sums.items():
            totals[table.value] = len(sums), sum(sums.values())
        state = State(self.state.store, self.state.number + 1, totals)
        with self._transaction(state):
            for named, row in zip(damaged, reader.set_aside, strict=True):
                if not set_aside(self._connection, named.table, row, str(named)):
                    raise DamagedError(self.path, [f"{named} (and it cannot be set aside)"])
        self._note()


def set_aside(connection: sqlite3.Connection, table: Table, row: Row, reason: str) -> bool:
    """Move a row as it is into the quarantine. False if it is not where it was."""
    key = [_raw(value) for value in row[: len(KINDS[table].keys)]]
    condition = " AND ".join(
        f"{column} = {'CAST(? AS TEXT)' if isinstance(found, str) else '?'}"
        for column, found in zip(KINDS[table].keys, row, strict=False)
    )
    content = msgspec.msgpack.encode([_raw(value) for value in row])
    connection.execute(
        "INSERT INTO quarantine (origin, reason, content) VALUES (?, CAST(? AS TEXT), ?)",
        (table.value, _raw(reason), content),
    )
    return connection.execute(f"DELETE FROM {table.value} WHERE {condition}", key).rowcount == 1


def _raw(value: Any) -> Any:
    """A value that SQLite and MessagePack take, whatever damage has made of it."""
    return value.encode(errors="surrogateescape") if isinstance(value, str) else value
