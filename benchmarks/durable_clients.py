"""MQTT 3.1.1 clients that keep their side of QoS 1 and 2 over broken connections (sections 4.3 and 4.4), and a record.

Their state stands for a device with a disk of its own: it outlives every connection, and every life of the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator
from typing import Protocol

RETRY = 0.05
"""Seconds between two attempts to connect."""


def _string(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _packet(first: int, body: bytes) -> bytes:
    assert len(body) < 128 * 128
    size = len(body)
    return bytes((first, size)) + body if size < 128 else bytes((first, size % 128 | 128, size // 128)) + body


class Writer(Protocol):
    """Where a client's packets go."""

    def write(self, data: bytes, /) -> None: ...


class DurableClient:
    """One client: connects again and again, with the same session, until it is cancelled."""

    def __init__(self, port: int, client_id: str) -> None:
        self.client_id = client_id
        self.connections = 0
        self.sessions_lost: list[float] = []
        """When the broker did not know the session, after it had acknowledged something (`time.monotonic`)."""
        self.changed = asyncio.Event()
        """Set whenever something has been acknowledged or received."""
        self._port = port
        self._known = False
        self._writer: Writer | None = None

    @property
    def attached(self) -> bool:
        """The broker has let it in, and the connection is not known to be broken."""
        return self._writer is not None

    async def run(self) -> None:
        """Live."""
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._live()
            self.gone()
            await asyncio.sleep(RETRY)

    async def _live(self) -> None:
        reader, writer = await self.dial()
        try:
            writer.write(self.greeting())
            self.greeted(writer, *await _read(reader))
            async for first, body in _packets(reader):
                self.packet(first, body)
        finally:
            writer.close()

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the broker. Raises `OSError`."""
        return await asyncio.open_connection("127.0.0.1", self._port)

    def greeting(self) -> bytes:
        """CONNECT, with the session that lasts."""
        return _packet(0x10, _string("MQTT") + b"\4\0\0\0" + _string(self.client_id))

    def greeted(self, writer: Writer, first: int, body: bytes) -> None:
        """The broker's answer. Raises `ConnectionRefusedError`."""
        if first != 0x20 or body[1]:
            raise ConnectionRefusedError(f"CONNACK {body.hex()}")
        self.connections += 1
        if self._known and not body[0]:
            self.sessions_lost.append(time.monotonic())
        self._writer = writer
        self.connected()

    def gone(self) -> None:
        """The connection is broken."""
        self._writer = None

    def write(self, packet: bytes) -> None:
        """Send, if it is connected."""
        if self._writer is not None:
            with contextlib.suppress(RuntimeError):  # uvloop: it has closed, and the reader will be told
                self._writer.write(packet)

    def connected(self) -> None:
        """The session goes on, on a new connection."""

    def packet(self, first: int, body: bytes) -> None:
        """A packet from the broker."""


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    first, size, shift = (await reader.readexactly(1))[0], 0, 0
    while True:
        digit = (await reader.readexactly(1))[0]
        size |= (digit & 0x7F) << shift
        shift += 7
        if digit < 0x80:
            return first, await reader.readexactly(size)


async def _packets(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, bytes]]:
    while True:
        yield await _read(reader)


class Sender(DurableClient, ABC):
    """Publishes numbers with QoS 1 and 2, and keeps its side of them over broken connections."""

    def __init__(self, port: int, client_id: str, window: int) -> None:
        """`window`: publications that are not acknowledged to the end, at most."""
        super().__init__(port, client_id)
        self._window = window
        self._packet_id = 0
        self._unfinished: dict[int, tuple[int, bool]] = {}
        """By packet identifier, in order: the number, and whether it has been released."""

    @abstractmethod
    def _upcoming(self) -> int | None:
        """The number to be published next, taken; None: nothing is to be published now."""

    @abstractmethod
    def _publish(self, packet_id: int, number: int, duplicate: int) -> bytes:
        """PUBLISH; `duplicate` is the flag in its place."""

    @abstractmethod
    def _qos(self, number: int) -> int: ...

    @abstractmethod
    def _acknowledged(self, number: int) -> None:
        """The broker has taken a number; with QoS 2 this is told twice."""

    def connected(self) -> None:
        for packet_id, (number, released) in self._unfinished.items():
            if not released:
                self.write(self._publish(packet_id, number, 0x08))
        for packet_id, (_, released) in self._unfinished.items():
            if released:
                self.write(_packet(0x62, packet_id.to_bytes(2)))
        self._fill()

    def _fill(self) -> None:
        packets = []
        while self._writer is not None and len(self._unfinished) < self._window:
            number = self._upcoming()
            if number is None:
                break
            while True:
                self._packet_id = self._packet_id % (2 * self._window) + 1
                if self._packet_id not in self._unfinished:
                    break
            self._unfinished[self._packet_id] = number, False
            packets.append(self._publish(self._packet_id, number, 0))
        if packets:
            self.write(b"".join(packets))

    def packet(self, first: int, body: bytes) -> None:
        packet_id = int.from_bytes(body[:2])
        self._known = True
        if packet_id not in self._unfinished:
            return
        number, released = self._unfinished[packet_id]
        if first == 0x50 and not released:  # PUBREC: from now on the broker has it
            self._acknowledged(number)
            del self._unfinished[packet_id]
            self._unfinished[packet_id] = number, True
            self.write(_packet(0x62, body[:2]))
        elif (first == 0x40 and self._qos(number) == 1) or (first == 0x70 and released):
            self._acknowledged(number)
            del self._unfinished[packet_id]
            self._fill()


