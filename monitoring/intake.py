"""The brokers' files: found, checked, and taken into the job's inbox, each once.

A file that is not what it should be goes into quarantine: it is named in the log, and a note beside it says what is
wrong. Spark reads the inbox only, so a source that cannot be reached, or a file that vanishes, stops nothing.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from monitoring.store import Store
from saps.statistics import SCHEMA_VERSION
from saps.statistics.files import VERSION_KEY, arrow_schema

logger = logging.getLogger(__name__)

NOT_NEGATIVE = ("start", "messages", "bytes", "received", "subscribers", "brokers", "copies", "joins", "leaves")
"""Columns in which a negative number shows that a file is broken."""


class Intake:
    """Takes files from a source directory into a store's inbox."""

    def __init__(self, source: Path, store: Store) -> None:
        self._source = source
        self._store = store
        self._ledger = store.root / "taken.txt"
        known = self._ledger.read_text().splitlines() if self._ledger.exists() else []
        self._taken = {*known, *_names(store.inbox), *_names(store.quarantine)}
        self._note(self._taken - set(known))
        self._reachable = True
        self.bad: dict[str, str] = {}
        """Files put into quarantine by this process, with the reason."""

    def take(self) -> int:
        """Take what is new. Returns how many good files there were. A source that cannot be read is said once."""
        try:
            found = sorted(file for file in self._source.rglob("*.parquet") if not file.name.startswith("."))
            if not self._source.is_dir():
                raise FileNotFoundError(2, "no such directory", str(self._source))
        except OSError as error:
            self._say(error)
            return 0
        self._say(None)
        taken = [file.name for file in found if file.name not in self._taken and self._admit(file)]
        self._note(taken)
        return len(taken)

    def _admit(self, file: Path) -> bool:
        try:
            reason = fault(file)
        except FileNotFoundError:  # its broker has just deleted it
            return False
        self._taken.add(file.name)
        if reason is not None:
            self._reject(file, reason)
            return False
        _link(file, self._store.inbox / file.name)
        return True

    def _reject(self, file: Path, reason: str) -> None:
        self.bad[file.name] = reason
        logger.error("%s is put into quarantine: %s", file, reason)
        _link(file, self._store.quarantine / file.name)
        (self._store.quarantine / f"{file.name}.txt").write_text(f"{file}: {reason}\n")

    def recheck(self, names: Iterable[str]) -> list[str]:
        """Read these files of the inbox through to their ends; those that cannot be go into quarantine. Their names."""
        bad = []
        for name in names:
            file = self._store.inbox / name
            if file.exists() and (reason := fault(file, deep=True)) is not None:
                self._reject(file, reason)
                file.unlink()
                bad.append(name)
        return bad

    def finished(self, names: Iterable[str]) -> None:
        """These files have been read, and will not be again."""
        for name in names:
            (self._store.inbox / name).unlink(missing_ok=True)

    def _note(self, names: Iterable[str]) -> None:
        with self._ledger.open("a") as ledger:
            ledger.writelines(f"{name}\n" for name in sorted(names))
            ledger.flush()
            os.fsync(ledger.fileno())

    def _say(self, error: OSError | None) -> None:
        if (error is None) != self._reachable:
            self._reachable = error is None
            if error is None:
                logger.info("%s can be read again", self._source)
            else:
                logger.error("%s cannot be read, trying again: %s", self._source, error)


def fault(file: Path, deep: bool = False) -> str | None:
    """What is wrong with a file of counts, None if nothing is; `deep`: read it through. Raises FileNotFoundError."""
    try:
        with pq.ParquetFile(file) as parquet:
            if (reason := _schema_fault(parquet.schema_arrow)) is not None:
                return reason
            for number in range(parquet.metadata.num_row_groups):
                if (reason := _group_fault(parquet.metadata.row_group(number))) is not None:
                    return reason
            if deep:
                parquet.read()
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        return f"cannot be read as Parquet: {str(error).splitlines()[0]}"
    return None


def _schema_fault(schema: pa.Schema) -> str | None:
    version = (schema.metadata or {}).get(VERSION_KEY)
    if version != str(SCHEMA_VERSION).encode():
        said = version.decode(errors="replace") if version is not None else "none"
        return f"is of schema version {said}, not {SCHEMA_VERSION}"
    for field in arrow_schema():
        place = schema.get_field_index(field.name)
        if place < 0:
            return f"has no column {field.name}"
        if schema.field(place).type != field.type:
            return f"column {field.name} is {schema.field(place).type}, not {field.type}"
    return None


def _group_fault(group: pq.RowGroupMetaData) -> str | None:
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema in NOT_NEGATIVE and column.is_stats_set:
            if column.statistics.null_count:
                return f"column {column.path_in_schema} has rows without a value"
            if column.statistics.has_min_max and column.statistics.min < 0:
                return f"column {column.path_in_schema} has {column.statistics.min}"
    return None


def _names(directory: Path) -> set[str]:
    return {file.name for file in directory.glob("*.parquet")}


def _link(file: Path, to: Path) -> None:
    """The same file under another name, or a copy if that is on another disk."""
    to.unlink(missing_ok=True)
    try:
        os.link(file, to)
    except OSError:
        partial = to.with_name(f".{to.name}")
        shutil.copyfile(file, partial)
        partial.replace(to)
