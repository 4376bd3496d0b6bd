"""The log of what cut-off brokers have missed (`saps.overlay.missed.log`), in files beside the database.

``FILE.missed-N`` is segment N. Files that an earlier life left are gone on with. What is written is in the operating
system's hands: it survives the process, and the last seconds of it perhaps no loss of power.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from pathlib import Path

from saps.runtime.atomic_file import PRIVATE


class FileSegment:
    """A segment in a file. (A `saps.overlay.missed.log.Segment`.)"""

    def __init__(self, path: Path, new: bool = True) -> None:
        """Raises `OSError`."""
        self._path = path
        self._file = os.open(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if new else 0), PRIVATE)
        self._size = 0 if new else os.fstat(self._file).st_size

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
    """Makes segments beside a database."""
    return lambda number: FileSegment(_path(database, number))


def left(database: Path) -> list[tuple[int, FileSegment]]:
    """The segments that there are beside a database, in their order. Raises `OSError` if one cannot be opened."""
    names = (path.name.rpartition("-")[2] for path in database.parent.glob(glob.escape(database.name) + ".missed-*"))
    numbers = sorted(int(name) for name in names if name.isdigit())
    return [(number, FileSegment(_path(database, number), new=False)) for number in numbers]


def boot() -> str:
    """Names the last start of the machine: until the next one all processes have the same monotonic clock. Empty where
    the system has no name for it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _path(database: Path, number: int) -> Path:
    return database.with_name(f"{database.name}.missed-{number}")
