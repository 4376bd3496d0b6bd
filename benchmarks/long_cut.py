"""A cut of an hour between two sites, and how fast what was missed is made up: ``python -m benchmarks.long_cut``.
Needs root and Open vSwitch.

Two sites with two brokers each, as processes on the hosts of a lab; one link joins the sites. At the first broker of
each site a publisher sends QoS 1 to many topics in turn; a client of the other site with a lasting session subscribes
to them. The link goes down and comes back. Beside what is made up there is live traffic: all along from the same
publisher's broker to the other broker of its site, and, from the first message made up on, to new topics of the other
site.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import math
import os
import socket
import sys
import tempfile
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks import packets
from benchmarks.chaos.cable import Cable
from benchmarks.chaos.ground import in_lab, topology
from benchmarks.client import SetupError, connected, subscribed
from benchmarks.generator import Bench
from benchmarks.machine import this_machine
from benchmarks.progress import interrupt_at_termination, progress_bar
from benchmarks.section import update_page
from benchmarks.streams import BUFFER_BYTES, StreamError, read_acks, receive, send_all
from benchmarks.summary import percentile
from examples.smart_city.processes import BrokerError
from lab import Lab, LabError, obstacle
from lab.programs import MQTT

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
SITES = ("east", "west")
TOPICS = 100
"""Of each publisher."""
PAYLOAD = 200
"""Bytes."""
LIVE_RATE = 100
"""Messages a second of each stream of live traffic."""
TIMEOUT = 600.0
"""Seconds for what was missed to come."""
SETTLED = 3.0
"""Seconds of traffic before the cut, and after all has been made up."""
STEPS = 60
"""Of the cut, for the bar."""
SETTINGS = {"storage.sync": "normal", "limits.maximum_queued": "1000"}
"""The defaults, which `benchmarks.chaos.ground` changes."""


class Source:
    """Publishes with QoS 1 to `TOPICS` topics in turn, at a steady rate. Each payload begins with the moment at which
    it was due."""

    def __init__(self, bench: Bench, sock: socket.socket, name: str, rate: float) -> None:
        self.published: list[int] = []
        """Nanoseconds of the monotonic clock."""
        self._topics = [f"{name}/{number:02}" for number in range(TOPICS)]
        self._step = round(1e9 / rate)
        self._due = 0
        self._sock = bench.adopt(sock)
        bench.watch(sock, self._acknowledge)

    def start(self) -> None:
        """Publish from now on."""
        self._due = time.monotonic_ns()

    def stop(self) -> None:
        """Publish nothing more."""
        self._due = 0

    def fill(self, now: int) -> None:
        """Publish what is due. Raises `StreamError`."""
        while 0 < self._due <= now:
            number = len(self.published)
            payload = self._due.to_bytes(packets.STAMP_BYTES) + bytes(PAYLOAD - packets.STAMP_BYTES)
            send_all(self._sock, packets.publish(self._topics[number % TOPICS], payload, 1, number % 65535 + 1))
            self.published.append(self._due)
            self._due += self._step

    def _acknowledge(self) -> None:
        read_acks(self._sock)


class Sink:
    """A subscriber of one source: when what came, and whether it came once, and in order for each topic."""

    def __init__(self, bench: Bench, sock: socket.socket, name: str) -> None:
        self.due, self.arrived = array("q"), array("q")
        """Of each message that came for the first time, in the order of arrival: nanoseconds of the monotonic clock."""
        self.doubled = 0
        self.late = 0
        """Messages that came after a later one of their topic."""
        self.horizon = math.inf
        """When the cut was over, from then on."""
        self.early, self.last_early = 0, 0
        """How many messages from before the horizon have come, and when the last one did."""
        self._known: set[int] = set()
        """The moments at which they were due, by which they are told apart."""
        self._last: dict[bytes, int] = {}
        self._layout = packets.Layout.of(f"{name}/00", PAYLOAD, 1)
        self._sock, self._rest, self._view = bench.adopt(sock), b"", memoryview(bytearray(BUFFER_BYTES))
        bench.watch(sock, self._take)

    def _take(self) -> None:
        data = self._rest + bytes(self._view[: receive(self._sock, self._view)])
        now, layout, size = time.monotonic_ns(), self._layout, self._layout.size
        whole = len(data) - len(data) % size
        self._rest = data[whole:]
        for start in range(0, whole, size):
            stamp = start + layout.stamp
            due = int.from_bytes(data[stamp : stamp + packets.STAMP_BYTES])
            if due in self._known:
                self.doubled += 1
                continue
            self._known.add(due)
            topic = data[start + 5 : start + layout.packet_id]
            last = self._last.get(topic, 0)
            self.late += due < last
            self._last[topic] = max(due, last)
            self.due.append(due)
            self.arrived.append(now)
            if due < self.horizon:
                self.early, self.last_early = self.early + 1, now
        if whole:
            at = layout.packet_id
            send_all(self._sock, packets.pubacks(data[at:whole:size], data[at + 1 : whole : size]))

    def latencies(self, begin: int, end: int) -> list[float]:
        """Seconds, of what arrived from one moment to another."""
        first, last = bisect_left(self.arrived, begin), bisect_left(self.arrived, end)
        return [(self.arrived[place] - self.due[place]) / 1e9 for place in range(first, last)]


class MadeUp(msgspec.Struct, frozen=True):
    """What one site's subscriber got of the other site's messages."""

    site: str
    missed: int
    """Published during the cut."""
    lost: int
    doubled: int
    late: int
    """Came once, but after a later one of their topic."""
    begun: float
    """Seconds from the repair to the first of them."""
    done: float
    """Seconds from the repair to the last of them."""

    @property
    def rate(self) -> float:
        """Messages a second, from the first to the last."""
        return self.missed / (self.done - self.begun) if self.done > self.begun else math.inf


class Result(msgspec.Struct, frozen=True):
    """Of a run."""

    sites: list[MadeUp]
    live: dict[str, list[float]]
    """p50 and p99 in seconds of live traffic, by what it is."""
    lost_live: int
    wrong_live: int
    """Doubled or out of order."""


class Traffic:
    """The clients. All of them stay connected."""

    def __init__(self, lab: Lab, hosts: dict[str, list[str]], rate: float) -> None:
        """`hosts`: of each site, two of them."""
        self.bench = Bench()
        self._lab = lab
        self.long: dict[str, tuple[Source, Sink]] = {}
        self.near: dict[str, tuple[Source, Sink]] = {}
        self.new: dict[str, tuple[Source, Sink]] = {}
        for site, other in zip(SITES, SITES[::-1], strict=True):
            here, there = hosts[site], hosts[other]
            self.long[site] = self._pair(f"long/{site}", here[0], there[0], rate, lasting=True)
            self.near[site] = self._pair(f"near/{site}", here[0], here[1], LIVE_RATE)
            self.new[site] = self._pair(f"new/{site}", here[0], there[0], LIVE_RATE)

    def _pair(self, name: str, source: str, sink: str, rate: float, lasting: bool = False) -> tuple[Source, Sink]:
        with self._lab.host(sink).inside():
            subscriber = subscribed(MQTT, f"{name}/#", 1, lasting)
        with self._lab.host(source).inside():
            publisher = connected(MQTT)
        return Source(self.bench, publisher, name, rate), Sink(self.bench, subscriber, name)

    @property
    def pairs(self) -> list[tuple[Source, Sink]]:
        """All of them."""
        return [*self.long.values(), *self.near.values(), *self.new.values()]

    def go_on(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Publish and receive for so long, or until something is true: whether it is. Raises `StreamError`."""
        end, sources = time.monotonic() + seconds, [source for source, _ in self.pairs]
        while not (found := until()) and time.monotonic() < end:
            now = time.monotonic_ns()
            for source in sources:
                source.fill(now)
            self.bench.step(0.002)
        return found

    def run(self, cable: Cable, seconds: float, show: Callable[[str], None]) -> Result:
        """Before, during and after the cut. Raises `StreamError` and `LabError`."""
        show("before the cut")
        steady = [*self.long.values(), *self.near.values()]
        for source, _ in steady:
            source.start()
        self.go_on(SETTLED)
        begun = time.monotonic_ns()
        repair = cable.cut()
        for step in range(STEPS):
            show(f"cut, {seconds * (1 - step / STEPS) / 60:.1f} minutes left")
            self.go_on(seconds / STEPS)
        repair()
        healed = time.monotonic_ns()
        show("making up")
        had = {}
        for _, sink in self.long.values():
            sink.horizon, had[sink] = healed, len(sink.due)
        if not self.go_on(TIMEOUT, lambda: all(len(sink.due) > count for sink, count in had.items())):
            raise LabError("nothing of what was published meanwhile arrives")
        for source, _ in self.new.values():
            source.start()
        owed = [(sink, bisect_left(source.published, healed)) for source, sink in self.long.values()]
        self.go_on(TIMEOUT, lambda: all(sink.early >= count for sink, count in owed))
        done = time.monotonic_ns()
        self.go_on(SETTLED)
        for source, _ in self.pairs:
            source.stop()
        self.go_on(TIMEOUT, lambda: all(len(sink.due) >= len(source.published) for source, sink in self.pairs))
        sites = [self._made_up(site, begun, healed) for site in SITES]
        live = {
            "in a site, during the cut": self._figures(self.near, begun, healed),
            "in a site, while it is made up": self._figures(self.near, healed, done),
            "between sites, new topics": self._figures(self.new, healed, done),
        }
        beside = [*self.near.values(), *self.new.values()]
        lost = sum(len(source.published) - len(sink.due) for source, sink in beside)
        return Result(sites, live, lost, sum(sink.doubled + sink.late for _, sink in beside))

    def _made_up(self, site: str, begun: int, healed: int) -> MadeUp:
        source, sink = self.long[site]
        first = sink.arrived[bisect_left(sink.arrived, healed)]
        missed = bisect_left(source.published, healed) - bisect_left(source.published, begun)
        return MadeUp(
            site,
            missed,
            len(source.published) - len(sink.due),
            sink.doubled,
            sink.late,
            begun=(first - healed) / 1e9,
            done=(sink.last_early - healed) / 1e9,
        )

    def _figures(self, pairs: dict[str, tuple[Source, Sink]], begin: int, end: int) -> list[float]:
        found = [latency for _, sink in pairs.values() for latency in sink.latencies(begin, end)]
        return [percentile(found, 50), percentile(found, 99)]


