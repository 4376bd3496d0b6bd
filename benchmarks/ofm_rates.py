"""One busy topic by ALM, its OpenFlow tree, stateless delivery and raw UDP: ``python -m benchmarks.ofm_rates``. Needs
root, Open vSwitch; with ``--worlds switches`` it needs neither. Stateless delivery is measured on Open vSwitch only.

Brokers in clusters of two, a publisher at the first, a subscriber at each of the others; on Open vSwitch, and with the
software switches of ``saps switches``, over which ALM does not go (`benchmarks.ofm_worlds`). The publisher
keeps a rate with QoS 0, in bursts of a millisecond, or has 500 publications with QoS 1 unacknowledged (``--qos1``).
Each payload has its number and the moment it was due. A row says what was lost, the time to the subscribers, what a
message cost the publisher's broker and all brokers in processor time (``/proc/PID/stat``: it holds on a busy machine,
where times and losses do not), and what it put on the links between clusters (port counters of Open vSwitch). Raw UDP
is the floor: a datagram a message along a tree without brokers, read when all have been sent.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import select
import socket
import struct
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path

import msgspec
import numpy as np

from benchmarks import packets
from benchmarks.client import connected, subscribed
from benchmarks.machine import this_machine
from benchmarks.ofm_worlds import WORLDS, OnLab, World
from benchmarks.probes import cpu_seconds
from benchmarks.section import update_page
from lab import LabError
from saps.ofm.northbound.driver.client import NorthboundError

PAGE = Path("docs/ofm.md")
TOPIC = "air/ward1"
STATELESS = "stateless"
"""The way of stateless delivery. Its lab is of IPv6: 20 bytes more a datagram."""
PAYLOAD = 200
STAMP = struct.Struct(">QQ")
"""Number and moment of a message: nanoseconds of the machine's monotonic clock."""
BURST = 0.001
QUIET = 1.0
"""Seconds without an arrival after which no more is expected."""
WARM = 1.0
UNACKNOWLEDGED = 500
"""Publications with QoS 1 that are under way at a time."""


class Row(msgspec.Struct, frozen=True):
    """One way at one rate."""

    world: str
    way: str
    members: int
    rate: int
    """Messages a second; 0: as many as QoS 1 takes."""
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
    all_cost: float
    """The same of all brokers."""
    packets: float
    """Between clusters, for a message."""
    bytes: float
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


def acknowledged(publisher: socket.socket, seconds: float) -> tuple[int, float]:
    """Publish with QoS 1, `UNACKNOWLEDGED` at a time. Returns how many it were, and the seconds it took."""
    begin, sent, answered = time.monotonic(), 0, 0
    publisher.settimeout(10.0)
    while True:
        more = UNACKNOWLEDGED - sent + answered if time.monotonic() - begin < seconds else 0
        now = time.monotonic_ns()
        payloads = [STAMP.pack(number, now).ljust(PAYLOAD, b".") for number in range(sent, sent + more)]
        frames = (packets.publish(TOPIC, each, 1, (sent + n) % 65535 + 1) for n, each in enumerate(payloads))
        publisher.sendall(b"".join(frames))
        sent += more
        if sent == answered:
            return sent, time.monotonic() - begin
        answer = packets.PUBACK_BYTES
        data = publisher.recv(1 << 16)
        while len(data) % answer:
            data += publisher.recv(answer - len(data) % answer)
        answered += len(data) // answer


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


def datagrams(world: World, broker: str) -> tuple[int, int]:
    """Publications and datagrams that a broker has sent along trees."""
    [found] = [each for each in world.order("brokers") if each["broker"] == broker]
    return found["carried"], found["sent"]


def measure(world: World, way: str, rate: int, seconds: float) -> Row:
    """One row of ALM or OFM."""
    source, *others = world.hosts
    size = len(packets.publish(TOPIC, bytes(PAYLOAD), 0, 0))
    with contextlib.ExitStack() as stack:
        sinks = []
        for host in others:
            with world.at(host) as port:
                sinks.append(stack.enter_context(subscribed(port, TOPIC, 0)))
        with world.at(source) as port:
            publisher = stack.enter_context(connected(port))
        if way == "OFM":
            published(publisher, 10, WARM)
            world.exploit(TOPIC)
            published(publisher, 10, WARM)
        published(publisher, 100, WARM)
        for sink in sinks:
            _drain(sink)
        readers = Subscribers(sinks, size)
        pids, carried = [world.programs[host].pid for host in world.hosts], datagrams(world, source)
        readers.start()
        before, links = [cpu_seconds([pid]) for pid in pids], world.crossed()
        count, took = published(publisher, rate, seconds) if rate else acknowledged(publisher, seconds)
        readers.end()
        readers.join()
        used = [cpu_seconds([pid]) - was for pid, was in zip(pids, before, strict=True)]
        after, crossed = datagrams(world, source), np.subtract(world.crossed(), links) / count
    arrived = [np.concatenate(parts) if parts else np.empty(0, np.int64) for parts in readers.numbers.values()]
    unique = sum(len(np.unique(numbers)) for numbers in arrived)
    delays = np.concatenate(readers.delays) / 1e6
    if way == "OFM":
        world.release(TOPIC)
    return Row(
        world.name,
        way,
        len(others),
        rate,
        int(count / took),
        1 - unique / (count * len(others)),
        sum(map(len, arrived)) - unique,
        float(np.percentile(delays, 50)),
        float(np.percentile(delays, 99)),
        1e6 * used[0] / count,
        1e6 * sum(used) / count,
        float(crossed[0]),
        float(crossed[1]),
        (after[0] - carried[0]) / max(1, after[1] - carried[1]),
    )


