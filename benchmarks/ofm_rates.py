"""One busy topic by ALM, its OpenFlow tree, stateless delivery and raw UDP: ``python -m benchmarks.ofm_rates``. Needs
root, Open vSwitch.

Brokers in clusters of two on Open vSwitch, a publisher at the first, a subscriber at each of the others. The publisher
keeps a rate with QoS 0, in bursts of a millisecond, or has 500 publications with QoS 1 unacknowledged (``--qos1``).
Each payload has its number and the moment it was due. A row says what was lost, the time to the subscribers, what a
message cost the publisher's broker and all brokers in processor time (``/proc/PID/stat``: it holds on a busy machine,
where times and losses do not), and what it put on the links between clusters (port counters). Raw UDP is the floor: a
datagram a message along a tree of the same hosts, without brokers, read when all have been sent.
"""

from __future__ import annotations

import argparse
import asyncio
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
from lab.programs import CALM, MQTT, PATIENCE, Mesh
from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.datapath.driver.udp import mac_of
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.driver.client import Client, NorthboundError
from saps.ofm.northbound.schema import OfmRequest, OfmState

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
RAW, RAW_PORT = "raw", 7500
"""Topic and UDP port of raw datagrams."""
ROOM = 1 << 28
"""Bytes of a raw socket's buffer: all that comes waits there until it is read."""
_SO_RCVBUFFORCE, _SO_TIMESTAMPNS, _IP_MTU_DISCOVER, _DO = 33, 35, 10, 2


class Row(msgspec.Struct, frozen=True):
    """One way at one rate."""

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


def datagrams(mesh: Mesh, broker: str) -> tuple[int, int]:
    """Publications and datagrams that a broker has sent along trees."""
    [found] = [each for each in mesh.order("brokers") if each["broker"] == broker]
    return found["carried"], found["sent"]


def measure(mesh: Mesh, way: str, rate: int, seconds: float) -> Row:
    """One row of ALM or OFM."""
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
        pids, carried = [mesh.programs[host].pid for host in mesh.hosts], datagrams(mesh, source)
        readers.start()
        before, ports = [cpu_seconds([pid]) for pid in pids], mesh.lab.counters()
        count, took = published(publisher, rate, seconds) if rate else acknowledged(publisher, seconds)
        readers.end()
        readers.join()
        used = [cpu_seconds([pid]) - was for pid, was in zip(pids, before, strict=True)]
        after, crossed = datagrams(mesh, source), (mesh.lab.counters() - ports).inter_cluster
    arrived = [np.concatenate(parts) if parts else np.empty(0, np.int64) for parts in readers.numbers.values()]
    unique = sum(len(np.unique(numbers)) for numbers in arrived)
    delays = np.concatenate(readers.delays) / 1e6
    if way == "OFM":
        mesh.release([TOPIC])
    return Row(
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
        crossed.packets / count,
        crossed.bytes / count,
        (after[0] - carried[0]) / max(1, after[1] - carried[1]),
    )


def _drain(sink: socket.socket) -> None:
    """Take what has come."""
    sink.settimeout(QUIET)
    with contextlib.suppress(TimeoutError):
        while sink.recv(1 << 20):
            pass


def raw(mesh: Mesh, rate: int, seconds: float) -> Row:
    """One row of raw UDP."""
    source, *others = mesh.hosts
    with contextlib.ExitStack() as stack:
        sockets = {host: stack.enter_context(_raw_socket(mesh, host)) for host in mesh.hosts}
        elements = {host: _element(mesh, host) for host in mesh.hosts}
        request = OfmRequest(RAW, [elements[host] for host in others], senders=[elements[source]])
        state = _constructed(mesh, request)
        assert state.address is not None
        to = OfmAddress.parse(state.address)
        ports, begin, sent, total = mesh.lab.counters(), time.monotonic(), 0, int(rate * seconds)
        while sent < total:
            for number in range(sent, min(total, int((time.monotonic() - begin) * rate) + 1)):
                stamp = STAMP.pack(number, time.time_ns())
                sockets[source].sendto(stamp.ljust(PAYLOAD, b"."), (to.ip, to.port))
                sent = number + 1
            time.sleep(BURST)
        took = time.monotonic() - begin
        time.sleep(QUIET)
        crossed = (mesh.lab.counters() - ports).inter_cluster
        arrived, doubled, delays = 0, 0, list[int]()
        for host in others:
            found = list(_read(sockets[host]))
            numbers = {number for number, _ in found}
            arrived, doubled = arrived + len(numbers), doubled + len(found) - len(numbers)
            delays += [delay for _, delay in found]
    p50, p99 = np.percentile(np.array(delays) / 1e6, [50, 99])
    lost = 1 - arrived / (sent * len(others))
    links = crossed.packets / sent, crossed.bytes / sent
    return Row("UDP", len(others), rate, int(sent / took), lost, doubled, float(p50), float(p99), 0, 0, *links, 1)


