"""What a disk holds, and what it would hold after a loss of power: files of one folder, in memory. Pure.

A write is there at once and durable after `fsync` of its file; a name is durable after `fsync` of its file or folder.
At a loss of power each write since then stays or goes by itself, as a disk with a cache may have it (after lazyfs).
"""

from __future__ import annotations

import errno
import random

TRUNCATE = -1
"""Stands for the offset of a change that sets the size."""


class File:
    """One file: its content, and the changes that are not durable."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._durable = bytearray()
        self._pending: list[tuple[int, bytes | int]] = []

    def write(self, offset: int, data: bytes) -> None:
        """Put bytes there."""
        _apply(self.data, offset, data)
        self._pending.append((offset, data))

    def truncate(self, size: int) -> None:
        """Cut it, or fill it up with zeros."""
        _apply(self.data, TRUNCATE, size)
        self._pending.append((TRUNCATE, size))

    def sync(self) -> None:
        """All of it is durable."""
        for change in self._pending:
            _apply(self._durable, *change)
        self._pending.clear()

    def lose(self, rng: random.Random) -> int:
        """The power fails. Gives how many changes are gone."""
        keep = rng.choice((0.0, 0.0, 0.5, 0.9))
        kept = [change for change in self._pending if rng.random() < keep]
        gone = len(self._pending) - len(kept)
        for change in kept:
            _apply(self._durable, *change)
        self.data = bytearray(self._durable)
        self._pending.clear()
        return gone


def _apply(data: bytearray, offset: int, what: bytes | int) -> None:
    if isinstance(what, int):
        del data[what:]
        data.extend(bytes(what - len(data)))
        return
    if offset > len(data):
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(what)] = what


class Volume:
    """A folder of files on a disk of so many bytes. What it refuses raises `OSError`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.names: dict[str, File] = {}
        self._durable: dict[str, File] = {}
        self.failing = False
        """Writes and syncs end with EIO."""
        self.slow = 0.0
        """Seconds that a sync takes."""

    @property
    def used(self) -> int:
        """Bytes of all files."""
        return sum(len(file.data) for file in self.names.values())

    @property
    def free(self) -> int:
        """Bytes that are left."""
        return max(0, self._size - self.used)

    def create(self, name: str) -> File:
        """A new file, or the one there is."""
        return self.names.setdefault(name, File())

    def write(self, file: File, offset: int, data: bytes) -> None:
        """Put bytes in a file. Raises ENOSPC or EIO."""
        self._check()
        if offset + len(data) - len(file.data) > self.free:
            raise OSError(errno.ENOSPC, "the disk is full")
        file.write(offset, data)

    def sync(self, file: File) -> None:
        """Make a file and its names durable. Raises EIO."""
        self._check()
        file.sync()
        self._durable |= {name: each for name, each in self.names.items() if each is file}

    def sync_names(self) -> None:
        """Make the folder durable. Raises EIO."""
        self._check()
        self._durable = dict(self.names)

    def lose(self, rng: random.Random) -> int:
        """The power fails. Gives how many changes of files are gone."""
        self.names = dict(self._durable)
        return sum(file.lose(rng) for file in set(self.names.values()))

    def _check(self) -> None:
        if self.failing:
            raise OSError(errno.EIO, "the disk fails")