def _drain(sink: socket.socket) -> None:
    """Take what has come."""
    sink.settimeout(QUIET)
    with contextlib.suppress(TimeoutError):
        while sink.recv(1 << 20):
            pass


def raw(world: World, rate: int, seconds: float) -> Row:
    """One row of raw UDP."""
    with world.raw() as (source, *others):
        links, begin, sent, total = world.crossed(), time.monotonic(), 0, int(rate * seconds)
        while sent < total:
            for number in range(sent, min(total, int((time.monotonic() - begin) * rate) + 1)):
                source.send(STAMP.pack(number, time.time_ns()).ljust(PAYLOAD, b"."))
                sent = number + 1
            time.sleep(BURST)
        took = time.monotonic() - begin
        time.sleep(QUIET)
        crossed = np.subtract(world.crossed(), links) / sent
        arrived, doubled, delays = 0, 0, list[int]()
        for end in others:
            found = [(*STAMP.unpack_from(payload), came) for payload, came in end.read()]
            numbers = {number for number, _, _ in found}
            arrived, doubled = arrived + len(numbers), doubled + len(found) - len(numbers)
            delays += [came - due for _, due, came in found]
    p50, p99 = np.percentile(np.array(delays) / 1e6, [50, 99]) if delays else (np.nan, np.nan)
    lost = 1 - arrived / (sent * len(others))
    times, links_used = (float(p50), float(p99)), (float(crossed[0]), float(crossed[1]))
    return Row(world.name, "UDP", len(others), rate, int(sent / took), lost, doubled, *times, 0, 0, *links_used, 1)


def rows(name: str, shape: str, rates: Sequence[int], seconds: float, ways: Sequence[str]) -> Iterator[Row]:
    """All rows of a world, way by way at each rate; 0 is QoS 1."""
    with WORLDS[name](shape) as world:
        for rate in rates:
            for way in ways:
                if way in ("ALM", "OFM"):
                    yield measure(world, way, rate, seconds)
                elif rate and way == "UDP":
                    yield raw(world, rate, seconds)
    if STATELESS in ways and name == "lab":
        with OnLab(shape, stateless=True) as lab:
            for rate in rates:
                yield measure(lab, STATELESS, rate, seconds)


def markdown(found: Sequence[Row]) -> str:
    """As a table, a line for each rate: the ways in the order measured, separated by slashes."""
    ways = list(dict.fromkeys(row.way for row in found))
    lines = [
        f"{'/'.join(ways)}; CPU of a message at the publisher's broker, packets and bytes of one between clusters:",
        "",
        "| switches | messages/s | published/s | lost, % | p50, ms | p99, ms | CPU, us | packets | bytes |",
        "| --- |" + " ---: |" * 8,
    ]
    for world, members, rate in dict.fromkeys((row.world, row.members, row.rate) for row in found):
        rows = [row for row in found if (row.world, row.members, row.rate) == (world, members, rate)]
        brokers, linked = [row for row in rows if row.way != "UDP"], [row for row in rows if row.packets]
        cells = (
            _each(rows, ways, lambda row: f"{row.published:,}"),
            _each(rows, ways, lambda row: f"{100 * row.lost:.2g}"),
            _each(rows, ways, lambda row: f"{row.p50:.1f}"),
            _each(rows, ways, lambda row: f"{row.p99:.0f}"),
            _each(brokers, ways, lambda row: f"{row.cost:.0f}"),
            _each(linked, ways, lambda row: f"{row.packets:.2f}"),
            _each(linked, ways, lambda row: f"{row.bytes:.0f}"),
        )
        lines.append(f"| {world} | {f'{rate:,}' if rate else 'QoS 1'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _each(rows: Sequence[Row], ways: Sequence[str], figure: Callable[[Row], str]) -> str:
    """A figure for each way, "-" where there is none."""
    found = {row.way: figure(row) for row in rows}
    return "/".join(found.get(way, "-") for way in ways) if found else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit status: 1 if the lab could not be had."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ofm_rates", description=__doc__)
    parser.add_argument("--rates", default="500,2000,4000,8000,16000", help="messages a second (default: %(default)s)")
    parser.add_argument("--qos1", action="store_true", help="also with QoS 1")
    parser.add_argument("--shapes", default="tree:4x2", help="for other numbers of members: tree:2x2,tree:8x2")
    parser.add_argument("--worlds", default="lab,switches", help="default: %(default)s")
    parser.add_argument("--ways", default="ALM,OFM,UDP,stateless", help="default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each row (default: %(default)s)")
    parser.add_argument("--markdown", action="store_true", help=f"write the table into {PAGE}")
    options = parser.parse_args(arguments)
    found, before = list[Row](), os.getloadavg()[0]
    try:
        rates = [int(rate) for rate in options.rates.split(",")] + [0] * options.qos1
        for world, shape in product(options.worlds.split(","), options.shapes.split(",")):
            for row in rows(world, shape, rates, options.seconds, options.ways.split(",")):
                found.append(row)
                print(row, file=sys.stderr)
    except (LabError, NorthboundError) as error:
        print(f"ofm_rates: {error}", file=sys.stderr)
        return 1
    table = markdown(found)
    print(table)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode(found) + b"\n")
    if options.markdown:
        machine = this_machine()
        taken = (
            f"`python -m benchmarks.ofm_rates`, {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC; "
            f"{machine.processor}, {machine.processors} processors, load average {before:.0f} at the beginning, "
            f"{os.getloadavg()[0]:.0f} at the end."
        )
        update_page(PAGE, "rates", f"{textwrap.fill(taken, 120, break_on_hyphens=False)}\n\n{table}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
