"""The brokers' files: found, checked row by row, and taken into the job's inbox, each once.

A file that is not what it should be goes into quarantine: it is named in the log, and a note beside it says what is
wrong. Of a file with rows that cannot be (`limits`) only these go there; the others count. Spark reads the inbox only,
so a source that cannot be reached, or a file that vanishes, stops nothing.

A look costs what is new, not what was ever kept: only directories of days whose windows are open are listed, and only
when they have changed. Small files become one in the inbox: Spark notes each of these for ever.
"""

from __future__ import annotations

import datetime
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from monitoring.counts.limits import faults
from monitoring.decisions.store import Store
from saps.runtime.atomic_file import replacing
from saps.statistics import SCHEMA_VERSION
from saps.statistics.files_io import VERSION_KEY, arrow_schema

logger = logging.getLogger(__name__)

TOGETHER = 100_000
"""Rows in a file of the inbox, about. A whole file with as many is linked."""
AT_ONCE = 2000
"""Files read in one look at most: then the job goes on meanwhile."""
REST = 200.0
"""After a look that took a second of processor for finding files, so many seconds pass before the next."""
DAY = 86_400_000
_IS_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_ROOT = "@"
"""In the place of a directory's name: the source itself. No quoted name is the same."""


@dataclass(slots=True)
class _Place:
    """A directory of the source."""

    path: Path
    ledger: Path
    taken: set[str] = field(default_factory=set)
    """Names of its files that were taken, or put into quarantine."""
    written: int = 0
    """Lines of the ledger."""
    changed: int = -1
    """Its time of change at the last look, in ns."""
    settled: bool = False
    """It was listed again after that: what came within the same tick of the file system's clock was seen."""


class Intake:
    """Takes files from a source directory, and from those in it, into a store's inbox."""

    def __init__(self, source: Path, store: Store) -> None:
        self._source = source
        self._store = store
        self._ledgers = store.root / "taken"
        self._ledgers.mkdir(exist_ok=True)
        self._places: dict[str, _Place] = {}
        self._directories: set[str] = set()
        self._found: list[tuple[int, str, _Place]] = []
        """Files that wait to be read: begin of the interval, name, place."""
        self._reachable = True
        self._again = 0.0
        """Before then (monotonic clock) nothing is looked for."""
        self.read = self.bad_files = self.bad_rows = 0
        """Files read by this process, those put into quarantine, and the rows of others that were."""

    def take_all(self) -> int:
        """`take` until nothing is left. Returns how many files had rows that count."""
        total = 0
        while True:
            total += self.take()
            if not self._found:
                return total

    def take(self) -> int:
        """Take what is new, `AT_ONCE` files at most. Returns how many files had rows that count. A source that cannot
        be read is said once."""
        if not self._found and time.monotonic() >= self._again:
            begun = time.thread_time()
            try:
                self._found = self._look()
            except OSError as error:
                self._say(error)
                return 0
            self._say(None)
            self._again = time.monotonic() + REST * (time.thread_time() - begun)
        now, self._found = self._found[:AT_ONCE], self._found[AT_ONCE:]
        return self._take(now)

    def look_at_once(self) -> None:
        """The next `take` looks, whatever the last look cost."""
        self._again = 0.0

    def finished(self, names: Iterable[str]) -> None:
        """These files of the inbox have been read, and will not be again."""
        for name in names:
            (self._store.inbox / name).unlink(missing_ok=True)

    # --- finding ------------------------------------------------------------------------------------------------------

    def _look(self) -> list[tuple[int, str, _Place]]:
        """The files that are new, by the begin of their intervals. Raises OSError if the source cannot be read."""
        found = []
        root = self._place(_ROOT, self._source)
        names = self._new(root)  # raises OSError
        if names is not None:
            self._directories = {name for name in names if not name.startswith(".") and (self._source / name).is_dir()}
            found += [(_begin(name), name, root) for name in names - self._directories if _counts(name)]
        first = _first_day(self._store.last().closed)
        for name in sorted(self._directories):
            if _IS_DAY.fullmatch(name) and name < first:
                continue
            place = self._place(quote(name, safe=""), self._source / name)
            try:
                found += [(_begin(file), file, place) for file in self._new(place) or () if _counts(file)]
            except OSError:  # it has just been deleted
                continue
        self._forget(first)
        return sorted(found, key=lambda file: file[:2])

    def _place(self, name: str, path: Path) -> _Place:
        if name not in self._places:
            ledger = self._ledgers / f"{name}.txt"
            known = ledger.read_text().splitlines() if ledger.exists() else []
            self._places[name] = _Place(path, ledger, set(known), len(known))
        return self._places[name]

    def _new(self, place: _Place) -> set[str] | None:
        """The names in a directory that were not taken, None if it has not changed. Raises OSError."""
        changed = place.path.stat().st_mtime_ns
        if changed == place.changed and place.settled:
            return None
        place.settled, place.changed = changed == place.changed, changed
        names = set(os.listdir(place.path))
        place.taken &= names
        if place.written > 2 * len(place.taken) + 1000:  # of files that are no more
            with replacing(place.ledger) as out:
                out.writelines(f"{name}\n".encode() for name in sorted(place.taken))
            place.written = len(place.taken)
        return names - place.taken

    def _forget(self, first: str) -> None:
        """The ledgers of days that are over."""
        for ledger in self._ledgers.glob("*.txt"):
            if _IS_DAY.fullmatch(ledger.stem) and ledger.stem < first:
                ledger.unlink()
                self._places.pop(ledger.stem, None)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _take(self, files: list[tuple[int, str, _Place]]) -> int:
        good, pending, rows = 0, list[tuple[Path, pa.Table, bool]](), 0
        noted: list[tuple[_Place, str]] = []
        for _, name, place in files:
            file = place.path / name
            try:
                table, whole = self._check(file)
            except FileNotFoundError:  # its broker has just deleted it
                continue
            self.read += 1
            if table is not None:
                good += 1
                if whole and len(table) >= TOGETHER:
                    self._admit([(file, table, whole)], [(place, name)])
                    continue
            noted.append((place, name))
            if table is not None:
                pending.append((file, table, whole))
                rows += len(table)
            if rows >= TOGETHER:
                self._admit(pending, noted)
                pending, noted, rows = [], [], 0
        self._admit(pending, noted)
        return good

    def _check(self, file: Path) -> tuple[pa.Table | None, bool]:
        """The rows of a file that count, if any, and whether these are all it has. Raises FileNotFoundError."""
        try:
            table = _read(file)
        except ValueError as error:
            self._reject(file, str(error))
            return None, False
        bad = faults(table)
        if not bad:
            return table.cast(arrow_schema()), True
        reasons = pa.array([bad[number] for number in sorted(bad)], pa.string())
        kept = table.take(pa.array(sorted(bad), pa.int64())).append_column("fault", reasons)
        said = "; ".join(f"row {number}: {bad[number]}" for number in sorted(bad)[:5])
        reason = f"{len(bad)} of {len(table)} rows are impossible: {said}{'; ...' if len(bad) > 5 else ''}"
        logger.error("%s: %s; these rows are put into quarantine", file, reason)
        self.bad_rows += len(bad)
        with replacing(self._store.quarantine / file.name) as out:
            pq.write_table(kept, out)
        (self._store.quarantine / f"{file.name}.txt").write_text(f"{file}: {reason}\n")
        good = table.filter(pa.array([number not in bad for number in range(len(table))]))
        return (good.cast(arrow_schema()) if len(good) else None), False

    def _reject(self, file: Path, reason: str) -> None:
        self.bad_files += 1
        logger.error("%s is put into quarantine: %s", file, reason)
        _link(file, self._store.quarantine / file.name)
        (self._store.quarantine / f"{file.name}.txt").write_text(f"{file}: {reason}\n")

    def _admit(self, pending: list[tuple[Path, pa.Table, bool]], noted: list[tuple[_Place, str]]) -> None:
        """Put rows into the inbox, and note the files. Killed between the two it takes them again: a row that comes
        twice counts once."""
        if pending:
            to = self._store.inbox / f"{time.time_ns()}-{secrets.token_hex(4)}.parquet"
            if len(pending) == 1 and pending[0][2]:
                _link(pending[0][0], to)
            else:
                with replacing(to) as out:
                    pq.write_table(pa.concat_tables([table for _, table, _ in pending]), out, compression="zstd")
        ledgers: dict[str, list[str]] = {}
        places = {str(place.ledger): place for place, _ in noted}
        for place, name in noted:
            place.taken.add(name)
            ledgers.setdefault(str(place.ledger), []).append(name)
        for ledger, names in ledgers.items():
            places[ledger].written += len(names)
            with Path(ledger).open("a") as out:
                out.writelines(f"{name}\n" for name in names)
                out.flush()
                os.fsync(out.fileno())

    def _say(self, error: OSError | None) -> None:
        if (error is None) != self._reachable:
            self._reachable = error is None
            if error is None:
                logger.info("%s can be read again", self._source)
            else:
                logger.error("%s cannot be read, trying again: %s", self._source, error)


