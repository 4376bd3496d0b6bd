"""The few MQTT 3.1.1 packets a load generator needs, encoded ahead of time.

QoS 0 publications reach a subscriber byte for byte as they were sent: they are verified by comparison with the ring
of packets. With QoS 1 the packet identifiers differ; but if all packets have one size, received bytes are a grid: the
field at offset k of every packet is the slice ``[k::size]``. In both cases Python verifies at C speed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

CONNACK_BYTES = 4
SUBACK_BYTES = 5
PUBACK_BYTES = 4
STAMP_BYTES = 8
"""The head of each payload: a sequence number or a time, big-endian."""


def remaining_length(size: int) -> bytes:
    """`size` as a variable byte integer (MQTT 3.1.1, 2.2.3)."""
    out = bytearray()
    while True:
        size, low = divmod(size, 128)
        out.append(low | (0x80 if size else 0))
        if not size:
            return bytes(out)


def _text(text: str) -> bytes:
    raw = text.encode()
    return len(raw).to_bytes(2, "big") + raw


def connect(client_id: str, lasting: bool = False) -> bytes:
    """CONNECT without keep-alive: nothing but the load is on the wire. `lasting`: with a session that outlives the
    connection; else with a clean one (3.1.2.4)."""
    body = _text("MQTT") + (b"\x04\x00\x00\x00" if lasting else b"\x04\x02\x00\x00") + _text(client_id)
    return b"\x10" + remaining_length(len(body)) + body


def subscribe(topic_filter: str, qos: int) -> bytes:
    """SUBSCRIBE to one filter, with packet identifier 1."""
    return subscribe_all([topic_filter], qos)


def subscribe_all(topic_filters: Iterable[str], qos: int) -> bytes:
    """SUBSCRIBE to all these filters, with packet identifier 1."""
    body = b"\x00\x01" + b"".join(_text(each) + bytes([qos]) for each in topic_filters)
    return b"\x82" + remaining_length(len(body)) + body


PINGREQ = b"\xc0\x00"
PINGRESP = b"\xd0\x00"
DISCONNECT = b"\xe0\x00"


def publish(topic: str, payload: bytes, qos: int, packet_id: int) -> bytes:
    """PUBLISH; `packet_id` is left out with QoS 0."""
    head = _text(topic) + (packet_id.to_bytes(2, "big") if qos else b"")
    return bytes([0x30 | qos << 1]) + remaining_length(len(head) + len(payload)) + head + payload


def pubacks(high: bytes | bytearray, low: bytes | bytearray) -> bytes:
    """One PUBACK for each packet identifier, given as columns of high and of low bytes."""
    out = bytearray(b"\x40\x02\x00\x00" * len(high))
    out[2::PUBACK_BYTES] = high
    out[3::PUBACK_BYTES] = low
    return bytes(out)


@dataclass(frozen=True)
class Layout:
    """Where the fields of every publication of a run are, in bytes from its start."""

    first: int
    """The first byte: packet type and QoS."""
    size: int
    packet_id: int
    """Meaningful with QoS 1 only."""
    stamp: int

    @classmethod
    def of(cls, topic: str, payload_bytes: int, qos: int) -> Layout:
        """The layout of publications to `topic`, or any other topic of the same length."""
        if payload_bytes < STAMP_BYTES:
            raise ValueError(f"the payload must have at least {STAMP_BYTES} bytes")
        packet = publish(topic, bytes(payload_bytes), qos, 1)
        stamp = len(packet) - payload_bytes
        return cls(packet[0], len(packet), stamp - 2, stamp)


class Ring:
    """`length` ready packets in a row, number i carrying sequence i; sent over and over, each time round.

    The length is a power of two of at most 32768, so that number i may be packet identifier i + 1. With `vary` the
    payloads differ in size by up to so many bytes around `payload_bytes`, and there is no grid.
    """

    def __init__(self, topic: str, payload_bytes: int, qos: int, length: int, vary: int = 0) -> None:
        if length & (length - 1) or not 0 < length <= 32768:
            raise ValueError("the length of a ring is a power of two, at most 32768")
        self.layout = Layout.of(topic, payload_bytes - vary, qos)
        """Of the smallest packet; of all, if they do not vary."""
        self.length = length
        self.vary = vary
        self._head = 2 + len(topic.encode())
        sizes = random.Random(length)
        joined = bytearray()
        self.ends: list[int] = []
        """Where each packet ends, in bytes from the start of the ring."""
        for number in range(length):
            padding = payload_bytes - STAMP_BYTES + (sizes.randint(-vary, vary) if vary else 0)
            payload = number.to_bytes(STAMP_BYTES, "big") + (_PADDING * (1 + padding // len(_PADDING)))[:padding]
            joined += publish(topic, payload, qos, number + 1)
            self.ends.append(len(joined))
        self.bytes = memoryview(bytes(joined))

    def span(self, start: int, count: int) -> int:
        """Bytes of `count` packets from number `start` on, around the ring as often as it takes."""
        rounds, last = divmod(start + count, self.length)
        return rounds * len(self.bytes) + self._offset(last) - self._offset(start)

    def number(self, packet: bytes) -> int | None:
        """Which packet of the ring (of QoS 0) this is, to the last byte; None if it is none of them."""
        stamp = self._head + (3 if packet[1] & 0x80 else 2)
        number = int.from_bytes(packet[stamp : stamp + STAMP_BYTES], "big")
        if number < self.length and self.bytes[self._offset(number) : self.ends[number]] == packet:
            return number
        return None

    def parts(self) -> list[tuple[bytes, bytes]]:
        """Of each packet (of QoS 1) what stands before and behind its packet identifier."""
        out: list[tuple[bytes, bytes]] = []
        for start, end in zip([0, *self.ends], self.ends, strict=False):
            packet = bytes(self.bytes[start:end])
            at = self._head + (3 if packet[1] & 0x80 else 2)
            out.append((packet[:at], packet[at + 2 :]))
        return out

    def _offset(self, number: int) -> int:
        return self.ends[number - 1] if number else 0


_PADDING = bytes(range(251))


def publications(data: bytes, first: int) -> tuple[list[bytes], bytes]:
    """The publications, each smaller than 16 KiB, that `data` begins with, and the incomplete rest.

    Raises ValueError unless each begins with the byte `first`.
    """
    found: list[bytes] = []
    pos = 0
    while len(data) - pos >= 4:
        if data[pos] != first:
            raise ValueError("something else than the expected publications arrived")
        size, body = data[pos + 1], pos + 2
        if size >= 0x80:
            size, body = size & 0x7F | data[pos + 2] << 7, pos + 3
        end = body + size
        if len(data) < end:
            break
        found.append(data[pos:end])
        pos = end
    return found, data[pos:]


def ring_length(window: int) -> int:
    """The ring for a window of `window` messages: long enough to tell a loss from a repetition."""
    return max(256, 1 << (4 * window - 1).bit_length())
