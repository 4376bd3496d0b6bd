"""Stores the log of publications that cut-off brokers have missed (`saps.overlay.missed.log`), beside the storage file.

``FILE.missed-N`` is segment N. A broker continues the files of its earlier incarnation. Writes survive the process.
With `Unflushed` they are flushed with the storage's next commit; without, a loss of power may destroy the last seconds.
"""

from __future__ import annotations

import glob
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

from saps.runtime.atomic_file import PRIVATE, sync_directory


class Unflushed:
    """The segments that were written to since the last flush. The event loop adds them, the thread of the storage
    flushes them."""

    def __init__(self, folder: Path, on_written: Callable[[], None]) -> None:
        """`folder`: that of the files. `on_written` is called when there is something to flush."""
        self._folder = folder
        self._on_written = on_written
        self._segments: deque[FileSegment] = deque()
        self._names = False
        """Whether files were made or deleted since."""

    def add(self, segment: FileSegment) -> None:
        """Add a segment that was written to."""
        if not segment.unflushed:
            segment.unflushed = True
            self._segments.append(segment)
        self._on_written()

    def renamed(self) -> None:
        """Note that a file was made or deleted."""
        self._names = True
        self._on_written()

    def flush(self) -> None:
        """Flush all of them to the disk. Raises `OSError`; the next call then tries again."""
        while self._segments:
            segment = self._segments[0]
            segment.unflushed = False  # before: a write meanwhile adds it again
            try:
                segment.flush()
            except OSError:
                segment.unflushed = True
                raise
            self._segments.popleft()
        if self._names:
            self._names = False
            try:
                sync_directory(self._folder)
            except OSError:
                self._names = True
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
        self.unflushed = False
        """Whether it is among those to be flushed."""
        if new and unflushed is not None:
            unflushed.renamed()

    def append(self, raw: bytes) -> None:
        """Write bytes at the end. Raises `OSError`; the next call then overwrites the part that was written."""
        written = 0
        while written < len(raw):  # a full disk takes a part, then raises; the next record overwrites that part
            written += os.pwrite(self._file, raw[written:], self._size + written)
        self._size += len(raw)
        if self._unflushed is not None:
            self._unflushed.add(self)

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


def left(database: Path, unflushed: Unflushed | None = None) -> list[tuple[int, FileSegment]]:
    """Return the numbers and segments that exist beside the storage file `database`, in ascending order. Raises
    `OSError` if a segment cannot be opened."""
    names = (path.name.rpartition("-")[2] for path in database.parent.glob(glob.escape(database.name) + ".missed-*"))
    numbers = sorted(int(name) for name in names if name.isdigit())
    found = [(number, FileSegment(_path(database, number), False, unflushed)) for number in numbers]
    if unflushed is not None:  # the process may have been killed before it flushed them
        for _, segment in found:
            unflushed.add(segment)
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