async def measure(minutes: float, rate: float, show: Callable[[str], None]) -> Result:
    """One cut. Raises `BrokerError`, `LabError`, `SetupError`, `StreamError` and `OSError`."""
    with Lab(topology(4), name=f"cut{os.getpid()}") as lab, tempfile.TemporaryDirectory() as folder:
        ground = in_lab(lab, Path(folder), SETTINGS, disks=False)
        for site in ground.sites.values():
            site.own_clock = False
        async with ground:
            hosts = {site: sorted(names) for site, names in zip(SITES, ground.sides, strict=True)}
            traffic = Traffic(lab, hosts, rate)
            with traffic.bench.sockets:
                return await asyncio.to_thread(traffic.run, Cable(lab), 60 * minutes, show)


def markdown(result: Result, said: str) -> str:
    """The tables."""
    lines = [said, ""]
    lines += ["| published at | missed | lost | doubled | out of order | first after | all after | made up |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|---:|"]
    lines += [
        f"| {site.site} | {site.missed:,} | {site.lost} | {site.doubled} | {site.late} "
        f"| {site.begun:.1f} s | {site.done:.1f} s | {site.rate:,.0f}/s |"
        for site in result.sites
    ]
    lines += ["", f"Live traffic beside it ({result.lost_live} lost, {result.wrong_live} doubled or out of order):", ""]
    lines += ["| | p50 | p99 |", "|---|---:|---:|"]
    lines += [f"| {what} | {1000 * p50:.1f} ms | {1000 * p99:.1f} ms |" for what, (p50, p99) in result.live.items()]
    return "\n".join(lines)


