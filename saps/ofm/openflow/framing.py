"""A byte stream cut into OpenFlow messages: each begins with version, type, length and transaction id (7.1)."""

from __future__ import annotations

from collections.abc import Iterator

HEADER = 8
"""Bytes of the header, which the length includes."""


class BadLengthError(ValueError):
    """A header states a length that no message has, or more than is allowed now."""


class Framer:
    """Keeps what has come of an incomplete message: less than 64 KiB, since a length has 16 bits."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Bytes of the longest message that is taken now."""
        self._rest = bytearray()

    @property
    def pending(self) -> int:
        """Bytes of the message that is not complete."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The messages that are complete with `data`. Raises `BadLengthError` at a bad header; then it is over."""
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
