"""Reads and writes the data types of MQTT on the wire (MQTT 5.0, section 1.5) and the fixed header (2.1)."""

from __future__ import annotations

from saps.frontend.mqtt.budget import Budget
from saps.frontend.mqtt.codec.reasons import MalformedPacket

MAX_VARINT = 268_435_455
"""The largest variable byte integer, and so the largest remaining length in bytes."""


def encode_varint(value: int) -> bytes:
    """Encode a variable byte integer (1.5.5). `value` must not be negative. Raises `ValueError` above `MAX_VARINT`."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if not value <= MAX_VARINT:
        raise ValueError(f"{value} does not fit a variable byte integer")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_binary(value: bytes) -> bytes:
    """Encode binary data (1.5.6): two bytes of length, then the bytes. Raises `ValueError` above 65,535 bytes."""
    if len(value) > 0xFFFF:
        raise ValueError(f"{len(value)} bytes do not fit a field of at most 65535")
    return len(value).to_bytes(2) + value


def encode_string(value: str) -> bytes:
    """Encode a UTF-8 string (1.5.4). Raises `ValueError` above 65,535 bytes."""
    return encode_binary(value.encode())


def fixed_header(data: bytes, pos: int) -> tuple[int, int] | None:
    """Return the start and end of the body of the packet at `pos`, or None if the header is not complete.

    The end may lie beyond the data. Raises `MalformedPacket` for an invalid remaining length.
    """
    length = shift = 0
    size = len(data)
    body = pos + 1
    while body < size:
        byte = data[body]
        body += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            if not byte and shift:
                raise MalformedPacket("the remaining length is not in its shortest form")
            return body, body + length
        shift += 7
        if shift > 21:
            raise MalformedPacket("the remaining length has more than four bytes")
    return None


class Framer:
    """Joins the chunks of a transport until a packet is complete. It copies each byte O(1) times."""

    __slots__ = ("_need", "_partial", "_total", "kept")

    def __init__(self, total: Budget | None = None) -> None:
        """Make the framer of one connection. `total` counts the bytes that all framers together keep."""
        self._total = total or Budget(0)
        self._partial: bytearray | None = None
        self._need = 0
        self.kept = 0
        """Bytes kept for the next `feed`."""

    def drop(self) -> None:
        """Discard the kept bytes. Call this when the connection ends."""
        self._total.used -= self.kept
        self._partial, self.kept = None, 0

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to parse now: the kept bytes and `data`, or no bytes while the packet is incomplete.

        The caller must then `keep` or `postpone` the bytes that it has not parsed.
        """
        partial = self._partial
        if partial is None:
            return data
        self._total.used += len(data)
        partial += data
        self.kept = len(partial)
        if self.kept < self._need:
            return b""
        self.drop()
        return bytes(partial)

    def keep(self, data: bytes, pos: int) -> None:
        """Keep `data[pos:]`, the beginning of a packet, for the next `feed`."""
        if pos == len(data):
            return
        self.postpone(data, pos)
        bounds = fixed_header(data, pos)
        self._need = 2 if bounds is None else bounds[1] - pos

    def postpone(self, data: bytes, pos: int) -> None:
        """Keep `data[pos:]` for the next `feed` without looking at it."""
        self._partial = bytearray(memoryview(data)[pos:])
        self._need, self.kept = 0, len(self._partial)
        self._total.used += self.kept


class Reader:
    """Reads the fields of one packet's body in order. Every reading method raises `MalformedPacket`."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes, pos: int, end: int) -> None:
        self.data = data
        self.pos = pos
        self.end = end

    @property
    def left(self) -> int:
        """Number of bytes not read yet."""
        return self.end - self.pos

    def take(self, size: int) -> bytes:
        pos = self.pos
        if size > self.end - pos:
            raise MalformedPacket("the packet ends within a field")
        self.pos = pos + size
        return self.data[pos : pos + size]

    def integer(self, size: int) -> int:
        """Read a big-endian integer of `size` bytes."""
        return int.from_bytes(self.take(size))

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.integer(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if not byte and shift:
                    raise MalformedPacket("a variable byte integer is not in its shortest form")
                return value
            shift += 7
            if shift > 21:
                raise MalformedPacket("a variable byte integer has more than four bytes")

    def binary(self) -> bytes:
        return self.take(self.integer(2))

    def string(self) -> str:
        return decode_string(self.binary())

    def packet_id(self) -> int:
        value = self.integer(2)
        if not value:
            raise MalformedPacket("the packet identifier is 0")
        return value

    def finish(self) -> None:
        """Check that no bytes are left. Call this after the last field."""
        if self.pos != self.end:
            raise MalformedPacket(f"{self.left} bytes too many at the end of the packet")


def decode_string(data: bytes) -> str:
    """Decode a UTF-8 string (1.5.4). Raises `MalformedPacket` for invalid UTF-8, surrogates and U+0000."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise MalformedPacket("a string is not valid UTF-8") from None
    if "\0" in text:
        raise MalformedPacket("a string contains U+0000")
    return text
