"""Devices at a broker: they keep their side of QoS 0, 1 and 2 over broken connections, and tell the recorder."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

from benchmarks import packets
from benchmarks.chaos.account import Recorder, Stream
from benchmarks.durable_clients import Sender, Subscriber, Writer

TOPIC = "chaos"
WINDOW = 500
"""Messages a publisher may have unacknowledged (`limits.receive_maximum` is 1024)."""
BACKLOG = 5000
"""Messages that wait for the window or the connection; when there are as many, nothing new is published."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[], Awaitable[Streams]]
Clock = Callable[[], float]


def topic_of(stream: str, way: str) -> str:
    """The topic of a stream that travels this way."""
    return f"{TOPIC}/{stream}/{way}"


class PacedPublisher(Sender):
    """Publishes streams of one QoS at a steady rate: to all their topics at once, as a gateway of several devices. What
    is due while there is no connection goes out when there is one again, with QoS 1 and 2; with QoS 0 it is not
    published."""

    def __init__(
        self, name: str, qos: int, streams: Mapping[str, Stream], rate: float, dial: Dial, clock: Clock
    ) -> None:
        """`streams`: by topic (`topic_of`). `rate`: messages a second of each."""
        super().__init__(0, name, WINDOW)
        self.streams = streams
        self.active = False
        self._topics = list(streams)
        self._qos_of_all = qos
        self._dial, self._pause, self._clock = dial, 1.0 / rate, clock
        self._waiting: deque[int] = deque()
        """Messages of all streams; see `_hand`."""

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
            if self._qos_of_all:
                self._waiting += self._hand()
                self._fill()
            elif self._writer is not None:
                self.write(b"".join([self._publish(0, number, 0) for number in self._hand()]))

    def _hand(self) -> list[int]:
        """The next message of each stream: its number, times the number of streams, plus the place of the stream."""
        count, now = len(self._topics), self._clock()
        return [stream.hand(now) * count + place for place, stream in enumerate(self.streams.values())]

    def _upcoming(self) -> int | None:
        return self._waiting.popleft() if self._waiting else None

    def _qos(self, number: int) -> int:
        return self._qos_of_all

    def _publish(self, packet_id: int, number: int, duplicate: int) -> bytes:
        number, place = divmod(number, len(self._topics))
        packet = packets.publish(self._topics[place], b"%d" % number, self._qos_of_all, packet_id)
        return bytes([packet[0] | duplicate]) + packet[1:]

    def _acknowledged(self, number: int) -> None:
        number, place = divmod(number, len(self._topics))
        self.streams[self._topics[place]].acknowledged(number, self._clock())


STAY = (1.0, 6.0)
"""Seconds that a roaming subscriber stays at a broker, least and most."""


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
        lost = len(self.sessions_lost)
        super().greeted(writer, first, body)
        if self.recorder is not None and len(self.sessions_lost) > lost:
            self.recorder.began_anew(self.client_id, self._clock())

    def arrived(self, name: str, number: int) -> None:
        assert self.recorder is not None
        self.recorder.arrived(self.client_id, name, number, self._clock())


class Roamer(Witness):
    """A witness that goes from broker to broker with its session, without saying goodbye."""

    def __init__(self, name: str, dials: Sequence[Dial], clock: Clock) -> None:
        super().__init__(name, dials[0], clock)
        self._dials, self._rng = dials, random.Random(name)

    async def dial(self) -> Streams:
        return await self._rng.choice(self._dials)()

    async def roam(self) -> None:
        """Go on again and again, until it is cancelled."""
        while True:
            await asyncio.sleep(self._rng.uniform(*STAY))
            self.drop()
