"""Checks the brokers' files row by row and takes each once into the job's inbox.

A malformed file goes into quarantine: the log names it, and a note beside it gives the reason. If a file has impossible
rows (`limits`), only these rows go into quarantine; the others count. Spark reads only the inbox, so an unreachable
source or a vanished file stops nothing. The intake joins small files, because Spark notes each file of the inbox for
ever.
"""

from __future__ import annotations

import logging
import os
import secrets
import time

import pyarrow as pa
import pyarrow.parquet as pq

from monitoring.counts.limits import faults
from monitoring.counts.sources import Found, Source
from monitoring.decisions.store import Store
from monitoring.files import first_line, write_table
from saps.statistics import SCHEMA_VERSION
from saps.statistics.files_io import VERSION_KEY, arrow_schema

logger = logging.getLogger(__name__)

TOGETHER = 100_000
"""Approximate rows in a file of the inbox. A sound file with at least as many is hard-linked, not copied."""
AT_ONCE = 2000
"""Most files read in one `Intake.take`. The job works between two calls."""
TIMEOUT = 60.0
"""Seconds that `--once` waits for a stream that cannot be reached or has sent nothing yet."""


class Intake:
    """Takes files from a source into a store's inbox."""

    def __init__(self, source: Source, store: Store) -> None:
        self._source = source
        self._store = store
        self._found: list[Found] = []
        """Files found at the last look and not read yet."""
        self._reachable = True
        self.read = self.bad_files = self.bad_rows = 0
        """Files that this process read; files put into quarantine; rows of other files put into quarantine."""

    def take_all(self) -> int:
        """Call `take` until the source has nothing more. Returns the number of files with valid rows.

        A source that is not drained is given up after `TIMEOUT` seconds without such a file."""
        total, give_up = 0, time.monotonic() + TIMEOUT
        while True:
            good = self.take()
            total += good
            if good:
                give_up = time.monotonic() + TIMEOUT
            if not self._found and (self._source.drained() or time.monotonic() >= give_up):
                return total

    def take(self) -> int:
        """Take at most `AT_ONCE` new files. Returns the number of files with valid rows.

        A source that cannot be read is logged once, and the call returns 0."""
        if not self._found:
            try:
                self._found = self._source.look()
            except OSError as error:
                self._say(error)
                return 0
            self._say(None)
        now, self._found = self._found[:AT_ONCE], self._found[AT_ONCE:]
        return self._take(now)

    def _take(self, files: list[Found]) -> int:
        good, pending, rows = 0, list[tuple[Found, pa.Table, bool]](), 0
        noted: list[Found] = []
        for number, file in enumerate(files):
            try:
                table, whole = self._check(file)
            except FileNotFoundError:  # the broker has just deleted the file
                continue
            except OSError as error:  # the source is away: the remaining files are read once it is back
                self._say(error)
                self._found = files[number:] + self._found
                break
            self.read += 1
            if table is not None:
                good += 1
                if whole and len(table) >= TOGETHER:
                    self._admit([(file, table, whole)], [file])
                    continue
            noted.append(file)
            if table is not None:
                pending.append((file, table, whole))
                rows += len(table)
            if rows >= TOGETHER:
                self._admit(pending, noted)
                pending, noted, rows = [], [], 0
        self._admit(pending, noted)
        return good

    def _check(self, file: Found) -> tuple[pa.Table | None, bool]:
        """Return the valid rows of a file (None if it has none), and whether they are all its rows.

        Puts the file or its impossible rows into quarantine. Raises OSError."""
        try:
            table = self._read(file)
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
        logger.error("%s: %s; these rows are put into quarantine", file.where, reason)
        self.bad_rows += len(bad)
        write_table(self._store.folder, f"quarantine/{file.name}", kept)
        self._store.folder.write(f"quarantine/{file.name}.txt", f"{file.where}: {reason}\n".encode())
        good = table.filter(pa.array([number not in bad for number in range(len(table))]))
        return (good.cast(arrow_schema()) if len(good) else None), False

    def _read(self, file: Found) -> pa.Table:
        """Return all rows of a file of counts.

        Raises OSError if the source cannot be read, and ValueError with the reason for a malformed file."""
        wanted, path = arrow_schema(), self._source.local(file)
        content = path if path is not None else pa.BufferReader(self._source.content(file))
        try:
            with pq.ParquetFile(content) as parquet:
                if (reason := _schema_fault(parquet.schema_arrow, wanted)) is not None:
                    raise ValueError(reason)
                table = parquet.read(columns=wanted.names).select(wanted.names)
            table.validate(full=True)
        except FileNotFoundError:
            raise
        except pa.ArrowInvalid as error:  # a subclass of ValueError
            raise ValueError(f"cannot be read as Parquet: {first_line(error)}") from None
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"cannot be read as Parquet: {first_line(error)}") from None
        return table

    def _reject(self, file: Found, reason: str) -> None:
        self.bad_files += 1
        logger.error("%s is put into quarantine: %s", file.where, reason)
        if not self._linked(file, f"quarantine/{file.name}"):
            self._store.folder.write(f"quarantine/{file.name}", self._source.content(file))
        self._store.folder.write(f"quarantine/{file.name}.txt", f"{file.where}: {reason}\n".encode())

    def _admit(self, pending: list[tuple[Found, pa.Table, bool]], noted: list[Found]) -> None:
        """Put rows into the inbox, then confirm the files to the source.

        A process killed between the two steps takes the same files again. That is harmless, because a repeated row
        counts once."""
        if pending:
            to = f"inbox/{time.time_ns()}-{secrets.token_hex(4)}.parquet"
            file, _, whole = pending[0]
            if not (len(pending) == 1 and whole and self._linked(file, to)):
                write_table(self._store.folder, to, pa.concat_tables([table for _, table, _ in pending]))
        if noted:
            self._source.taken(noted)

    def _linked(self, file: Found, name: str) -> bool:
        """Hard-link a file into the state under `name`. Returns False if it is on another disk or machine."""
        source, to = self._source.local(file), self._store.folder.local(name)
        if source is None or to is None:
            return False
        try:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.unlink(missing_ok=True)
            os.link(source, to)
        except OSError:
            return False
        return True

    def _say(self, error: OSError | None) -> None:
        if (error is None) != self._reachable:
            self._reachable = error is None
            if error is None:
                logger.info("%s can be read again", self._source)
            else:
                logger.error("%s cannot be read, trying again: %s", self._source, first_line(error))


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
