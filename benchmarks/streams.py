"""The two ends of a measured connection: non-blocking, and nearly free of work per message."""

from __future__ import annotations

import socket
from array import array
from bisect import bisect_right
from collections.abc import Iterable

from benchmarks import packets
from benchmarks.packets import Layout, Ring

BUFFER_BYTES = 1 << 20
"""Most that is read at once."""


class StreamError(Exception):
    """A broker closed a measured connection, or sent something else than what the run allows."""


class Subscriber:
    """One subscriber's account of its publisher's messages. `on_readable` takes in what has arrived."""

    def __init__(self, ring: Ring) -> None:
        self.position = 0
        """Messages of the publisher accounted for: received or lost."""
        self.received = 0
        self.lost = 0
        self.repeated = 0
        """Received again, or after a later message."""
        self._ring = ring

    def on_readable(self) -> None:
        """Take in what has arrived. Raises StreamError."""
        raise NotImplementedError

    def _expected(self, count: int) -> None:
        self.position += count
        self.received += count

    def _account(self, sequences: Iterable[int]) -> None:
        """The slow path: something was lost, repeated or out of order."""
        length = self._ring.length
        for sequence in sequences:
            ahead = (sequence - self.position) % length
            if ahead > length // 2:
                self.repeated += 1
                continue
            self.lost += ahead
            self.position += ahead + 1
            self.received += 1


class PlainSubscriber(Subscriber):
    """With QoS 0: compares every byte that arrives with what was published.

    After the first difference packets are parsed one by one; a run with losses is no longer worth much anyway.
    """

    def __init__(self, sock: socket.socket, ring: Ring, buffer: bytearray) -> None:
        super().__init__(ring)
        self._sock = sock
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._at = 0
        """Bytes into the ring."""
        self._rounds = 0
        self._rest: bytes | None = None
        """The incomplete packet at the end of what has arrived, once packets are parsed one by one."""

    def on_readable(self) -> None:
        size = receive(self._sock, self._view)
        if self._rest is None and self._matches(size):
            self._advance(size)
            return
        if self._rest is None:
            done = self.position % self._ring.length
            self._rest = bytes(self._ring.bytes[self._ring.ends[done - 1] if done else 0 : self._at])
        try:
            found, self._rest = packets.publications(self._rest + bytes(self._view[:size]), self._ring.layout.first)
        except ValueError as error:
            raise StreamError(str(error)) from None
        for packet in found:
            sequence = self._ring.number(packet)
            if sequence is None:
                raise StreamError("a publication arrived altered")
            self._account([sequence])

    def _matches(self, size: int) -> bool:
        ring, at, pos = self._ring.bytes, self._at, 0
        while pos < size:
            piece = ring[at : at + size - pos]
            if not self._buffer.startswith(piece, pos):
                return False
            pos += len(piece)
            at = 0
        return True

    def _advance(self, size: int) -> None:
        ring = self._ring
        rounds, self._at = divmod(self._at + size, len(ring.bytes))
        self._rounds += rounds
        self._expected(self._rounds * ring.length + bisect_right(ring.ends, self._at) - self.position)


class GridSubscriber(Subscriber):
    """With QoS 1 and packets of one size: checks the type and sequence number of every packet, as columns of all
    packets of a read, and acknowledges them together."""

    def __init__(self, sock: socket.socket, ring: Ring, buffer: bytearray) -> None:
        super().__init__(ring)
        self._sock = sock
        self._layout = ring.layout
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._tail = b""
        rounds = 2 + len(buffer) // (ring.layout.size * ring.length)
        self._high = bytes(i >> 8 for i in range(ring.length)) * rounds
        self._low = bytes(i & 0xFF for i in range(ring.length)) * rounds

    def on_readable(self) -> None:
        kept = len(self._tail)
        self._buffer[:kept] = self._tail
        size = receive(self._sock, self._view[kept:])
        count, rest = divmod(kept + size, self._layout.size)
        whole = count * self._layout.size
        self._tail = bytes(self._view[whole : whole + rest])
        if count:
            self._take(count, whole)

    def _column(self, offset: int, whole: int) -> bytearray:
        return self._buffer[offset : whole : self._layout.size]

    def _take(self, count: int, whole: int) -> None:
        if self._column(0, whole).count(self._layout.first) != count:
            raise StreamError("something else than the expected publications arrived")
        stamp_end = self._layout.stamp + packets.STAMP_BYTES
        high, low = self._column(stamp_end - 2, whole), self._column(stamp_end - 1, whole)
        start = self.position % self._ring.length
        if low == self._low[start : start + count] and high == self._high[start : start + count]:
            self._expected(count)
        else:
            self._account(first << 8 | second for first, second in zip(high, low, strict=True))
        at = self._layout.packet_id
        send_all(self._sock, packets.pubacks(self._column(at, whole), self._column(at + 1, whole)))


