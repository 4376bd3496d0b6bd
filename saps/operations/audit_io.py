"""Writes the audit log to a file of JSON lines, append only."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from saps.operations.audit import KEPT, Entry

logger = logging.getLogger(__name__)

TAIL = 512 * 1024
"""Bytes at the end of the file from which the broker reads the latest entries when it starts."""
MODE = 0o600


class AuditFile:
    """An open audit file. Another program may rotate the file; `reopen` then begins a new one."""

    def __init__(self, path: Path, later: Callable[[Callable[[], None]], object]) -> None:
        """Open or create the file. `later` runs an action once, soon; all entries until then are written together.
        Raises `OSError`."""
        self._path = path
        self._later = later
        self._lines: list[bytes] = []
        self.lost = 0
        """Entries lost because they could not be written."""
        self._torn = False
        """Whether the file ends in the middle of a line."""
        self._descriptor = self._open()
        self._closed = False

    def _open(self) -> int:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, MODE)
        size = os.fstat(descriptor).st_size
        self._torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        return descriptor

    def latest(self) -> list[Entry]:
        """Return the last entries in the file, oldest first, without invalid lines. Raises `OSError`."""
        with self._path.open("rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - TAIL)
            file.seek(begin)
            lines = file.read().split(b"\n")[begin > 0 :]
        found = []
        for line in lines[-2 * KEPT :]:
            try:
                found.append(msgspec.json.decode(line, type=Entry))
            except msgspec.MsgspecError:
                continue
        return found

    def write(self, entry: Entry) -> None:
        """Queue an entry to be written soon. Does nothing after `close`."""
        if self._closed:
            return
        if not self._lines:
            self._later(self.flush)
        self._lines.append(msgspec.json.encode(entry))

    def flush(self) -> None:
        """Write the queued entries. If that fails, those not written whole are lost and counted, and the first failure
        is logged."""
        lines, self._lines = self._lines, []
        if not lines:
            return
        data = b"\n" * self._torn + b"\n".join(lines) + b"\n"
        try:
            while data:
                written = os.write(self._descriptor, data)
                self._torn = data[written - 1 : written] != b"\n"
                data = data[written:]
        except OSError as error:
            if not self.lost:
                logger.error("operations.audit: cannot write %s: %s", self._path, error.strerror)
            self.lost += min(len(lines), data.count(b"\n"))

    def reopen(self) -> None:
        """Open the file by its name again, which may create a new one. If that fails, log it and keep the old file."""
        self.flush()
        try:
            opened = self._open()
        except OSError as error:
            logger.error("operations.audit: cannot open %s: %s", self._path, error.strerror)
            return
        os.close(self._descriptor)
        self._descriptor = opened

    def close(self) -> None:
        """Write the queued entries and close the file."""
        self._closed = True
        self.flush()
        os.close(self._descriptor)
