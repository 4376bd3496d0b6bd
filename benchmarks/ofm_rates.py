"""One busy topic by ALM and by its OpenFlow tree: ``python -m benchmarks.ofm_rates``. Needs root and Open vSwitch.

Eight brokers in four clusters on Open vSwitch, a publisher at the first, a subscriber at each of the others, QoS 0. The
publisher keeps a rate, in bursts of a millisecond. Each payload has its number and the moment it was due. A row says
what was lost, the time to the subscribers, and what a message cost the publisher's broker in processor time
(``/proc/PID/stat``: it holds on a busy machine, where times and losses do not).
"""

from __future__ import annotations

import argparse
import contextlib
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from benchmarks import packets
from benchmarks.client import connected, subscribed
from benchmarks.probes import cpu_seconds
from benchmarks.section import update_page
from lab import Lab, LabError
from lab.programs import CALM, MQTT, Mesh

PAGE = Path("docs/ofm.md")
TOPIC = "air/ward1"
PAYLOAD = 200
STAMP = struct.Struct(">QQ")
"""Number and moment of a message: nanoseconds of the machine's monotonic clock."""
BURST = 0.001
QUIET = 1.0
"""Seconds without an arrival after which no more is expected."""
WARM = 1.0


class Row(msgspec.Struct, frozen=True):
    """One way at one rate."""

    way: str
    rate: int
    published: int
    """Messages a second that were really published."""
    lost: float
    """Share of all deliveries."""
    doubled: int
    p50: float
    """Milliseconds."""
    p99: float
    cost: float
    """Microseconds of processor time of the publisher's broker for a message."""
    packed: float
    """Messages in a datagram; 0: by ALM."""


class Subscribers(threading.Thread):
    """Reads what comes to all of them until `QUIET` seconds after `end`."""

    def __init__(self, sockets: Sequence[socket.socket], size: int) -> None:
        super().__init__(daemon=True)
        self._sockets = {each.fileno(): each for each in sockets}
        self._size = size
        self._rest = dict.fromkeys(self._sockets, b"")
        self._ended = threading.Event()
        self.numbers: dict[int, list[np.ndarray]] = {number: [] for number in self._sockets}
        self.delays: list[np.ndarray] = []

    def end(self) -> None:
        """Nothing more is published."""
        self._ended.set()

    def run(self) -> None:
        poll, last = select.poll(), time.monotonic()
        for number in self._sockets:
            poll.register(number, select.POLLIN)
        while not (self._ended.is_set() and time.monotonic() - last > QUIET):
            for number, _ in poll.poll(100):
                last = time.monotonic()
                self._take(number, self._sockets[number].recv(1 << 20), time.monotonic_ns())

    def _take(self, number: int, data: bytes, now: int) -> None:
        data = self._rest[number] + data
        whole = len(data) // self._size * self._size
        self._rest[number] = data[whole:]
        if whole:
            found = np.frombuffer(data, np.uint8, whole).reshape(-1, self._size)
            begin = self._size - PAYLOAD
            stamps = found[:, begin : begin + STAMP.size].copy().view(">u8").astype(np.int64)
            self.numbers[number].append(stamps[:, 0])
            self.delays.append(now - stamps[:, 1])


def published(publisher: socket.socket, rate: int, seconds: float) -> tuple[int, float]:
    """Publish at a rate. Returns how many it were, and the seconds it took."""
    begin, sent = time.monotonic(), 0
    total = int(rate * seconds)
    while sent < total:
        due = min(total, int((time.monotonic() - begin) * rate) + 1)
        if due > sent:
            now = time.monotonic_ns()
            payloads = (STAMP.pack(number, now).ljust(PAYLOAD, b".") for number in range(sent, due))
            publisher.sendall(b"".join(packets.publish(TOPIC, payload, 0, 0) for payload in payloads))
            sent = due
        time.sleep(BURST)
    return sent, time.monotonic() - begin


