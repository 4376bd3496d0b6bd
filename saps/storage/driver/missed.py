"""Stores the log of publications that cut-off brokers have missed (`saps.overlay.missed.log`), beside the storage file.

``FILE.missed-N`` is segment N. A broker continues the files of its earlier incarnation. Writes survive the process.
With `Unflushed` they are flushed with the storage's next commit; without, a loss of power may destroy the last seconds.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from pathlib import Path

from saps.runtime.atomic_file import PRIVATE, sync_directory


class Unflushed:
    """What was written since the last flush. The event loop adds to it, the thread of the storage flushes it."""

    def __init__(self, folder: Path, on_written: Callable[[], None]) -> None:
        """`folder`: that of the files. `on_written` is called when there is something to flush."""
        self._folder = folder
        self._on_written = on_written
        self._flushes: set[Callable[[], None]] = set()

    def __bool__(self) -> bool:
        return bool(self._flushes)

    def add(self, flush: Callable[[], None]) -> None:
        """Have `flush`, which may raise `OSError`, called at the next flush."""
        self._flushes.add(flush)
        self._on_written()

    def renamed(self) -> None:
        """Note that a file was made or deleted."""
        self.add(self._sync_folder)

    def _sync_folder(self) -> None:
        sync_directory(self._folder)

    def flush(self) -> None:
        """Flush to the disk what has been added so far. Raises `OSError`; the next call then tries again."""
        for flush in tuple(self._flushes):
            self._flushes.discard(flush)  # before: a write meanwhile adds it again, for the next call
            try:
                flush()
            except OSError:
                self._flushes.add(flush)
                raise


class FileSegment:
    """A segment in a file. (A `saps.overlay.missed.log.Segment`.)"""

    def __init__(self, path: Path, new: bool = True, unflushed: Unflushed | None = None) -> None:
        """Open the file of a segment. `new`: make the file, which must not exist. `unflushed` takes note of what has to
        be flushed; without it nothing is. Raises `OSError`."""
        self._path = path
        self._file = os.open(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if new else 0), PRIVATE)
        self._size = 0 if new else os.fstat(self._file).st_size
        self._closed = False
        self._unflushed = unflushed
        if new and unflushed is not None:
            unflushed.renamed()

    def append(self, raw: bytes) -> None:
        """Write bytes at the end. Raises `OSError`; the next call then overwrites the part that was written."""
        written = 0
        while written < len(raw):  # a full disk takes a part, then raises; the next record overwrites that part
            written += os.pwrite(self._file, raw[written:], self._size + written)
        self._size += len(raw)
        if self._unflushed is not None:
            self._unflushed.add(self.flush)

    def flush(self) -> None:
        """Flush what was written to the disk, unless the file is deleted; from another thread. Raises `OSError`."""
        try:
            os.fdatasync(self._file)
        except OSError:
            if not self._closed:
                raise

    def read(self, offset: int, count: int) -> bytes:
        """Return up to `count` bytes from `offset`; fewer at the end of the file, none if it cannot be read."""
        try:
            return os.pread(self._file, count, offset)
        except OSError:  # the log treats too few bytes as damage
            return b""

    def close(self) -> None:
        """Close the file and delete it."""
        self._closed = True
        os.close(self._file)
        self._path.unlink(missing_ok=True)
        if self._unflushed is not None:
            self._unflushed.renamed()


def segments(database: Path, unflushed: Unflushed | None = None) -> Callable[[int], FileSegment]:
    """Return a function that makes the segment with a given number beside the storage file `database`."""
    return lambda number: FileSegment(_path(database, number), unflushed=unflushed)


def files(database: Path) -> list[tuple[int, Path]]:
    """Return the numbers and files of the segments that exist beside the storage file `database`, in ascending
    order."""
    names = (path.name.rpartition("-")[2] for path in database.parent.glob(glob.escape(database.name) + ".missed-*"))
    return [(number, _path(database, number)) for number in sorted(int(name) for name in names if name.isdigit())]


def left(database: Path, unflushed: Unflushed | None = None) -> list[tuple[int, FileSegment]]:
    """Return the numbers and segments that exist beside the storage file `database`, in ascending order. Raises
    `OSError` if a segment cannot be opened."""
    found = [(number, FileSegment(path, False, unflushed)) for number, path in files(database)]
    if unflushed is not None:  # the process may have been killed before it flushed them
        for _, segment in found:
            unflushed.add(segment.flush)
    return found


def boot() -> str:
    """Return the identifier of the machine's present boot, during which all processes share one monotonic clock. The
    text is empty if the system has no such identifier."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _path(database: Path, number: int) -> Path:
    return database.with_name(f"{database.name}.missed-{number}")
