"""The load generator: one process that publishes, receives, verifies and counts.

Publishers and subscribers share one epoll loop on one processor, so the window needs no signalling between
processes; the work per message is a few slices in C. `python -m benchmarks.generator` reads a Load as JSON
from standard input and writes an Outcome as JSON to standard output, or, when the broker failed, one line to
standard error, with exit status 1.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from benchmarks import client, packets
from benchmarks.load import Load, Outcome
from benchmarks.probes import cpu_seconds, machine_seconds
from benchmarks.streams import (
    BUFFER_BYTES,
    Publisher,
    StreamError,
    Subscriber,
    subscriber,
)

Orders = TypeVar("Orders")

STALL = 2.0
"""Seconds without any arrival after which what is in flight counts as lost."""

POLL = 0.02
"""Seconds the closed loop sleeps at most when nothing arrives."""


class Bench:
    """Sockets under one epoll, with what to do when each is readable."""

    def __init__(self) -> None:
        self.sockets = contextlib.ExitStack()
        self.readable_since = 0
        """When the last `step` found sockets readable (`time.monotonic_ns`), before it served any."""
        self.ready: list[tuple[int, int]] = []
        """What the last `step` found readable: file descriptors, with epoll's flags."""
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}

    def adopt(self, sock: socket.socket) -> socket.socket:
        """The socket, closed when `sockets` is, from now on non-blocking."""
        sock.setblocking(False)
        return self.sockets.enter_context(sock)

    def watch(self, sock: socket.socket, handler: Callable[[], None]) -> None:
        """Call `handler` whenever `sock` is readable."""
        self._handlers[sock.fileno()] = handler
        self._epoll.register(sock, select.EPOLLIN)

    def step(self, timeout: float) -> bool:
        """Serve what is readable, after at most `timeout` seconds. False if nothing was."""
        handlers = self._handlers
        ready = self.ready = self._epoll.poll(timeout)
        self.readable_since = time.monotonic_ns()
        for fd, _ in ready:
            handlers[fd]()
        return bool(ready)


class Meter:
    """Processor time from its creation to `stop`."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._broker = cpu_seconds(pids)
        self._own = time.process_time()
        self._machine = machine_seconds()
        self._start = time.monotonic()

    def stop(self, outcome: Outcome) -> None:
        """Write the measured time and the processors kept busy during it into `outcome`."""
        outcome.seconds = time.monotonic() - self._start
        outcome.broker_cpu = (cpu_seconds(self._pids) - self._broker) / outcome.seconds
        outcome.generator_cpu = (time.process_time() - self._own) / outcome.seconds
        machine = (machine_seconds() - self._machine) / outcome.seconds
        outcome.foreign_cpu = max(0.0, machine - outcome.broker_cpu - outcome.generator_cpu)


def topic_name(number: int) -> str:
    """Topics of one length, so that all publications have one layout."""
    return f"bench/topic/{number:04}"


def throughput(load: Load) -> Outcome:
    """Deliveries with at most `load.window` messages of each publisher in flight, everything received."""
    bench = Bench()
    buffer = bytearray(BUFFER_BYTES)
    publishers: dict[int, Publisher] = {}
    subscribers: list[Subscriber] = []
    with bench.sockets:
        for number in range(load.topics):
            topic = topic_name(number)
            ring = packets.Ring(topic, load.payload, load.qos, packets.ring_length(load.window), load.vary)
            group: list[Subscriber] = []
            socks: list[socket.socket] = []
            for _ in range(load.subscribers):
                sock = bench.adopt(client.subscribed(load.subscribe_port, topic, load.qos, load.lasting))
                socks.append(sock)
                group.append(subscriber(sock, ring, buffer))
                bench.watch(sock, group[-1].on_readable)
            sock = bench.adopt(client.connected(load.publish_port, load.lasting))
            publisher = Publisher(sock, ring, group, load.window)
            bench.watch(sock, publisher.on_readable)
            publishers |= {end.fileno(): publisher for end in (*socks, sock)}
            subscribers += group
        return _closed_loop(load, bench, publishers, subscribers)


def _closed_loop(load: Load, bench: Bench, owners: dict[int, Publisher], subscribers: list[Subscriber]) -> Outcome:
    """`owners`: by file descriptor, whose window may move when it is readable."""
    outcome, publishers = Outcome(), list(dict.fromkeys(owners.values()))
    _publish_for(load.warm_up, bench, publishers, owners)
    before = sum(subscriber.received for subscriber in subscribers)
    meter = Meter(load.pids)
    _publish_for(load.measure, bench, publishers, owners)
    meter.stop(outcome)
    outcome.deliveries = sum(subscriber.received for subscriber in subscribers) - before
    _drain(bench, publishers, subscribers)
    published = sum(publisher.released for publisher in publishers) * load.subscribers
    outcome.lost = published - sum(subscriber.received for subscriber in subscribers)
    outcome.repeated = sum(subscriber.repeated for subscriber in subscribers)
    return outcome


def _publish_for(seconds: float, bench: Bench, publishers: list[Publisher], owners: dict[int, Publisher]) -> None:
    end = time.monotonic() + seconds
    moved: Iterable[Publisher] = publishers
    while time.monotonic() < end:
        for publisher in moved:
            publisher.refill()
        bench.step(POLL)
        moved = {owners[fd] for fd, _ in bench.ready} or publishers


def _drain(bench: Bench, publishers: list[Publisher], subscribers: list[Subscriber]) -> None:
    """Until everything published has settled, or nothing has arrived for STALL seconds."""
    arrived = -1
    deadline = 0.0
    while any(publisher.settled() < publisher.released for publisher in publishers):
        now = time.monotonic()
        if (total := sum(subscriber.received for subscriber in subscribers)) != arrived:
            arrived, deadline = total, now + STALL
        elif now > deadline:
            return
        for publisher in publishers:
            publisher.flush()
        bench.step(POLL)


def answer(orders: type[Orders], carry_out: Callable[[Orders], object]) -> int:
    """Carry out the orders given on standard input, and write what comes of it to standard output, or why it failed, in
    one line, to standard error. Returns the exit status."""
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=orders)
    try:
        outcome = carry_out(given)
    except (OSError, StreamError, client.SetupError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(outcome))
    return 0


def main() -> int:
    """Run the load given on standard input."""
    return answer(Load, throughput)


if __name__ == "__main__":
    sys.exit(main())
