"""The storage file: SQLite in WAL mode, for one broker at a time (`saps.storage.driver.engine.Engine`).

A file is made under another name and renamed when it is complete. An empty file is therefore damaged; it never means
"nothing was stored". Only its owner may read the file. It is examined before anything is changed. After each
transaction, a mark beside the file repeats the transaction's number (`saps.storage.driver.marks`).
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from saps.runtime.atomic_file import PRIVATE, sync_directory
from saps.storage.damage import DamagedError, StorageError
from saps.storage.driver.clock import Moment
from saps.storage.driver.engine import Aside, Change
from saps.storage.driver.marks import FLUSH, Mark, MarkFile, make_marks, mark_path, read_marks, shortfall
from saps.storage.driver.sqlite import FAULTS, FileRecords, as_text
from saps.storage.journal import Batch, Row, Table
from saps.storage.records import DROP, KINDS, PUT, PUT_STATE, SCHEMA, SEEDS, State, keys, seal, seal_state

logger = logging.getLogger(__name__)

Sync = Literal["full", "normal", "off"]
"""Flushes of commits to the disk: with each commit (``full``), at checkpoints (``normal``), or never (``off``)."""

APPLICATION_ID = 0x53415053
"""``SAPS`` in ASCII, in the file's header."""
FORMAT = 6
"""Version of the file format, increased when an earlier version of SAPS can no longer read the file."""


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and the operating system into a `StorageError` that names the file; damage raises
    `DamagedError`."""
    try:
        yield
    except FAULTS as error:
        if not isinstance(error, sqlite3.OperationalError) or error.sqlite_errorcode == sqlite3.SQLITE_ERROR:
            raise DamagedError(path, [str(error)]) from None
        reason = "another process uses it" if "locked" in str(error) else str(error)
        raise StorageError(f"{path}: {reason}") from None
    except OSError as error:
        raise StorageError(f"{path}: {os.strerror(error.errno) if error.errno else error}") from None


def make(path: Path, content: Batch, now: Moment, number: int = 0) -> None:
    """Make a file with this content, complete or not at all. `number`: number of its last transaction so far. Raises
    `StorageError`, `sqlite3.Error` or `OSError`."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE))
    totals, store = {}, os.urandom(16)
    with closing(sqlite3.connect(new)) as connection:
        connection.executescript(SCHEMA)
        for table, rows in content.items():
            sealed = [seal(row, SEEDS[table]) for row in rows.values() if row is not None]
            connection.executemany(PUT[table], sealed)
            totals[table.value] = len(sealed), sum(columns[-1] for columns in sealed)
        connection.execute(PUT_STATE, seal_state(State(store, number, totals)))
        connection.commit()
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    publish(new, path, Mark(store, number, now, "full", clean=True))


def publish(new: Path, path: Path, mark: Mark) -> None:
    """Flush a complete file to the disk, make its mark, and rename it from `new` to `path`. Raises `StorageError` if
    a log or mark of another file is in the way, `OSError`."""
    with new.open("rb") as file:
        os.fsync(file.fileno())
    left = [path.with_name(path.name + ending) for ending in ("-wal", "-journal", "-mark")]
    for other in left:  # from a file that was moved away: the new file must not take over its changes
        if other.exists() and not (other == mark_path(path) and _of_an_empty_file(other)):
            raise StorageError(f"{other} is there, but {path} is not: put it back, or take both away")
    make_marks(path, mark)
    new.rename(path)
    sync_directory(path.parent)


def _of_an_empty_file(mark: Path) -> bool:
    """Return whether a mark belongs to a file without transactions, whose first start was interrupted before the
    rename."""
    with mark.open("rb") as file:
        marks = read_marks(file.fileno())
    return marks.whole and marks.last is not None and not marks.last.number


def locked(path: Path) -> MarkFile:
    """Make the file and all that belongs to it private, and return its locked mark. Raises `DamagedError` if the file
    is empty or its mark is gone, `StorageError` if another process uses it, `OSError`."""
    for ending in ("", "-wal", "-shm", "-mark"):
        found = path.with_name(path.name + ending)
        if found.exists() and found.stat().st_mode & 0o777 != PRIVATE:
            found.chmod(PRIVATE)
    if not path.stat().st_size:
        raise DamagedError(path, ["it is empty"])
    try:
        return MarkFile(path)
    except FileNotFoundError:
        raise DamagedError(path, [f"{mark_path(path).name} is gone"]) from None


def reader_of(path: Path, *, damaged: bool = False) -> sqlite3.Connection:
    """Return a read-only connection, which also works while a broker writes. `damaged`: also read a truncated file.
    Raises `StorageError` if the file does not have this format, `sqlite3.Error`."""
    logged = path.with_name(path.name + "-wal").exists()  # else nobody has the file open, and it needs no lock
    mode = "mode=ro" if logged else "mode=ro&immutable=1"
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None)
    try:
        connection.text_factory = as_text
        connection.execute(f"PRAGMA writable_schema = {int(damaged)}")  # SQLite then tolerates faults of the schema
        found = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if found != APPLICATION_ID:
            raise StorageError(f"{path} is not a storage file of this program")
        if version != FORMAT:
            raise StorageError(f"{path} has format {version}, this version reads {FORMAT}")
    except BaseException:
        connection.close()
        raise
    return connection