def _element(mesh: Mesh, host: str) -> BrokerAddress:
    ip = mesh.lab.topology.host(host).ip
    with mesh.lab.host(host).inside():
        mac = mac_of(ip)
    assert mac is not None
    return BrokerAddress(ip, mac, RAW_PORT)


def _raw_socket(mesh: Mesh, host: str) -> socket.socket:
    ip = mesh.lab.topology.host(host).ip
    with mesh.lab.host(host).inside():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, ROOM)
    made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    made.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _DO)
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(ip))
    made.bind((ip, RAW_PORT))
    return made


def _read(receiver: socket.socket) -> Iterator[tuple[int, int]]:
    """Number and delay in nanoseconds of each datagram that waits."""
    receiver.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            data, [(_, _, came)], _, _ = receiver.recvmsg(PAYLOAD, 64)
            number, due = STAMP.unpack_from(data)
            seconds, nanoseconds = struct.unpack_from("qq", came)
            yield number, seconds * 1_000_000_000 + nanoseconds - due


def _constructed(mesh: Mesh, request: OfmRequest) -> OfmState:
    """The tree of raw datagrams."""
    token = mesh.token.read_text().strip()

    async def put() -> OfmState:
        sockets = mesh.lab.switches.socket
        async with Client(mesh.northbounds[0], token=token, sockets=lambda info: sockets(*info[:3])) as client:
            return await client.put(request, wait=10.0)

    return asyncio.run(put())


def rows(shape: str, rates: Sequence[int], seconds: float, ways: Sequence[str]) -> Iterator[Row]:
    """All rows, way by way at each rate; 0 is QoS 1."""
    if trees := [way for way in ways if way != STATELESS]:
        with Lab(shape) as lab, Mesh(lab, ofm=True, settings=dict(CALM)) as mesh:
            for rate in rates:
                for way in trees:
                    if way != "UDP":
                        yield measure(mesh, way, rate, seconds)
                    elif rate:
                        yield raw(mesh, rate, seconds)
    if STATELESS in ways:
        settings = {**CALM, "ofm.delivery": "stateless"}
        with Lab(shape, ipv6=True) as lab, Mesh(lab, ofm=True, settings=settings) as mesh:
            told(mesh)
            for rate in rates:
                yield measure(mesh, STATELESS, rate, seconds)


def told(mesh: Mesh) -> None:
    """Returns once all brokers know the bits of all."""
    deadline = time.monotonic() + PATIENCE
    while not all(each["reached"] == len(mesh.hosts) for each in mesh.order("brokers")):
        if time.monotonic() > deadline:
            raise LabError(f"no bits after {PATIENCE:.0f} s: {mesh.order('brokers')}")
        time.sleep(0.1)


def markdown(found: Sequence[Row]) -> str:
    """As a table."""
    lines = [
        "| messages/s | members | way | published/s | lost | doubled | p50 | p99 | CPU a message, publisher's broker "
        "| all brokers | packets between clusters | bytes | messages a datagram |",
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in found:
        packed = f"{row.packed:.1f}" if row.way in ("OFM", STATELESS) else ""
        cost = f"{row.cost:.0f} us | {row.all_cost:.0f} us" if row.way != "UDP" else " | "
        lines.append(
            f"| {f'{row.rate:,}' if row.rate else 'QoS 1'} | {row.members} | {row.way} | {row.published:,} | "
            f"{row.lost:.2%} | {row.doubled} | {row.p50:.1f} ms | {row.p99:.0f} ms | {cost} | {row.packets:.2f} | "
            f"{row.bytes:.0f} | {packed} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit status: 1 if the lab could not be had."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ofm_rates", description=__doc__)
    parser.add_argument("--rates", default="500,2000,4000,8000,16000", help="messages a second (default: %(default)s)")
    parser.add_argument("--qos1", action="store_true", help="also with QoS 1")
    parser.add_argument("--shapes", default="tree:4x2", help="for other numbers of members: tree:2x2,tree:8x2")
    parser.add_argument("--ways", default="ALM,OFM,stateless,UDP", help="default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each row (default: %(default)s)")
    parser.add_argument("--markdown", action="store_true", help=f"write the table into {PAGE}")
    options = parser.parse_args(arguments)
    found: list[Row] = []
    try:
        rates = [int(rate) for rate in options.rates.split(",")] + [0] * options.qos1
        for shape in options.shapes.split(","):
            for row in rows(shape, rates, options.seconds, options.ways.split(",")):
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
        update_page(PAGE, "rates", f"{time.strftime('%Y-%m-%d')}, `python -m benchmarks.ofm_rates`:\n\n{table}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
