"""The file of the audit log: JSON lines, appended only."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from saps.operations.audit import KEPT, Entry

logger = logging.getLogger(__name__)

TAIL = 512 * 1024
"""Bytes at the end of the file that are read at the start."""
MODE = 0o600


class AuditFile:
    """An open file, which another program may move away: `reopen` begins a new one."""

    def __init__(self, path: Path, later: Callable[[Callable[[], None]], object]) -> None:
        """`later` runs something soon, once: what is written until then goes in one piece. Raises `OSError`."""
        self._path = path
        self._later = later
        self._lines: list[bytes] = []
        self.lost = 0
        """Entries that could not be written."""
        self._descriptor = self._open()
        self._closed = False

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, MODE)

    def latest(self) -> list[Entry]:
        """What was written last; lines that are none are left out. Raises `OSError`."""
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
        """Have an entry written soon. Nothing is written once it is closed."""
        if self._closed:
            return
        if not self._lines:
            self._later(self.flush)
        self._lines.append(msgspec.json.encode(entry))

    def flush(self) -> None:
        """Write what waits. What cannot be written is lost, counted, and said once."""
        lines, self._lines = self._lines, []
        if not lines:
            return
        data = b"\n".join(lines) + b"\n"
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            if not self.lost:
                logger.error("operations.audit: cannot write %s: %s", self._path, error.strerror)
            self.lost += len(lines)

    def reopen(self) -> None:
        """Go on in a file of that name, which may be a new one. If it cannot be opened the old one stays."""
        self.flush()
        try:
            opened = self._open()
        except OSError as error:
            logger.error("operations.audit: cannot open %s: %s", self._path, error.strerror)
            return
        os.close(self._descriptor)
        self._descriptor = opened

    def close(self) -> None:
        """Write the rest."""
        self._closed = True
        self.flush()
        os.close(self._descriptor)