class MixedSubscriber(Subscriber):
    """With QoS 1 and packets that differ in size: compares all but the packet identifier, packet by packet, and
    acknowledges the packets of a read together. Any difference is a fault, for QoS 1 promises there is none."""

    def __init__(self, sock: socket.socket, ring: Ring, buffer: bytearray) -> None:
        super().__init__(ring)
        self._sock = sock
        self._view = memoryview(buffer)
        self._rest = b""
        self._parts = ring.parts()

    def on_readable(self) -> None:
        data = self._rest + bytes(self._view[: receive(self._sock, self._view)])
        parts, length, number = self._parts, self._ring.length, self.position % self._ring.length
        ids: list[bytes] = []
        pos = 0
        while True:
            head, tail = parts[number]
            at = pos + len(head)
            end = at + 2 + len(tail)
            if end > len(data):
                break
            if not (data.startswith(head, pos) and data.startswith(tail, at + 2)):
                raise StreamError(self._difference(data, pos, self.position + len(ids)))
            ids.append(data[at : at + 2])
            pos, number = end, (number + 1) % length
        self._rest = data[pos:]
        if ids:
            self._expected(len(ids))
            send_all(self._sock, b"\x40\x02" + b"\x40\x02".join(ids))

    def _difference(self, data: bytes, pos: int, expected: int) -> str:
        """What is wrong with the packet at `pos`, which is not the one with this sequence number."""
        length = self._ring.length
        for number, (head, tail) in enumerate(self._parts):
            if data.startswith(head, pos) and data.startswith(tail, pos + len(head) + 2):
                ahead = (number - expected) % length
                ahead -= length * (ahead > length // 2)
                return f"message {expected} was expected, and the one {ahead:+} from it arrived"
        return f"instead of message {expected} something arrived that was never published"


def subscriber(sock: socket.socket, ring: Ring, buffer: bytearray) -> Subscriber:
    """The fastest subscriber that can verify the ring. `buffer` may be shared by all subscribers of a process."""
    if not ring.layout.first & 0x06:
        return PlainSubscriber(sock, ring, buffer)
    return MixedSubscriber(sock, ring, buffer) if ring.vary else GridSubscriber(sock, ring, buffer)


class LatencySubscriber:
    """Notes for each publication how many nanoseconds ago its stamp was made; with QoS 1, acknowledges it when told."""

    def __init__(self, sock: socket.socket, layout: Layout) -> None:
        self.latencies = array("q")
        self._sock = sock
        self._layout = layout
        self._pending = b""
        self._unacknowledged = b""

    def on_readable(self, now: int) -> None:
        """Take in what has arrived; `now` in nanoseconds, of the clock that stamps. Raises StreamError."""
        try:
            data = self._sock.recv(BUFFER_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise StreamError("the broker closed a subscriber's connection")
        data = self._pending + data
        layout = self._layout
        whole = len(data) - len(data) % layout.size
        self._pending = data[whole:]
        for start in range(0, whole, layout.size):
            stamp = start + layout.stamp
            if data[start] != layout.first:
                raise StreamError("something else than the expected publications arrived")
            self.latencies.append(now - int.from_bytes(data[stamp : stamp + packets.STAMP_BYTES], "big"))
        if layout.first & 0x06 and whole:
            at, size = layout.packet_id, layout.size
            self._unacknowledged += packets.pubacks(data[at:whole:size], data[at + 1 : whole : size])

    def acknowledge(self) -> None:
        """Acknowledge what has arrived. Raises StreamError."""
        if self._unacknowledged:
            send_all(self._sock, self._unacknowledged)
            self._unacknowledged = b""


class Publisher:
    """Keeps at most `window` messages in flight.

    A message is in flight until all its subscribers have it and, with QoS 1, the broker has acknowledged it. The first
    of each of the ring's topics are published one by one, and nothing else before they are settled: a broker of several
    processes may find out first who wants each, and order among topics is more than MQTT promises (3.1.1, 4.6).
    """

    def __init__(self, sock: socket.socket, ring: Ring, subscribers: list[Subscriber], window: int) -> None:
        self.released = 0
        """Messages published so far."""
        self._sock = sock
        self._ring = ring
        self._subscribers = subscribers
        self._window = window
        self._least = max(1, window // 4)
        self._unsent = 0
        self._at = 0
        self._acked_bytes = 0
        self._expects_acks = bool(ring.layout.first & 0x06)

    def settled(self) -> int:
        """Messages that have left the window."""
        least = min(subscriber.position for subscriber in self._subscribers)
        return min(least, self._acked_bytes // packets.PUBACK_BYTES) if self._expects_acks else least

    def refill(self) -> None:
        """Publish what the window allows, in strides of a quarter of it at least."""
        settled = self.settled()
        space = self._window - (self.released - settled)
        if space >= self._least:
            self._unsent += self._ring.span(self.released % self._ring.length, space)
            self.released += space
        if self._unsent:
            self.flush()

    def flush(self) -> None:
        """Write what is released and not yet written, as far as the socket takes it."""
        while self._unsent:
            piece = self._ring.bytes[self._at : self._at + self._unsent]
            try:
                sent = self._sock.send(piece)
            except BlockingIOError:
                return
            self._unsent -= sent
            self._at = (self._at + sent) % len(self._ring.bytes)

    def on_readable(self) -> None:
        """Count acknowledgements. Raises StreamError."""
        self._acked_bytes += read_acks(self._sock)


def receive(sock: socket.socket, into: memoryview) -> int:
    """Bytes that have arrived at a subscriber, perhaps none. Raises StreamError."""
    try:
        size = sock.recv_into(into)
    except BlockingIOError:
        return 0
    if not size:
        raise StreamError("the broker closed a subscriber's connection")
    return size


def read_acks(sock: socket.socket) -> int:
    """Reads what has arrived at a publisher and gives its size in bytes. Raises StreamError."""
    try:
        data = sock.recv(BUFFER_BYTES)
    except BlockingIOError:
        return 0
    if not data:
        raise StreamError("the broker closed a publisher's connection")
    return len(data)


def send_all(sock: socket.socket, data: bytes) -> None:
    """Write acknowledgements, few enough for any socket buffer. Raises StreamError if they are not."""
    if sock.send(data) != len(data):
        raise StreamError("the broker does not read acknowledgements")
