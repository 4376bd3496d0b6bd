"""Reads SQLite files (`saps.storage.driver.engine.Records`), also damaged ones: it reads around unreadable pages."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from saps.storage.driver.engine import SetAside
from saps.storage.journal import Row, Table
from saps.storage.records import KINDS, SELECT, SELECT_STATE, State, key_of, state_of

FAULTS = (sqlite3.DatabaseError, UnicodeDecodeError)
"""The exceptions that a damaged file raises; names of columns raise `UnicodeDecodeError`."""


def as_text(data: bytes) -> str:
    """Decode a text of the file; bytes that are not UTF-8 become surrogates. (A connection's `text_factory`.)"""
    return data.decode(errors="surrogateescape")


class FileRecords:
    """The records that a connection reads. (A `saps.storage.driver.engine.Records`.)"""

    faults: tuple[type[Exception], ...] = FAULTS

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def check(self) -> list[str]:
        told = [row[0] for row in self._connection.execute("PRAGMA quick_check(5)")]
        lines = [line for text in told for line in text.splitlines() if not line.startswith("***")]
        return [] if lines == ["ok"] else lines

    def state(self) -> State | None:
        return state_of(self._connection.execute(SELECT_STATE).fetchone())

    def rows(self, table: Table, lost: list[str]) -> Iterator[Row]:
        columns, last, misplaced = KINDS[table].keys, None, False
        try:
            for row in self._connection.execute(f"{SELECT[table]} ORDER BY {', '.join(columns)}"):
                key = key_of(table, row)
                if not (misplaced or last is None or _ascending(last, key)):
                    misplaced = True
                    lost.append(f"{table.value}: record {key!r} is not in its place")
                last = key
                yield row
        except FAULTS as error:
            lost.append(f"{table.value}: {error}")
        else:
            return
        # From the other end, up to where the forward scan stopped: only the rows on the unreadable pages are lost.
        backwards = ", ".join(f"{column} DESC" for column in columns)
        with suppress(*FAULTS):
            for row in self._connection.execute(f"{SELECT[table]} ORDER BY {backwards}"):
                key = key_of(table, row)
                if last is not None and not _ascending(last, key):
                    return
                yield row

    def message(self, number: int) -> Row | None:
        found: Row | None = self._connection.execute(f"{SELECT[Table.MESSAGES]} WHERE id = ?", (number,)).fetchone()
        return found

    def quarantine(self) -> Iterator[SetAside]:
        for row in self._connection.execute("SELECT origin, reason, content FROM quarantine"):
            yield SetAside(*row)


def _ascending(one: Any, other: Any) -> bool:
    try:
        return bool(one < other)
    except TypeError:  # damage has changed the type of a key
        return False
