"""The storage file: SQLite in WAL mode, for one broker at a time.

A file is made under another name and renamed when it is complete, so an empty one is as damaged as any other that does
not read as it was written: it is never taken for "nothing was stored".
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import msgspec

from saps.messages import Message, Subscription
from saps.storage.journal import Batch, Row, Table
from saps.storage.saved import Saved, SavedCopy, SavedForm, SavedMessage, SavedSession
from saps.wholefile import sync_directory

Sync = Literal["full", "normal", "off"]
"""When the operating system is asked to have written what was committed: with each commit, at checkpoints, never."""

APPLICATION_ID = 0x53415053
"""``SAPS``, in the file's header."""
FORMAT = 1
"""Raised when a file can no longer be read by an earlier version."""

_SCHEMA = """
CREATE TABLE sessions (id INTEGER PRIMARY KEY, client TEXT NOT NULL, user TEXT, expiry INTEGER NOT NULL, ends REAL,
    will BLOB, will_delay INTEGER NOT NULL, will_due REAL);
CREATE TABLE subscriptions (session INTEGER, filter TEXT, subscription BLOB NOT NULL, PRIMARY KEY (session, filter))
    WITHOUT ROWID;
CREATE TABLE messages (id INTEGER PRIMARY KEY, message BLOB NOT NULL, expires REAL);
CREATE TABLE copies (serial INTEGER PRIMARY KEY, session INTEGER NOT NULL, message INTEGER NOT NULL,
    packet INTEGER NOT NULL, form BLOB NOT NULL);
CREATE TABLE releases (serial INTEGER PRIMARY KEY, session INTEGER NOT NULL, packet INTEGER NOT NULL);
CREATE TABLE incoming (session INTEGER, packet INTEGER, reached INTEGER NOT NULL, PRIMARY KEY (session, packet))
    WITHOUT ROWID;
CREATE TABLE retained (topic TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
"""
_KEYS = {
    Table.SESSIONS: ("id",),
    Table.SUBSCRIPTIONS: ("session", "filter"),
    Table.MESSAGES: ("id",),
    Table.COPIES: ("serial",),
    Table.RELEASES: ("serial",),
    Table.INCOMING: ("session", "packet"),
    Table.RETAINED: ("topic",),
}
_WIDTHS = {
    Table.SESSIONS: 8,
    Table.SUBSCRIPTIONS: 3,
    Table.MESSAGES: 3,
    Table.COPIES: 5,
    Table.RELEASES: 3,
    Table.INCOMING: 3,
    Table.RETAINED: 2,
}
_PUT = {t: f"INSERT OR REPLACE INTO {t.value} VALUES ({', '.join('?' * width)})" for t, width in _WIDTHS.items()}
_DROP = {t: f"DELETE FROM {t.value} WHERE {' AND '.join(f'{k} = ?' for k in keys)}" for t, keys in _KEYS.items()}
_PLAIN = (int, str, float, bytes, type(None))
_encode = msgspec.msgpack.Encoder().encode


class StorageError(Exception):
    """The file cannot be used; the text names it and says why."""


class Database:
    """An open storage file. Used by one thread at a time."""

    def __init__(self, path: Path, sync: Sync) -> None:
        """Open the file, or make it. Raises `StorageError` if it is damaged, in use, or of another kind."""
        self.path = path
        try:
            if not path.exists():
                _make(path)
            self._connection = _opened(path, sync)
        except sqlite3.OperationalError as error:
            reason = "another process uses it" if "locked" in str(error) else str(error)
            raise StorageError(f"{path}: {reason}") from None
        except sqlite3.DatabaseError as error:
            raise StorageError(f"{path} is damaged: {error}") from None
        except OSError as error:
            raise StorageError(f"{path}: {os.strerror(error.errno) if error.errno else error}") from None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @property
    def size(self) -> int:
        """Bytes of the file that are in use."""
        pages, free, size = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        used: int = (pages - free) * size
        return used

    def write(self, batch: Batch) -> None:
        """Write all changes in one transaction, or none of them. Raises `sqlite3.Error`."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            for table, rows in batch.items():
                gone = [key if type(key) is tuple else (key,) for key, row in rows.items() if row is None]
                if gone:
                    self._connection.executemany(_DROP[table], gone)
                if len(gone) < len(rows):
                    there = (_encoded(row) for row in rows.values() if row is not None)
                    self._connection.executemany(_PUT[table], there)
            execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise

    def load(self) -> Saved:
        """All that is stored. Raises `StorageError` if it cannot be read."""
        try:
            return _load(self._connection)
        except (sqlite3.Error, msgspec.MsgspecError, KeyError, TypeError) as error:
            raise StorageError(f"{self.path} is damaged: {error}") from None


def _encoded(row: Row) -> list[Any]:
    """The row as SQLite takes it: what is not a number or a text is MessagePack."""
    return [value if type(value) in _PLAIN else _encode(value) for value in row]


def _make(path: Path) -> None:
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with closing(sqlite3.connect(new)) as connection:
        connection.executescript(_SCHEMA)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    with new.open("rb") as file:
        os.fsync(file.fileno())
    for left in (path.with_name(path.name + "-wal"), path.with_name(path.name + "-journal")):
        if left.exists():  # of a file that somebody has taken away: its changes are not this one's
            raise StorageError(f"{left} is there, but {path} is not: put it back, or take both away")
    new.rename(path)
    sync_directory(path.parent)


def _opened(path: Path, sync: Sync) -> sqlite3.Connection:
    if not path.stat().st_size:
        raise StorageError(f"{path} is damaged: it is empty")
    connection = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        found = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if found != APPLICATION_ID:
            raise StorageError(f"{path} is not a storage file of this program")
        if version != FORMAT:
            raise StorageError(f"{path} has format {version}, this version reads {FORMAT}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {sync.upper()}")
        connection.execute("BEGIN IMMEDIATE")  # takes the lock, for as long as the file is open
        connection.execute("COMMIT")
        if (fault := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise StorageError(f"{path} is damaged: {fault}")
    except BaseException:
        connection.close()
        raise
    return connection


def _load(connection: sqlite3.Connection) -> Saved:
    saved, numbered = Saved(), {}
    decode = msgspec.msgpack.decode

    def rows(table: Table) -> Iterable[Row]:
        order = ", ".join(_KEYS[table])
        return connection.execute(f"SELECT * FROM {table.value} ORDER BY {order}")

    for number, client, user, expiry, ends, will, delay, due in rows(Table.SESSIONS):
        message = decode(will, type=Message) if will is not None else None
        session = SavedSession(number, client, user, expiry, ends, message, delay, due)
        numbered[number] = session
        saved.sessions.append(session)
    for number, _, subscription in rows(Table.SUBSCRIPTIONS):
        numbered[number].subscriptions.append(decode(subscription, type=Subscription))
    for number, body, expires in rows(Table.MESSAGES):
        saved.messages[number] = SavedMessage(number, decode(body, type=Message), expires)
    for serial, number, message_number, packet_id, form in rows(Table.COPIES):
        _ = saved.messages[message_number]
        numbered[number].copies.append(SavedCopy(serial, message_number, packet_id, decode(form, type=SavedForm)))
        saved.highest = serial
    for serial, number, packet_id in rows(Table.RELEASES):
        numbered[number].releases.append((serial, packet_id))
        saved.highest = max(saved.highest, serial)
    for number, packet_id, reached in rows(Table.INCOMING):
        numbered[number].incoming[packet_id] = reached
    saved.retained = dict(rows(Table.RETAINED))
    saved.highest = max([saved.highest, *numbered, *saved.messages])
    return saved
