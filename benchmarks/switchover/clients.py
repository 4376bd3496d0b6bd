"""Lean MQTT 3.1.1 clients: what a message costs here must not be what limits the brokers.

All publications of a run have one size, so that what arrives is a grid of packets that is taken apart in C. The
payload is the publisher's number, the number of the message and the time it was sent at.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from benchmarks import packets
from benchmarks.switchover.record import Flow

TIMEOUT = 60.0
"""Seconds a broker may take for CONNACK, SUBACK or UNSUBACK. A SUBACK waits for a complete rendezvous in the mesh."""
BUFFER = 1 << 18
"""Bytes read at once."""
_HEAD = struct.Struct(">HQd")
PAYLOAD = 64
"""Bytes of a payload at least."""

Address = tuple[str, int]


class ClientError(Exception):
    """A broker refused something, closed the connection, or sent what the run does not allow."""


class Form(NamedTuple):
    """The form of all publications to the one topic of a run."""

    topic: str
    payload: int = PAYLOAD
    """Bytes."""

    def packet(self, qos: int, publisher: int, number: int) -> bytes:
        """PUBLISH of a message sent now."""
        payload = _HEAD.pack(publisher, number, time.monotonic()).ljust(self.payload, b".")
        return packets.publish(self.topic, payload, qos, 1 + number % 65535)


class Publisher:
    """Publishes at a steady rate. With QoS 1 it counts what has been acknowledged and holds back at the window."""

    def __init__(self, sock: socket.socket, form: Form, number: int, rate: float, qos: int, window: int = 2000) -> None:
        """`sock` is connected, past CONNACK, and does not block."""
        self.sock = sock
        self.number = number
        self.sent = 0
        """Number of the last message; counted before it is sent."""
        self.acknowledged = 0
        self.rate = rate
        """Messages a second, if the broker takes them."""
        self.held = 0
        """Messages that left late because the broker did not take, or acknowledge, earlier ones."""
        self._form, self._qos, self._step, self._window = form, qos, 1.0 / rate, window
        self._due = time.monotonic()
        self._unsent = b""
        self._tail = b""
        self.active = True

    @property
    def due(self) -> float:
        """When the next message is to leave."""
        return self._due

    def publish(self, now: float) -> None:
        """Send what is due."""
        if self._unsent and not self._flush():
            self._due += self._step
            self.held += 1
            return
        while self._due <= now and self.active:
            self._due += self._step
            if self._qos and self.sent - self.acknowledged >= self._window:
                self.held += 1
                continue
            self.sent += 1
            self._unsent = self._form.packet(self._qos, self.number, self.sent)
            if not self._flush():
                return

    def _flush(self) -> bool:
        with suppress(BlockingIOError):
            self._unsent = self._unsent[self.sock.send(self._unsent) :]
        return not self._unsent

    def read(self) -> None:
        """Take in PUBACKs. Raises ClientError."""
        try:
            data = self.sock.recv(BUFFER)
        except BlockingIOError:
            return
        if not data:
            raise ClientError("the broker closed a publisher's connection")
        data = self._tail + data
        whole = len(data) // packets.PUBACK_BYTES
        self.acknowledged += whole
        self._tail = data[whole * packets.PUBACK_BYTES :]


class Subscriber:
    """Receives, and keeps account by publisher. With QoS 1 it acknowledges."""

    def __init__(self, sock: socket.socket, form: Form, qos: int, early: bytes, owed: dict[int, int]) -> None:
        """`sock` is past SUBACK; `early` came with it. `owed`: the first number of each publisher that must come."""
        self.sock = sock
        self.flows = {publisher: Flow(first) for publisher, first in owed.items()}
        self.oldest = 0.0
        """The longest that a message has been under way, in seconds."""
        packet = form.packet(qos, 0, 0)
        self._size, self._first = len(packet), packet[0]
        self._at = len(packet) - form.payload
        self._grid = struct.Struct(f">{self._at}xHQd{form.payload - _HEAD.size}x")
        self._tail = early
        self._qos = qos

    def read(self) -> None:
        """Take in what has arrived. Raises ClientError."""
        try:
            data = self.sock.recv(BUFFER)
        except BlockingIOError:
            return
        if not data:
            raise ClientError("the broker closed a subscriber's connection")
        if self._tail:
            data = self._tail + data
        count = len(data) // self._size
        end = count * self._size
        self._tail = data[end:]
        if count:
            self._account(data[:end], count)

    def _account(self, data: bytes, count: int) -> None:
        if data[:: self._size].count(self._first) != count:
            raise ClientError("something else than the run's publications arrived")
        now = time.monotonic()
        entries = list(self._grid.iter_unpack(data))
        self.oldest = max(self.oldest, now - min(entry[2] for entry in entries))
        by_publisher: dict[int, list[int]] = {}
        for publisher, number, _ in entries:
            by_publisher.setdefault(publisher, []).append(number)
        for publisher, numbers in by_publisher.items():
            flow = self.flows.get(publisher)
            if flow is None:
                flow = self.flows[publisher] = Flow(1)
            flow.take(numbers, now)
        if self._qos:
            at = self._at - 2
            self.sock.send(packets.pubacks(data[at :: self._size], data[at + 1 :: self._size]))


def connect(sock: socket.socket, name: str) -> None:
    """CONNECT, and wait for CONNACK, on a connected socket. Raises ClientError."""
    sock.settimeout(TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(packets.connect(name))
    answer = _until(sock, 0x20)[0]
    if answer[3] != 0:
        raise ClientError(f"CONNECT was answered with {answer.hex()}")


def subscribe(sock: socket.socket, topic: str, qos: int) -> bytes:
    """SUBSCRIBE, and wait for SUBACK. Gives what else has come: publications. Raises ClientError."""
    sock.sendall(packets.subscribe(topic, qos))
    answer, others = _until(sock, 0x90)
    if answer[4] != qos:
        raise ClientError(f"SUBSCRIBE was answered with {answer.hex()}")
    return others


def unsubscribe(sock: socket.socket, topic: str) -> None:
    """UNSUBSCRIBE, and wait for UNSUBACK."""
    sock.settimeout(TIMEOUT)
    raw = topic.encode()
    body = b"\x00\x02" + len(raw).to_bytes(2, "big") + raw
    sock.sendall(b"\xa2" + packets.remaining_length(len(body)) + body)
    # What has been read before may end in the middle of a packet; the end of the connection shows that all is done.
    sock.sendall(packets.DISCONNECT)
    while sock.recv(BUFFER):
        pass


def _until(sock: socket.socket, kind: int) -> tuple[bytes, bytes]:
    """The packet of this kind, and all that came before and behind it."""
    data, others = b"", deque[bytes]()
    while True:
        found, data = _split(data)
        for at, packet in enumerate(found):
            if packet[0] == kind:
                return packet, b"".join([*others, *found[at + 1 :], data])
            others.append(packet)
        try:
            more = sock.recv(BUFFER)
        except TimeoutError:
            raise ClientError(f"no packet of type {kind:#x} within {TIMEOUT:.0f} s") from None
        if not more:
            raise ClientError("the broker closed the connection")
        data += more


def _split(data: bytes) -> tuple[list[bytes], bytes]:
    """The complete packets at the head of `data` (each smaller than 16 KiB), and the rest."""
    found, pos = [], 0
    while len(data) - pos >= 2:
        size, body = data[pos + 1], pos + 2
        if size >= 0x80:
            if len(data) - pos < 3:
                break
            size, body = size & 0x7F | data[pos + 2] << 7, pos + 3
        if len(data) < body + size:
            break
        found.append(data[pos : body + size])
        pos = body + size
    return found, data[pos:]
