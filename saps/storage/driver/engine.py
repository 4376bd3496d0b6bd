"""The interface of the engines that hold the records: SQLite in one broker's file, or PostgreSQL for a whole site.

The protection against damage is the same for both (`saps.storage.driver.database`): checksums, totals, transaction
numbers, the quarantine. An engine writes all of a transaction or nothing, and returns what it was given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from saps.storage.driver.clock import Moment
from saps.storage.journal import Row, Table
from saps.storage.records import SEEDS, State, seal


class Change:
    """The changes of a batch in one table, and their effect on the table's totals."""

    __slots__ = ("_fresh", "_sums", "count", "gone", "put", "replaced", "table", "total")

    def __init__(self, table: Table, rows: dict[Any, Row | None], sums: dict[Any, int]) -> None:
        """`rows`: new rows by key; None deletes. `sums`: checksums by key of all records that the table has; `done`
        updates them."""
        self.table = table
        self.gone: list[Any] = []
        """Keys of existing rows to delete."""
        self.put: list[list[Any]] = []
        """New rows, sealed (`saps.storage.records.seal`)."""
        self.replaced: list[Any] = []
        """Keys of existing rows that `put` replaces."""
        self.count = self.total = 0
        """Changes of the table's totals: number of records, and sum of their checksums."""
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
                if before is not None:
                    self.replaced.append(key)
            elif before is not None:
                self.gone.append(key)
        self.count += len(self.put)
        self.total += sum(self._fresh.values())

    def done(self) -> None:
        """Update the known checksums; to be called when the engine has committed the change."""
        for key in self.gone:
            del self._sums[key]
        self._sums.update(self._fresh)


class SetAside(NamedTuple):
    """A record in the quarantine, which an earlier start found damaged."""

    table: str
    reason: str
    content: bytes
    """The record's columns as they were found, in MessagePack."""


class Aside(NamedTuple):
    """A damaged record to move from its table to the quarantine."""

    table: Table
    row: Row
    """The row as it was read, with its key as in the engine."""
    reason: str


class Records(Protocol):
    """A consistent snapshot of one broker's records in an engine. The methods raise one of `faults` for damage."""

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """The exceptions that damage raises."""

    def check(self) -> list[str]:
        """Return one line for each damage that the engine itself detects."""

    def state(self) -> State | None:
        """Return the record of the storage's state, or None if it is damaged."""

    def rows(self, table: Table, lost: list[str]) -> Iterator[Row]:
        """Yield the table's rows with their checksums, in the order of their keys. Adds a line to `lost` for each thing
        that cannot be read."""

    def message(self, number: int) -> Row | None:
        """Return the row of `Table.MESSAGES` with this number, or None if there is none."""

    def quarantine(self) -> Iterator[SetAside]:
        """Yield the records that earlier starts set aside."""


class Engine(Protocol):
    """Holds the records of one broker, for one process at a time; used by one thread at a time."""

    @property
    def name(self) -> str:
        """The engine's name in messages, without secrets."""

    @property
    def state(self) -> State:
        """The storage's state at its opening, or after the last commit."""

    @property
    def then(self) -> Moment:
        """The time of the last transaction before the storage was opened."""

    @property
    def size(self) -> int:
        """Bytes that this broker's records used after the last transaction."""

    @property
    def rest(self) -> float | None:
        """Longest pause between commits in seconds, after which `keep` must be called; None for no limit."""

    def keep(self) -> None:
        """Renew the engine's claim to the records while there is nothing to commit."""

    def told(self) -> AbstractContextManager[None]:
        """Return a context in which errors of the engine become a `StorageError` that contains its `name`."""

    def records(self) -> AbstractContextManager[Records]:
        """Return a context with a snapshot of the records."""

    def reached(self) -> int:
        """Read the number of the last transaction from the engine; to be called when a commit has raised. Raises the
        engine's errors."""

    def commit(self, state: State, changes: Sequence[Change], now: Moment, aside: Sequence[Aside] = ()) -> None:
        """Write one transaction: the `changes`, the records to set `aside`, and the `state` that results. It is written
        as a whole or not at all; if the method raises, the caller must find out which (`reached`)."""

    def fault(self, error: Exception) -> tuple[bool, str]:
        """Return whether a commit failed for lack of space, and one line with the reason."""

    def close(self, now: Moment) -> None:
        """Close the storage in order, at the moment `now`."""
