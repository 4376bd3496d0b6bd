"""The generator of latencies: publishes at a fixed rate, to several brokers in turns, and notes each arrival.

`python -m benchmarks.paced` reads Turns as JSON from standard input and writes a list of Latencies, one for each
broker, to standard output, or, when a broker failed, one line to standard error, with exit status 1.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from functools import partial

import msgspec

from benchmarks import client, packets
from benchmarks.generator import Bench, answer, topic_name
from benchmarks.streams import LatencySubscriber, StreamError, read_acks
from benchmarks.summary import percentile

QUIET_NS = 100_000_000
"""For so long it is waited for late arrivals at the end of a turn."""


class Turns(msgspec.Struct, frozen=True, kw_only=True):
    """What to do to some brokers: each gets so many turns, and the first in a round is the last in the next."""

    ports: list[int]
    subscribers: int
    qos: int
    payload: int
    """Bytes."""
    rate: int
    """Messages a second."""
    turns: int
    messages: int
    """In each turn."""


class Latencies(msgspec.Struct, kw_only=True):
    """What came of one broker's turns: seconds from the moment a message was due to its arrivals."""

    p50: float
    p95: float
    p99: float
    tails: list[float]
    """p99 of each turn."""
    lost: int


class Broker:
    """The publisher and the subscribers of one broker.

    The loop polls without sleeping, so that waking up does not count, and the stamp is the time the message was due,
    so that a late publication does. From one to the next it is half a step to one and a half: if it was always the
    same, the system's timer ticks would meet every message of one turn and none of another. Acknowledgements are sent
    once nothing more is readable, so that those of one subscriber do not delay the noting of the next arrival.
    """

    def __init__(self, plan: Turns) -> None:
        self._plan, self._bench = plan, Bench()
        self._topic = topic_name(0)
        self._layout = packets.Layout.of(self._topic, plan.payload, plan.qos)
        self._arrived: list[LatencySubscriber] = []
        self._subscribers: list[LatencySubscriber] = []
        self._random = random.Random(plan.rate)
        self._published = 0
        self._packet_id = 0
        self.turns: list[list[int]] = []
        """Nanoseconds of each arrival, turn by turn."""

    def connect(self, port: int) -> None:
        """To be called once. Raises `OSError` and `client.SetupError`."""
        for _ in range(self._plan.subscribers):
            sock = self._bench.adopt(client.subscribed(port, self._topic, self._plan.qos))
            subscriber = LatencySubscriber(sock, self._layout)
            self._bench.watch(sock, partial(self._note, subscriber))
            self._subscribers.append(subscriber)
        self._publisher = self._bench.adopt(client.connected(port))
        self._bench.watch(self._publisher, self._read_acks)

    def close(self) -> None:
        """End the connections."""
        self._bench.sockets.close()

    def turn(self) -> None:
        """Publish a turn's messages, then wait until nothing is under way. Raises `StreamError`."""
        step = 1_000_000_000 // self._plan.rate
        before = [len(subscriber.latencies) for subscriber in self._subscribers]
        due = time.monotonic_ns()
        for _ in range(self._plan.messages):
            due += self._random.randint(step // 2, 3 * step // 2)
            while time.monotonic_ns() < due:
                self._poll()
            self._publish(due)
        end = time.monotonic_ns() + QUIET_NS
        while time.monotonic_ns() < end:
            self._poll()
        pairs = zip(self._subscribers, before, strict=True)
        self.turns.append([ns for subscriber, first in pairs for ns in subscriber.latencies[first:]])

    def latencies(self) -> Latencies:
        """Of all turns but the first, which warms up."""
        counted = [[ns / 1e9 for ns in turn] for turn in self.turns[1:]]
        samples = [seconds for turn in counted for seconds in turn]
        return Latencies(
            p50=percentile(samples, 50),
            p95=percentile(samples, 95),
            p99=percentile(samples, 99),
            tails=[percentile(turn, 99) for turn in counted],
            lost=self._published * len(self._subscribers) - sum(map(len, self.turns)),
        )

    def _publish(self, due: int) -> None:
        plan = self._plan
        self._packet_id = self._packet_id % 32768 + 1
        payload = due.to_bytes(packets.STAMP_BYTES, "big") + bytes(plan.payload - packets.STAMP_BYTES)
        packet = packets.publish(self._topic, payload, plan.qos, self._packet_id)
        if self._publisher.send(packet) != len(packet):
            raise StreamError("the broker does not keep up with the fixed rate")
        self._published += 1

    def _poll(self) -> None:
        """Serve what is readable; if nothing is, have the subscribers acknowledge what they got."""
        if not self._bench.step(0):
            while self._arrived:
                self._arrived.pop().acknowledge()

    def _note(self, subscriber: LatencySubscriber) -> None:
        subscriber.on_readable(self._bench.readable_since)
        self._arrived.append(subscriber)

    def _read_acks(self) -> None:
        read_acks(self._publisher)


def carry_out(plan: Turns) -> list[Latencies]:
    """All turns. Raises `OSError`, `StreamError` and `client.SetupError`."""
    brokers = [Broker(plan) for _ in plan.ports]
    with contextlib.ExitStack() as stack:
        for broker, port in zip(brokers, plan.ports, strict=True):
            stack.callback(broker.close)
            broker.connect(port)
        for number in range(plan.turns + 1):
            first = number % len(brokers)
            for broker in (*brokers[first:], *brokers[:first]):
                broker.turn()
        return [broker.latencies() for broker in brokers]


def main() -> int:
    """Carry out the turns given on standard input."""
    return answer(Turns, carry_out)


if __name__ == "__main__":
    sys.exit(main())
