"""Examines, repairs and copies a storage, also while a broker writes it. Only `repair_rows` changes the original."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from saps.runtime.atomic_file import PRIVATE, replacing
from saps.storage.damage import DamagedError, StorageError
from saps.storage.driver.clock import moment
from saps.storage.driver.database import needing_psycopg
from saps.storage.driver.files import make, publish, reader_of, told
from saps.storage.driver.marks import Mark, Marks, mark_path, read_marks, shortfall
from saps.storage.driver.missed import files
from saps.storage.driver.reading import Reader
from saps.storage.driver.sqlite import FileRecords
from saps.storage.place import Server


class Examined(NamedTuple):
    """The content of a storage, and its damage."""

    reader: Reader
    marks: Marks
    """The marks beside a file. A database has none, for it keeps its log itself."""

    @property
    def faults(self) -> list[str]:
        """One line for each damaged record and each thing that may be missing."""
        return [*self.reader.lost, *map(str, self.reader.saved.damaged)]


def examine(place: Path | Server) -> Examined:
    """Read a storage as far as possible. Raises `StorageError` if nothing of it can be read."""
    if isinstance(place, Server):
        with needing_psycopg():
            from saps.storage.driver.postgresql import opened
        with opened(place) as records:
            reader = Reader(records)
            reader.read()
        return Examined(reader, Marks(None, whole=True))
    with _snapshot(place) as (connection, marks):
        reader = Reader(FileRecords(connection))
        reader.read()
        if reader.state is not None:
            fault = shortfall(marks, reader.state.store, reader.state.number)
            reader.lost += [fault] if fault is not None else []
    return Examined(reader, marks)


def repair(path: Path, new: Path) -> Examined:
    """Make the file `new` of all intact records in the file `path`, with copies of what else is beside that: what
    cut-off brokers have missed, and the last members. Returns what was found in `path`. Raises `StorageError`, also if
    `new` exists."""
    _free(new)
    found = examine(path)
    last, state = found.marks.last, found.reader.state
    number = max(last.number if last is not None else 0, state.number if state is not None else 0)
    with told(new):
        members = path.with_name(f"{path.name}.members")
        for beside in (*(file for _, file in files(path)), *([members] if members.exists() else [])):
            with replacing(new.with_name(new.name + beside.suffix), PRIVATE) as copy:
                copy.write(beside.read_bytes())
        make(new, found.reader.saved.rows(), last.moment if last is not None else moment(), number)
    return found


def brokers(server: Server) -> list[str]:
    """Return the names of the brokers that have rows in a database. Raises `StorageError`."""
    with needing_psycopg():
        from saps.storage.driver.postgresql import brokers
    return brokers(server)


def repair_rows(server: Server) -> tuple[Examined, str]:
    """Replace a broker's rows by the intact ones among them. Returns what was found, and the name under which the old
    rows are kept. Raises `StorageError`, also if the broker is alive."""
    with needing_psycopg():
        from saps.storage.driver.postgresql import replace
    now = moment()
    aside = f"{server.broker} until {now.text}"
    return Examined(replace(server, aside, now), Marks(None, whole=True)), aside


def backup(path: Path, new: Path) -> int:
    """Copy the present state of a file to `new`, and check the copy. Returns the size of the copy in bytes. Raises
    `StorageError`, also if `new` exists; `DamagedError` if records or transactions may be missing."""
    _free(new)
    partial = new.with_name(new.name + ".new")
    with told(new):
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE))
    try:
        with _snapshot(path) as (connection, marks), closing(sqlite3.connect(partial)) as copy:
            connection.backup(copy)
        with told(partial), closing(reader_of(partial)) as copy:
            reader = Reader(FileRecords(copy))
            reader.read()
        state = reader.state
        if state is not None and (fault := shortfall(marks, state.store, state.number)) is not None:
            reader.lost.append(fault)
        if reader.lost or state is None:
            raise DamagedError(path, reader.lost)
        then = marks.last.moment if marks.last is not None else moment()
        with told(new):
            publish(partial, new, Mark(state.store, state.number, then, "full", clean=True))
    finally:
        for ending in ("", "-wal", "-shm"):
            partial.with_name(partial.name + ending).unlink(missing_ok=True)
    return new.stat().st_size


@contextmanager
def _snapshot(path: Path) -> Iterator[tuple[sqlite3.Connection, Marks]]:
    """Yield a connection to one state of the file, and marks no newer than that state. Raises `StorageError`."""
    with told(path):
        if not path.stat().st_size:
            raise StorageError(f"{path} is empty: nothing can be read")
        try:  # the marks first: a transaction between the two reads then cannot look missing
            with mark_path(path).open("rb") as file:
                marks = read_marks(file.fileno())
        except FileNotFoundError:
            marks = Marks(None, whole=False)
        try:
            with closing(reader_of(path, damaged=True)) as connection:
                connection.execute("BEGIN")
                yield connection, marks
        except sqlite3.DatabaseError as error:
            raise StorageError(f"{path}: {error}") from None


def _free(new: Path) -> None:
    """Check that no file has the name `new`. Raises `StorageError` if one has."""
    if new.exists():
        raise StorageError(f"{new} is there already")
