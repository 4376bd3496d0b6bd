"""The log of what cut-off brokers have missed (`saps.overlay.missed.log`), in files beside the database.

``FILE.missed-N`` is segment N. Files that an earlier life left are removed: its numbers count no more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from saps.storage.driver.files import PRIVATE


class FileSegment:
    """A segment in a file. (A `saps.overlay.missed.log.Segment`.)"""

    def __init__(self, path: Path) -> None:
        """Raises `OSError`."""
        self._path = path
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE)
        self._size = 0

    def append(self, raw: bytes) -> None:
        written = 0
        while written < len(raw):  # a full disk takes a part first; the next record begins where this one did
            written += os.pwrite(self._file, raw[written:], self._size + written)
        self._size += len(raw)

    def read(self, offset: int, count: int) -> bytes:
        try:
            return os.pread(self._file, count, offset)
        except OSError:  # whoever reads finds too little
            return b""

    def close(self) -> None:
        os.close(self._file)
        self._path.unlink(missing_ok=True)


def segments(database: Path) -> Callable[[int], FileSegment]:
    """Makes segments beside a database, where it removes those that are there. Raises `OSError` if it cannot."""
    for left in database.parent.glob(database.name + ".missed-*"):
        left.unlink()
    return lambda number: FileSegment(database.with_name(f"{database.name}.missed-{number}"))
