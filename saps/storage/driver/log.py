"""The storage's log: the last changes of messages and their copies, one record for each transaction.

Most messages are delivered soon, and their rows are never written: a transaction writes its changes of the `LOGGED`
tables as one record. When the log is longer than `LOG`, its oldest records are **folded**: what no later one has
changed again goes to the tables. A record of which nothing is left goes at once. All of it is part of the transactions
that are written anyway. Whoever reads a storage applies the log to the tables (`saps.storage.driver.reading`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from saps.storage.journal import Batch, Table

LOGGED = (Table.MESSAGES, Table.COPIES, Table.RELEASES, Table.INCOMING)
"""The tables whose changes are logged: most of their rows are short-lived."""
LOG = 4 << 20
"""Most bytes of the log, roughly: more than is under way to clients at one time."""
_CHANGE = 128
"""Bytes of a change, roughly, without payloads."""
_encode = msgspec.msgpack.Encoder().encode


class _Record(NamedTuple):
    number: int
    """Of its transaction."""
    changes: Batch
    size: int


class Written(NamedTuple):
    """What a transaction writes."""

    batch: Batch
    record: _Record | None
    """The log's new record."""
    folded: int
    """Number of the log's oldest records that are deleted."""


class Log:
    """The log of one open storage. It begins empty."""

    def __init__(self) -> None:
        self._records: deque[_Record] = deque()
        self._size = 0
        self._last: dict[Table, dict[Any, int]] = {table: {} for table in LOGGED}
        """By table and key: number of the last record with a change of this row."""

    def written(self, batch: Batch, number: int, known: Mapping[Table, Mapping[Any, int]]) -> Written:
        """Return what a transaction writes for these changes. `number`: its own. `known`: the rows that the tables
        have, by key. The log itself changes when `done` is called."""
        found: Batch = {table: rows for table, rows in batch.items() if table not in self._last}
        changes: Batch = {}
        for table, last in self._last.items():
            if rows := batch.get(table):
                there = known[table]
                kept = {key: row for key, row in rows.items() if row is not None or key in there or key in last}
                if kept:
                    changes[table] = kept
        size, record, folded = self._size, None, 0
        log: dict[Any, Any] = {}
        if changes:
            record = _Record(number, changes, _size(changes))
            size += record.size
            log[number] = number, _encoded(changes)
        for oldest in self._records:
            if size <= LOG and self._counts(oldest, changes, known):
                break
            size -= oldest.size
            folded += 1
            log[oldest.number] = None
            for table, rows in oldest.changes.items():
                last, new, fold = self._last[table], changes.get(table, {}), found.setdefault(table, {})
                fold.update((key, row) for key, row in rows.items() if last[key] == oldest.number and key not in new)
        if log:
            found[Table.LOG] = log
        return Written(found, record, folded)

    def _counts(self, oldest: _Record, changes: Batch, known: Mapping[Table, Mapping[Any, int]]) -> bool:
        """Return whether anything of the oldest record is neither changed again nor done."""
        return any(
            self._last[table][key] == oldest.number
            and (row is not None or key in known[table])
            and key not in changes.get(table, ())
            for table, rows in oldest.changes.items()
            for key, row in rows.items()
        )

    def done(self, written: Written) -> None:
        """Change the log as the transaction has, which is committed."""
        for _ in range(written.folded):
            oldest = self._records.popleft()
            self._size -= oldest.size
            for table, rows in oldest.changes.items():
                last = self._last[table]
                for key in rows:
                    if last[key] == oldest.number:
                        del last[key]
        if written.record is not None:
            self._records.append(written.record)
            self._size += written.record.size
            for table, rows in written.record.changes.items():
                self._last[table].update(dict.fromkeys(rows, written.record.number))


def _size(changes: Batch) -> int:
    messages = changes.get(Table.MESSAGES, {}).values()
    payloads = sum(len(row[1].payload) for row in messages if row is not None)
    return _CHANGE * sum(map(len, changes.values())) + payloads


def _encoded(changes: Batch) -> bytes:
    return _encode(
        {
            table: ([row for row in rows.values() if row is not None], [key for key in rows if rows[key] is None])
            for table, rows in changes.items()
        }
    )
