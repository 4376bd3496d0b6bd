"""Cuts a byte stream into OpenFlow messages: each begins with version, type, length and transaction id (7.1)."""

from __future__ import annotations

from collections.abc import Iterator

HEADER = 8
"""Length of the header in bytes, which the length field includes."""


class BadLengthError(ValueError):
    """A header with an impossible length, or one that exceeds the present limit."""


class Framer:
    """The framer of one connection. It keeps the bytes of an incomplete message: less than 64 KiB, since a length has
    16 bits."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Longest message accepted now, in bytes."""
        self._rest = bytearray()

    @property
    def pending(self) -> int:
        """Number of bytes of the incomplete message."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that are complete with `data`. Raises `BadLengthError` at a bad header; then feed no
        more."""
        buffer = self._rest
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= HEADER:
                length = int.from_bytes(buffer[start + 2 : start + 4], "big")
                if not HEADER <= length <= self.limit:
                    raise BadLengthError(f"a message of {length} bytes where {HEADER} to {self.limit} are possible")
                if len(buffer) - start < length:
                    break
                start += length
                yield bytes(buffer[start - length : start])
        finally:
            del buffer[:start]