class Publisher(Sender):
    """Publishes numbers: odd ones with QoS 1, even ones with QoS 2, some of the odd ones to be retained."""

    def __init__(self, port: int, client_id: str, window: int = 20) -> None:
        super().__init__(port, client_id, window)
        self.acknowledged: set[int] = set()
        self.retained = 0
        """The last number acknowledged that was to be retained."""
        self.last: int | None = None
        """The number after which it stops."""
        self._number = 0

    @property
    def finished(self) -> bool:
        return not self._unfinished

    def stop(self) -> None:
        """Publish nothing new."""
        self.last = self._number

    def _upcoming(self) -> int | None:
        if self._number == self.last:
            return None
        self._number += 1
        return self._number

    def _qos(self, number: int) -> int:
        return 1 if number % 2 else 2

    def _publish(self, packet_id: int, number: int, duplicate: int) -> bytes:
        qos = self._qos(number)
        retain = number % 10 == 1
        topic = "kept" if retain else f"qos{qos}"
        body = _string(f"durable/{self.client_id}/{topic}") + packet_id.to_bytes(2) + b"%d" % number
        return _packet(0x30 | duplicate | qos << 1 | retain, body)

    def _acknowledged(self, number: int) -> None:
        self.acknowledged.add(number)
        if number % 10 == 1:
            self.retained = max(self.retained, number)
        self.changed.set()


class Subscriber(DurableClient):
    """Takes everything with QoS 2, and remembers how often each number came."""

    def __init__(self, port: int, client_id: str, topic_filter: str = "durable/#") -> None:
        super().__init__(port, client_id)
        self.received: dict[str, Counter[int]] = {}
        """By the publisher's name: how often each number came."""
        self.subscribed = asyncio.Event()
        self._topic_filter = topic_filter
        self._taken: set[int] = set()
        """Packet identifiers of QoS 2 that were delivered and not released."""

    def connected(self) -> None:
        if not self.subscribed.is_set():
            self.write(_packet(0x82, b"\0\1" + _string(self._topic_filter) + b"\2"))

    def drop(self) -> None:
        """Break the connection."""
        if isinstance(self._writer, asyncio.StreamWriter):
            self._writer.transport.abort()

    def packet(self, first: int, body: bytes) -> None:
        kind, qos = first >> 4, first >> 1 & 3
        self._known = True
        if kind == 9:
            self.subscribed.set()
        elif kind == 3:
            end = 2 + int.from_bytes(body[:2])
            packet_id = body[end : end + 2] if qos else b""
            if qos == 2 and int.from_bytes(packet_id) in self._taken:
                self.write(_packet(0x50, packet_id))
                return
            name = body[2:end].decode().split("/")[1]
            self.arrived(name, int(body[end + 2 * (qos > 0) :]))
            if qos == 2:
                self._taken.add(int.from_bytes(packet_id))
            if qos:
                self.write(_packet(0x40 if qos == 1 else 0x50, packet_id))
            self.changed.set()
        elif kind == 6:
            self._taken.discard(int.from_bytes(body))
            self.write(_packet(0x70, body))

    def arrived(self, name: str, number: int) -> None:
        """A publisher's number has come; what is a repetition within QoS 2 is not told."""
        self.received.setdefault(name, Counter())[number] += 1
