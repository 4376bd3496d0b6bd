"""Devices at a broker: they keep their side of QoS 0, 1 and 2 over broken connections, and tell the recorder."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from benchmarks import packets
from benchmarks.chaos.account import Recorder, Stream
from benchmarks.durable_clients import DurableClient, Subscriber, Writer

TOPIC = "chaos"
WINDOW = 500
"""Messages a publisher may have unacknowledged (`limits.receive_maximum` is 1024)."""
BACKLOG = 5000
"""Messages that wait for the window or the connection; when there are as many, nothing new is published."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[], Awaitable[Streams]]
Clock = Callable[[], float]


class PacedPublisher(DurableClient):
    """Publishes one stream at a steady rate. What is due while there is no connection goes out when there is one again,
    with QoS 1 and 2; with QoS 0 it is not published."""

    def __init__(self, stream: Stream, rate: float, dial: Dial, clock: Clock) -> None:
        super().__init__(0, stream.name)
        self.stream = stream
        self.active = False
        self._dial, self._pause, self._clock = dial, 1.0 / rate, clock
        self._waiting: deque[int] = deque()
        self._unfinished: dict[int, tuple[int, bool]] = {}
        """By packet identifier, in order: the number, and whether it has been released."""
        self._packet_id = 0

    async def dial(self) -> Streams:
        return await self._dial()

    @property
    def finished(self) -> bool:
        """All that was handed over has been acknowledged to the end."""
        return not self._unfinished and not self._waiting

    async def pace(self) -> None:
        """Publish, while `active`, until it is cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + self._pause, loop.time() - 10 * self._pause)
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not self.active or len(self._waiting) >= BACKLOG:
                continue
            if self.stream.qos:
                self._waiting.append(self.stream.hand(self._clock()))
                self._fill()
            elif self._writer is not None:
                self.write(self._publish(0, self.stream.hand(self._clock()), 0))

    def connected(self) -> None:
        for packet_id, (number, released) in self._unfinished.items():
            if not released:
                self.write(self._publish(packet_id, number, 0x08))
        for packet_id, (_, released) in self._unfinished.items():
            if released:
                self.write(b"\x62\x02" + packet_id.to_bytes(2))
        self._fill()

    def _fill(self) -> None:
        while self._waiting and self._writer is not None and len(self._unfinished) < WINDOW:
            while True:
                self._packet_id = self._packet_id % (2 * WINDOW) + 1
                if self._packet_id not in self._unfinished:
                    break
            number = self._waiting.popleft()
            self._unfinished[self._packet_id] = number, False
            self.write(self._publish(self._packet_id, number, 0))

    def _publish(self, packet_id: int, number: int, duplicate: int) -> bytes:
        packet = packets.publish(f"{TOPIC}/{self.stream.name}", b"%d" % number, self.stream.qos, packet_id)
        return bytes([packet[0] | duplicate]) + packet[1:]

    def packet(self, first: int, body: bytes) -> None:
        packet_id = int.from_bytes(body[:2])
        self._known = True
        if packet_id not in self._unfinished:
            return
        number, released = self._unfinished[packet_id]
        if first == 0x50 and not released:  # PUBREC: from now on the broker has it
            self.stream.acknowledged(number, self._clock())
            del self._unfinished[packet_id]
            self._unfinished[packet_id] = number, True
            self.write(b"\x62\x02" + body[:2])
        elif (first == 0x40 and self.stream.qos == 1) or (first == 0x70 and released):
            self.stream.acknowledged(number, self._clock())
            del self._unfinished[packet_id]
            self._fill()


class Witness(Subscriber):
    """Takes everything with QoS 2, and tells the recorder of each arrival."""

    def __init__(self, name: str, dial: Dial, clock: Clock) -> None:
        super().__init__(0, name, f"{TOPIC}/#")
        self.recorder: Recorder | None = None
        """To be set before the first publication."""
        self._dial, self._clock = dial, clock

    async def dial(self) -> Streams:
        return await self._dial()

    def greeted(self, writer: Writer, first: int, body: bytes) -> None:
        if first == 0x20 and not body[0]:  # a new session: nothing is subscribed, and no identifier is taken
            self.subscribed.clear()
            self._taken.clear()
        super().greeted(writer, first, body)

    def arrived(self, name: str, number: int) -> None:
        assert self.recorder is not None
        self.recorder.arrived(self.client_id, name, number, self._clock())