def positive(word: str) -> float:
    """A number above 0. Raises `ValueError`."""
    if not (number := float(word)) > 0:
        raise ValueError
    return number


def main(words: Sequence[str] | None = None) -> int:
    """The command. Exit status 1 if a message was lost, doubled or out of order, 2 if it could not be carried out."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_cut", description=__doc__.partition(":")[0])
    parser.add_argument("--minutes", type=positive, default=60.0, help="that the cut lasts (default: 60)")
    parser.add_argument("--rate", type=positive, default=100.0, help="messages a second each way (default: 100)")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/reliability.md")
    chosen = parser.parse_args(words)
    if why := obstacle():
        print(f"long_cut: {why}", file=sys.stderr)
        return 2
    interrupt_at_termination()
    try:
        with progress_bar(Console(stderr=True), STEPS + 2) as show:
            result = asyncio.run(measure(chosen.minutes, chosen.rate, show))
    except (BrokerError, LabError, SetupError, StreamError, OSError) as error:
        print(f"long_cut: {error}", file=sys.stderr)
        return 2
    machine = this_machine()
    said = (
        f"`python -m benchmarks.long_cut --minutes {chosen.minutes:g} --rate {chosen.rate:g}`, "
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC; {machine.processor}, {machine.processors} "
        f"processors; two brokers in each of two sites, QoS 1 to {TOPICS} topics each way, {PAYLOAD} bytes."
    )
    text = markdown(result, said)
    print(text)
    if chosen.write:
        update_page(PAGE, "long-cut", text)
    wrong = [(site.lost, site.doubled, site.late) for site in result.sites]
    return int(any(map(any, wrong)) or result.lost_live + result.wrong_live > 0)


if __name__ == "__main__":
    sys.exit(main())