def datagrams(mesh: Mesh, broker: str) -> tuple[int, int]:
    """Publications and datagrams that a broker has sent along trees."""
    [found] = [each for each in mesh.order("brokers") if each["broker"] == broker]
    return found["carried"], found["sent"]


def measure(mesh: Mesh, way: str, rate: int, seconds: float) -> Row:
    """One row."""
    source, *others = mesh.hosts
    size = len(packets.publish(TOPIC, bytes(PAYLOAD), 0, 0))
    with contextlib.ExitStack() as stack:
        sinks = []
        for host in others:
            with mesh.lab.host(host).inside():
                sinks.append(stack.enter_context(subscribed(MQTT, TOPIC, 0)))
        with mesh.lab.host(source).inside():
            publisher = stack.enter_context(connected(MQTT))
        if way == "OFM":
            published(publisher, 10, WARM)
            mesh.exploit([TOPIC])
            published(publisher, 10, WARM)
        published(publisher, 100, WARM)
        for sink in sinks:
            _drain(sink)
        readers = Subscribers(sinks, size)
        pid, carried = mesh.programs[source].pid, datagrams(mesh, source)
        readers.start()
        before = cpu_seconds([pid])
        count, took = published(publisher, rate, seconds)
        readers.end()
        readers.join()
        used, after = cpu_seconds([pid]) - before, datagrams(mesh, source)
    arrived = [np.concatenate(parts) if parts else np.empty(0, np.int64) for parts in readers.numbers.values()]
    unique = sum(len(np.unique(numbers)) for numbers in arrived)
    delays = np.concatenate(readers.delays) / 1e6
    if way == "OFM":
        mesh.release([TOPIC])
    return Row(
        way,
        rate,
        int(count / took),
        1 - unique / (count * len(others)),
        sum(map(len, arrived)) - unique,
        float(np.percentile(delays, 50)),
        float(np.percentile(delays, 99)),
        1e6 * used / count,
        (after[0] - carried[0]) / max(1, after[1] - carried[1]),
    )


def _drain(sink: socket.socket) -> None:
    """Take what has come."""
    sink.settimeout(QUIET)
    with contextlib.suppress(TimeoutError):
        while sink.recv(1 << 20):
            pass


def rows(rates: Sequence[int], seconds: float) -> Iterator[Row]:
    """All rows, way by way at each rate."""
    with Lab("tree:4x2") as lab, Mesh(lab, ofm=True, settings=dict(CALM)) as mesh:
        for rate in rates:
            for way in ("ALM", "OFM"):
                yield measure(mesh, way, rate, seconds)


def markdown(found: Sequence[Row]) -> str:
    """As a table."""
    lines = [
        "| messages/s | way | published/s | lost | doubled | p50 | p99 | CPU a message | messages a datagram |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in found:
        packed = f"{row.packed:.1f}" if row.way == "OFM" else ""
        lines.append(
            f"| {row.rate:,} | {row.way} | {row.published:,} | {row.lost:.2%} | {row.doubled} | {row.p50:.1f} ms | "
            f"{row.p99:.0f} ms | {row.cost:.0f} us | {packed} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit status: 1 if the lab could not be had."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ofm_rates", description=__doc__)
    parser.add_argument("--rates", default="500,2000,4000,8000,16000", help="messages a second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each row (default: %(default)s)")
    parser.add_argument("--markdown", action="store_true", help=f"write the table into {PAGE}")
    options = parser.parse_args(arguments)
    found: list[Row] = []
    try:
        for row in rows([int(rate) for rate in options.rates.split(",")], options.seconds):
            found.append(row)
            print(row, file=sys.stderr)
    except LabError as error:
        print(f"ofm_rates: {error}", file=sys.stderr)
        return 1
    table = markdown(found)
    print(table)
    if options.markdown:
        update_page(PAGE, "rates", f"{time.strftime('%Y-%m-%d')}, `python -m benchmarks.ofm_rates`:\n\n{table}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
