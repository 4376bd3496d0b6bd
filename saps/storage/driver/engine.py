"""What holds the records: SQLite in a file of one broker, or PostgreSQL for all brokers of a site.

What makes them believable is the same for both (`saps.storage.driver.database`): checksums, totals, numbers of
transactions, the quarantine. An engine writes all of a transaction or nothing, and gives back what it was given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from saps.storage.driver.clock import Moment
from saps.storage.journal import Row, Table
from saps.storage.records import SEEDS, State, seal


class Change:
    """What a batch changes in one table."""

    __slots__ = ("_fresh", "_sums", "count", "gone", "put", "replaced", "table", "total")

    def __init__(self, table: Table, rows: dict[Any, Row | None], sums: dict[Any, int]) -> None:
        """`sums`: of the records that the table has, by key."""
        self.table = table
        self.gone: list[Any] = []
        """The keys of rows that are there and are to go."""
        self.put: list[list[Any]] = []
        """Rows with their checksums."""
        self.replaced: list[Any] = []
        """The keys of rows that are there and are to be others."""
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
                if before is not None:
                    self.replaced.append(key)
            elif before is not None:
                self.gone.append(key)
        self.count += len(self.put)
        self.total += sum(self._fresh.values())

    def done(self) -> None:
        """The engine has it."""
        for key in self.gone:
            del self._sums[key]
        self._sums.update(self._fresh)


class SetAside(NamedTuple):
    """A record that an earlier start found damaged."""

    table: str
    reason: str
    content: bytes
    """MessagePack of its columns as they were found."""


class Aside(NamedTuple):
    """A damaged record that is to leave its table for the quarantine."""

    table: Table
    row: Row
    """With its key as the engine has it."""
    reason: str


class Records(Protocol):
    """One state of what an engine holds for a broker."""

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """What damage raises."""

    def check(self) -> list[str]:
        """What the engine itself finds damaged, a line each."""

    def state(self) -> State | None:
        """What it says of itself; None if that is damaged."""

    def rows(self, table: Table, lost: list[str]) -> Iterator[Row]:
        """The table's rows with their checksums, in the order of their keys. What cannot be read goes into `lost`."""

    def message(self, number: int) -> Row | None:
        """One row of the messages."""

    def quarantine(self) -> Iterator[SetAside]:
        """What earlier starts set aside."""


class Engine(Protocol):
    """Holds the records of one broker, for one process at a time; used by one thread at a time."""

    @property
    def name(self) -> str:
        """What it is called in messages, without secrets."""

    @property
    def state(self) -> State:
        """What it said of itself when it was opened, or since."""

    @property
    def then(self) -> Moment:
        """When it had been written last, when it was opened."""

    @property
    def size(self) -> int:
        """Bytes in use by this broker, since the last transaction."""

    @property
    def rest(self) -> float | None:
        """Seconds after which `keep` must be called if nothing is committed; None: never."""

    def keep(self) -> None:
        """Nothing is to be committed, but this process lives."""

    def told(self) -> AbstractContextManager[None]:
        """Within, what goes wrong becomes a `StorageError` with the engine's `name`."""

    def records(self) -> AbstractContextManager[Records]:
        """What it holds now."""

    def reached(self) -> int:
        """The number of the last transaction, when one may or may not have been written."""

    def commit(self, state: State, changes: Sequence[Change], now: Moment, aside: Sequence[Aside] = ()) -> None:
        """Write this, which leads to the state, as a whole or not at all. If it raises, either may be (`reached`)."""

    def fault(self, error: Exception) -> tuple[bool, str]:
        """Why a commit failed: is there no space, and a line of text."""

    def close(self, now: Moment) -> None:
        """It is closed in order."""
