"""Stores the log of publications that cut-off brokers have missed (`saps.overlay.missed.log`), beside the storage file.

``FILE.missed-N`` is segment N. A broker continues the files of its earlier incarnation. Writes are not flushed: they
survive the process, but a loss of power may destroy the last seconds.
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
        """Open the file of a segment. `new`: make the file, which must not exist. Raises `OSError`."""
        self._path = path
        self._file = os.open(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if new else 0), PRIVATE)
        self._size = 0 if new else os.fstat(self._file).st_size

    def append(self, raw: bytes) -> None:
        """Write bytes at the end. Raises `OSError`; the next call then overwrites the part that was written."""
        written = 0
        while written < len(raw):  # a full disk takes a part, then raises; the next record overwrites that part
            written += os.pwrite(self._file, raw[written:], self._size + written)
        self._size += len(raw)

    def read(self, offset: int, count: int) -> bytes:
        """Return up to `count` bytes from `offset`; fewer at the end of the file, none if it cannot be read."""
        try:
            return os.pread(self._file, count, offset)
        except OSError:  # the log treats too few bytes as damage
            return b""

    def close(self) -> None:
        """Close the file and delete it."""
        os.close(self._file)
        self._path.unlink(missing_ok=True)


def segments(database: Path) -> Callable[[int], FileSegment]:
    """Return a function that makes the segment with a given number beside the storage file `database`."""
    return lambda number: FileSegment(_path(database, number))


def left(database: Path) -> list[tuple[int, FileSegment]]:
    """Return the numbers and segments that exist beside the storage file `database`, in ascending order. Raises
    `OSError` if a segment cannot be opened."""
    names = (path.name.rpartition("-")[2] for path in database.parent.glob(glob.escape(database.name) + ".missed-*"))
    numbers = sorted(int(name) for name in names if name.isdigit())
    return [(number, FileSegment(_path(database, number), new=False)) for number in numbers]


def boot() -> str:
    """Return the identifier of the machine's present boot, during which all processes share one monotonic clock. The
    text is empty if the system has no such identifier."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _path(database: Path, number: int) -> Path:
    return database.with_name(f"{database.name}.missed-{number}")