def examined(path: Path, file: MarkFile, now: Moment) -> tuple[State, Moment]:
    """Return the file's state and the time of its last transaction, if the file has all transactions of its marks.

    Examines the file without changing it: SQLite would copy the readable part of the write-ahead log into the file and
    discard the rest. Raises `DamagedError` if acknowledged transactions are missing. A file that lost its last
    transactions in a loss of power, as its `sync` permits, is accepted: its marks are reset, and the loss is logged.
    """
    with closing(reader_of(path)) as connection:
        found = FileRecords(connection).state()
    if found is None:
        raise DamagedError(path, ["the record that says what must be there is damaged"])
    marks = file.read()
    fault, last = shortfall(marks, found.store, found.number), marks.last
    if last is None:
        raise DamagedError(path, [fault or ""])
    if fault is not None:
        if last.sync == "full" or last.moment.boot == now.boot or last.number <= found.number:
            raise DamagedError(path, [fault])
        logger.warning("%s: power was lost, and storage.sync was %r: %s", path, last.sync, fault)
        file.reset(Mark(found.store, found.number, last.moment, last.sync))
    elif not last.clean:
        logger.info("%s was not closed in order; all of its %d transactions are there", path, found.number)
    return found, last.moment


class StorageFile:
    """An open storage file. (A `saps.storage.driver.engine.Engine`.)"""

    rest: float | None = None

    def __init__(self, path: Path, sync: Sync, now: Moment) -> None:
        """Open the file, or make it. Raises `DamagedError` if acknowledged transactions are missing, `StorageError`
        if the file is in use or has another format. In both cases nothing has been changed."""
        self.name = str(path)
        self._path = path
        self._sync = sync
        self._flushed = 0.0
        self._changed = False
        with told(path):
            if not path.exists():
                make(path, {}, now)
            self._marks = locked(path)
            try:
                self.state, self.then = examined(path, self._marks, now)
                self._connection = _opened(path, sync)
                self._page_size = self._number("page_size")
            except BaseException:
                self._marks.close()
                raise
        self.size = 0

    def told(self) -> AbstractContextManager[None]:
        return told(self._path)

    @contextmanager
    def records(self) -> Iterator[FileRecords]:
        yield FileRecords(self._connection)

    def keep(self) -> None:
        """Do nothing: the operating system keeps the lock as long as the process lives."""

    def reached(self) -> int:
        state = FileRecords(self._connection).state()
        return 0 if state is None else state.number

    def commit(self, state: State, changes: Sequence[Change], now: Moment, aside: Sequence[Aside] = ()) -> None:
        execute, many = self._connection.execute, self._connection.executemany
        execute("BEGIN IMMEDIATE")
        try:
            for change in changes:
                if change.gone:
                    many(DROP[change.table], keys(change.table, change.gone))
                if change.put:
                    many(PUT[change.table], change.put)
            for table, row, reason in aside:
                if not _set_aside(self._connection, table, row, reason):
                    raise DamagedError(self._path, [f"{reason} (and it cannot be set aside)"])
            execute(PUT_STATE, seal_state(state))
            size = (self._number("page_count") - self._number("freelist_count")) * self._page_size
            execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise
        self.state, self.size = state, size
        self._note(now)

    def fault(self, error: Exception) -> tuple[bool, str]:
        return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL, str(error)

    def close(self, now: Moment) -> None:
        self._connection.close()
        if self._changed:
            self._marks.write(self._mark(now, clean=True))
            if self._sync == "full":
                self._marks.flush()
        self._marks.close()

    def _note(self, now: Moment) -> None:
        """Write the last transaction's number into the mark. Flushes the mark at most every `FLUSH` seconds, if `sync`
        is ``full``."""
        self._changed = True
        self._marks.write(self._mark(now))
        if self._sync == "full" and (moment := time.monotonic()) >= self._flushed + FLUSH:
            self._marks.flush()
            self._flushed = moment

    def _mark(self, now: Moment, clean: bool = False) -> Mark:
        return Mark(self.state.store, self.state.number, now, self._sync, clean)

    def _number(self, name: str) -> int:
        found: int = self._connection.execute(f"PRAGMA {name}").fetchone()[0]
        return found


def _opened(path: Path, sync: Sync) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
    try:
        connection.text_factory = as_text
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {sync.upper()}")
    except BaseException:
        connection.close()
        raise
    return connection


def _set_aside(connection: sqlite3.Connection, table: Table, row: Row, reason: str) -> bool:
    """Move a row unchanged into the quarantine. Returns False if its key does not select exactly that row."""
    key = [raw(value) for value in row[: len(KINDS[table].keys)]]
    condition = " AND ".join(
        f"{column} = {'CAST(? AS TEXT)' if isinstance(found, str) else '?'}"
        for column, found in zip(KINDS[table].keys, row, strict=False)
    )
    content = msgspec.msgpack.encode([raw(value) for value in row])
    connection.execute(
        "INSERT INTO quarantine (origin, reason, content) VALUES (?, CAST(? AS TEXT), ?)",
        (table.value, raw(reason), content),
    )
    return connection.execute(f"DELETE FROM {table.value} WHERE {condition}", key).rowcount == 1


def raw(value: Any) -> Any:
    """Return a value in a form that SQLite and MessagePack accept even if it is damaged: a text as its bytes."""
    return value.encode(errors="surrogateescape") if isinstance(value, str) else value
