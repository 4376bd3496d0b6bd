"""Marks beside a storage file: the number of its last transaction, written after each commit.

SQLite treats a truncated, damaged or missing write-ahead log silently as the end of the commits. Each transaction's
number therefore goes into ``FILE-mark`` before anything is acknowledged. A file that ends before its mark has lost
acknowledged transactions.

A mark needs no flush with each commit: it survives a crash of the process in the operating system's cache. After a loss
of power the mark may be behind the file, by at most `FLUSH` seconds where `sync` is ``full``, but never ahead. Marks go
into two slots in turn, so that a truncated mark leaves the one before. The mark is also the lock that keeps a second
process out.
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
"""Seconds between two flushes of the mark. After a loss of power, the loss of an older transaction is still detected. A
shorter interval costs more writes to the disk."""
_PLACES = (0, 4096)
"""Offsets of the two slots in bytes."""
_SLOT = 512
"""Greatest size of a slot's content in bytes."""


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """The last transaction of a file."""

    store: bytes
    """Identity of the file, as `saps.storage.records.State.store`."""
    number: int
    """Number of the last transaction."""
    moment: Moment
    """Time of the last transaction."""
    sync: str
    """The setting `sync` with which the transaction was written."""
    clean: bool = False
    """Whether the file was closed in order."""


class Marks(msgspec.Struct, frozen=True):
    """The content of the two slots."""

    last: Mark | None
    """The mark with the higher number; None if neither slot can be read."""
    whole: bool
    """Whether both slots can be read."""


def mark_path(path: Path) -> Path:
    """Return the path of a storage file's mark."""
    return path.with_name(path.name + "-mark")


class MarkFile:
    """The open, locked mark of a storage file."""

    def __init__(self, path: Path) -> None:
        """Open and lock the mark of the storage file `path`. Raises `StorageError` if another process has locked it,
        `FileNotFoundError` if there is no mark."""
        self._file = mark_path(path).open("r+b", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise StorageError(f"{path}: another process uses it") from None

    def read(self) -> Marks:
        """Return the content of the slots. Raises `OSError`."""
        return read_marks(self._file.fileno())

    def write(self, mark: Mark) -> None:
        """Write a mark into its slot, without a flush. Raises `OSError`."""
        self._put(_PLACES[mark.number % 2], mark)

    def reset(self, mark: Mark) -> None:
        """Write a mark into both slots, over all earlier marks, and flush them. Raises `OSError`."""
        for place in _PLACES:
            self._put(place, mark)
        self.flush()

    def flush(self) -> None:
        """Flush the mark to the disk, so that it survives a loss of power. Raises `OSError`."""
        os.fdatasync(self._file.fileno())

    def close(self) -> None:
        """Close the mark and release the lock."""
        self._file.close()

    def _put(self, place: int, mark: Mark) -> None:
        body = msgspec.msgpack.encode(mark)
        slot = zlib.crc32(body).to_bytes(4, "big") + len(body).to_bytes(2, "big") + body
        if os.pwrite(self._file.fileno(), slot, place) != len(slot):
            raise OSError("the mark was not written as a whole")


def make_marks(path: Path, mark: Mark) -> None:
    """Make the mark of a storage file, in place of any other mark, readable only by its owner. Raises `OSError`."""
    mark_path(path).unlink(missing_ok=True)
    os.close(os.open(mark_path(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    file = MarkFile(path)
    try:
        file.reset(mark)
    finally:
        file.close()


def read_marks(descriptor: int) -> Marks:
    """Return the content of the slots of an open mark file. Raises `OSError`."""
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
    """Return what a file lacks according to its marks, or None if nothing. `store`, `number`: the file's identity and
    last transaction."""
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
