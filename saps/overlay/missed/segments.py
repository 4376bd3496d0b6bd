"""Segments of the log of missed publications: in memory, or on a disk that may fail for a while.

What the disk refuses waits in memory until it takes it. A broker whose disk fails still has what others have missed.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from saps.marks import hit

logger = logging.getLogger(__name__)

IN_MEMORY = 64 << 20
"""Limit of a log in memory, and of what waits there for the disk, in bytes."""

CHUNK = 1 << 16
"""Bytes written at once of what waits: an attempt on a disk that still fails costs no more than these."""


class Segment(Protocol):
    """Storage of one segment of the log: bytes that are appended and read."""

    def append(self, raw: bytes) -> None:
        """Append bytes. Raises `OSError` if they cannot be stored."""

    def read(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from `offset` on, or fewer if the segment has fewer or cannot be read."""

    def close(self) -> None:
        """Discard the segment."""


class InMemory:
    """A segment in memory."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def append(self, raw: bytes) -> None:
        self._bytes += raw

    def read(self, offset: int, count: int) -> bytes:
        return bytes(self._bytes[offset : offset + count])

    def close(self) -> None:
        self._bytes.clear()


class Spool:
    """The segments of a log, and what of them waits in memory for the disk."""

    def __init__(self, make: Callable[[int], Segment]) -> None:
        self.make = make
        """Makes the segment with a number. May raise `OSError`."""
        self._waiting: list[_Spooled] = []
        """The segments whose end is in memory, the oldest first."""
        self.bytes = 0

    def segment(self, number: int) -> Segment:
        """Return a new segment, which waits in memory while it cannot be made or written to."""
        return _Spooled(self, partial(self.make, number))

    def refused(self, segment: _Spooled, error: OSError) -> None:
        """Note that the disk has refused what was appended to a segment."""
        hit("the disk refuses what was missed")
        if not self._waiting:
            logger.error("publications for brokers that are cut off wait in memory for the disk: %s", error)
        if segment not in self._waiting:
            self._waiting.append(segment)

    def closed(self, segment: _Spooled) -> None:
        """Note that nothing of a segment waits any more, as it is discarded."""
        if segment in self._waiting:
            self._waiting.remove(segment)

    def write(self) -> None:
        """Write what waits, as far as the disk takes it."""
        if not self._waiting:
            return
        while self._waiting:
            try:
                self._waiting[0].write()
            except OSError:
                return
            del self._waiting[0]
        logger.info("publications for brokers that are cut off are on the disk again")


class _Spooled:
    """A segment of which the end may wait in memory."""

    def __init__(self, spool: Spool, make: Callable[[], Segment]) -> None:
        self._spool = spool
        self._make = make
        self._segment: Segment | None = None
        """None until it can be made."""
        self._size = 0
        """Bytes in `_segment`."""
        self._rest = bytearray()
        """The bytes behind them, which wait."""

    def append(self, raw: bytes) -> None:
        if not self._rest:
            try:
                self._put(raw)
                return
            except OSError as error:
                self._spool.refused(self, error)
        if self._spool.bytes + len(raw) > IN_MEMORY:
            raise OSError(errno.ENOSPC, "no room in memory for what waits for the disk")
        self._spool.bytes += len(raw)
        self._rest += raw

    def write(self) -> None:
        """Write what waits. Raises `OSError`."""
        while self._rest:
            chunk = bytes(self._rest[:CHUNK])
            self._put(chunk)
            del self._rest[:CHUNK]
            self._spool.bytes -= len(chunk)

    def _put(self, raw: bytes) -> None:
        if self._segment is None:
            self._segment = self._make()
        self._segment.append(raw)
        self._size += len(raw)

    def read(self, offset: int, count: int) -> bytes:
        written = min(count, max(0, self._size - offset))
        found = self._segment.read(offset, written) if self._segment is not None and written else b""
        begin = max(0, offset - self._size)
        return found + self._rest[begin : begin + count - written]

    def close(self) -> None:
        self._spool.bytes -= len(self._rest)
        self._spool.closed(self)
        if self._segment is not None:
            self._segment.close()