def _read(file: Path) -> pa.Table:
    """All rows of a file of counts. Raises FileNotFoundError, or ValueError for what is none, with the reason."""
    wanted = arrow_schema()
    try:
        with pq.ParquetFile(file) as parquet:
            if (reason := _schema_fault(parquet.schema_arrow, wanted)) is not None:
                raise ValueError(reason)
            table = parquet.read(columns=wanted.names).select(wanted.names)
        table.validate(full=True)
    except FileNotFoundError:
        raise
    except pa.ArrowInvalid as error:  # is a ValueError
        raise ValueError(f"cannot be read as Parquet: {_first_line(error)}") from None
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"cannot be read as Parquet: {_first_line(error)}") from None
    return table


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _schema_fault(schema: pa.Schema, wanted: pa.Schema) -> str | None:
    version = (schema.metadata or {}).get(VERSION_KEY)
    if version != str(SCHEMA_VERSION).encode():
        said = version.decode(errors="replace") if version is not None else "none"
        return f"is of schema version {said}, not {SCHEMA_VERSION}"
    for column in wanted:
        place = schema.get_field_index(column.name)
        if place < 0:
            return f"has no column {column.name}"
        if schema.field(place).type != column.type:
            return f"column {column.name} is {schema.field(place).type}, not {column.type}"
    return None


def _counts(name: str) -> bool:
    return name.endswith(".parquet") and not name.startswith(".") and "\n" not in name


def _begin(name: str) -> int:
    """Of the interval that a file tells of; 0 if its name does not say."""
    begin = name.removesuffix(".parquet").rpartition("-")[2]
    return int(begin) if begin.isascii() and begin.isdecimal() and len(begin) < 20 else 0


def _first_day(closed: int) -> str:
    """The first day that is looked at: that before the one in which the last closed window ends."""
    at = datetime.datetime.fromtimestamp(max(0, closed - DAY) / 1000, datetime.UTC)
    return at.strftime("%Y-%m-%d")


def _link(file: Path, to: Path) -> None:
    """The same file under another name, or a copy if that is on another disk."""
    to.unlink(missing_ok=True)
    try:
        os.link(file, to)
    except OSError:
        partial = to.with_name(f".{to.name}")
        shutil.copyfile(file, partial)
        partial.replace(to)
