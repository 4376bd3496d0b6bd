"""Marks beside a storage file: how far it goes, written after each commit.

SQLite takes a write-ahead log that is cut, damaged or gone for the end of what was committed, and says nothing. So
after each transaction its number goes into ``FILE-mark``, before anything is acknowledged. A file that ends before its
mark has lost what was acknowledged.

The mark needs no flush of its own: the process may die at any moment, the operating system has it. After a loss of
power it may be behind, by a second at most where `sync` is ``full`` (`FLUSH`), never ahead. Two slots are written in
turn, so that a mark that was cut leaves the one before. The mark is also the lock: one process at a time.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from pathlib import Path

import msgspec

from saps.storage.damage import StorageError
from saps.storage.driver.clock import Moment

FLUSH = 1.0
"""Seconds between two flushes of the mark: what is damaged after a loss of power is found but for the last ones. Less
costs a flush more each time."""
_PLACES = (0, 4096)
_SLOT = 512


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """How far a file goes."""

    store: bytes
    """Which file, as `saps.storage.records.State.store`."""
    number: int
    """Its last transaction."""
    moment: Moment
    """When that was."""
    sync: str
    """What it was written with, as the setting."""
    clean: bool = False
    """The file was closed in order."""


class Marks(msgspec.Struct, frozen=True):
    """What the two slots hold."""

    last: Mark | None
    """The later one; None if neither can be read."""
    whole: bool
    """Both can be read."""


def mark_path(path: Path) -> Path:
    """Where a file's mark is."""
    return path.with_name(path.name + "-mark")


class MarkFile:
    """The open, locked mark of a storage file."""

    def __init__(self, path: Path) -> None:
        """Open and lock it. Raises `StorageError` if another process has it, `FileNotFoundError` if there is none."""
        self._file = mark_path(path).open("r+b", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise StorageError(f"{path}: another process uses it") from None

    def read(self) -> Marks:
        """What the slots hold. Raises `OSError`."""
        return read_marks(self._file.fileno())

    def write(self, mark: Mark) -> None:
        """Put a mark into its slot. Raises `OSError`."""
        self._put(_PLACES[mark.number % 2], mark)

    def reset(self, mark: Mark) -> None:
        """Put a mark into both slots: whatever they held no longer counts. Raises `OSError`."""
        for place in _PLACES:
            self._put(place, mark)
        self.flush()

    def flush(self) -> None:
        """Have the mark outlive a loss of power. Raises `OSError`."""
        os.fdatasync(self._file.fileno())

    def close(self) -> None:
        """Close it; the lock is free."""
        self._file.close()

    def _put(self, place: int, mark: Mark) -> None:
        body = msgspec.msgpack.encode(mark)
        slot = zlib.crc32(body).to_bytes(4, "big") + len(body).to_bytes(2, "big") + body
        if os.pwrite(self._file.fileno(), slot, place) != len(slot):
            raise OSError("the mark was not written as a whole")


def make_marks(path: Path, mark: Mark) -> None:
    """Make a file's mark, in place of any other, for its owner only. Raises `OSError`."""
    mark_path(path).unlink(missing_ok=True)
    os.close(os.open(mark_path(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    file = MarkFile(path)
    try:
        file.reset(mark)
    finally:
        file.close()


def read_marks(descriptor: int) -> Marks:
    """What the slots of an open mark file hold. Raises `OSError`."""
    found = [_decoded(os.pread(descriptor, _SLOT, place)) for place in _PLACES]
    readable = [mark for mark in found if mark is not None]
    return Marks(max(readable, key=lambda mark: mark.number, default=None), len(readable) == len(found))


def _decoded(slot: bytes) -> Mark | None:
    checksum, size = int.from_bytes(slot[:4], "big"), int.from_bytes(slot[4:6], "big")
    body = slot[6 : 6 + size]
    if len(body) != size or not body or zlib.crc32(body) != checksum:
        return None
    try:
        return msgspec.msgpack.decode(body, type=Mark)
    except msgspec.MsgspecError:
        return None


def shortfall(marks: Marks, store: bytes, number: int) -> str | None:
    """What a file with this last transaction lacks, by its marks; None if nothing."""
    last = marks.last
    if last is None:
        return "its mark cannot be read: whether acknowledged transactions are missing cannot be told"
    if last.store != store:
        return "the mark beside it belongs to another file"
    if number < last.number:
        until = last.moment.text
        return (
            f"{last.number - number} acknowledged transactions are missing, the last of {until}: the file ends with "
            f"number {number} of {last.number} (its -wal is gone, cut or damaged, or an older copy was put back)"
        )
    if not marks.whole and number == last.number:
        return "its mark is damaged: whether the last acknowledged transaction is there cannot be told"
    return None
