"""What a CONNECT costs in a mesh, where each client has one session: ``python -m benchmarks.connects``.

Clients connect with a clean start, are let in, and go, each under a name of its own, at the brokers in turn. Counted is
the processor time of all brokers for each, and the time until they are let in. `simulated` are the product's nodes in
one process, on links of 0.5 to 1 ms: what the mesh does for a CONNECT, in its virtual time, whatever else the machine
does. `live` are broker processes and clients over MQTT; one process holds the clients, so with many at a time the times
are its own as well; the broker alone shows by how much.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import msgspec

from benchmarks import packets
from benchmarks.peers import Saps
from benchmarks.probes import cpu_seconds, family
from benchmarks.processes import Place
from benchmarks.progress import shown
from benchmarks.section import PAGE, update_page
from saps.mesh import Arrival, SessionHost
from saps.overlay.retained.notices import LINGER
from saps.simulator import Network, Simulation

MESHES = (1, 3, 8)
"""Numbers of brokers."""
PARALLEL = (1, 20)
"""Clients that connect at the same time."""
CLAIMS = 2000
"""Clients of a simulated mesh."""
SECONDS = 5.0
"""Of each measurement with processes."""
WARM_UP = 2.0
"""Seconds before anything counts: the brokers find out who knows where sessions are."""


class Point(msgspec.Struct, frozen=True):
    """One mesh, and so many clients at a time."""

    kind: str
    brokers: int
    parallel: int
    connects: int
    processor: float
    """Seconds of all brokers for one client, from its connection to its end."""
    times: tuple[float, float, float]
    """Seconds from CONNECT to CONNACK: of half of the clients at most, of 99 %, of all."""


def point_of(kind: str, brokers: int, parallel: int, spent: float, times: Sequence[float]) -> Point:
    """What so many processor seconds and these times amount to."""
    ordered = sorted(times)
    found = statistics.median(ordered), ordered[len(ordered) * 99 // 100], ordered[-1]
    return Point(kind, brokers, parallel, len(ordered), spent / len(ordered), found)


# --- in the simulator -----------------------------------------------------------------------------------------------


class NoSessions:
    """What a broker without sessions has to say of them."""

    def clients(self) -> Sequence[str]:
        """Nobody."""
        return ()

    def birth(self, client: str) -> int:
        """None has a session."""
        return 0


class _Claims:
    """Clients of a simulated mesh, so many at a time: each is let in, and goes."""

    def __init__(self, mesh: Simulation) -> None:
        self._mesh = mesh
        self._brokers = itertools.cycle(mesh.alive())
        self._begun = self._count = 0
        self.times: list[float] = []

    def run(self, parallel: int, count: int) -> None:
        """So many claims, and what follows when their clients have gone."""
        self._count = count
        for _ in range(parallel):
            self._claim()
        self._mesh.run_until(lambda: len(self.times) >= count, 600.0)
        self._mesh.run(2 * LINGER)

    def _claim(self) -> None:
        self._begun += 1
        mesh, broker, client, begun = self._mesh, next(self._brokers), f"{self._count}-{self._begun}", self._mesh.now

        def arrived(arrival: Arrival) -> None:
            self.times.append(mesh.now - begun)
            mesh.at(mesh.now, gone)

        def gone() -> None:
            broker.act(lambda: broker.node.sessions.release(client))
            if self._begun < self._count:
                self._claim()

        broker.act(lambda: broker.node.sessions.claim(client, None, False, arrived))


def simulated(brokers: int, parallel: int, count: int = CLAIMS) -> Point:
    """Nodes in this process, without sockets and MQTT; warm."""
    mesh = Simulation(1, network=Network(latency=(0.0005, 0.001)), check=False)
    mesh.build(brokers, 1)
    for broker in mesh.alive():
        broker.node.sessions.host = cast(SessionHost, NoSessions())
    _Claims(mesh).run(1, 1000)  # the holders are found, and are enough
    claims, begun = _Claims(mesh), time.thread_time()
    claims.run(parallel, count)
    return point_of("simulated", brokers, parallel, time.thread_time() - begun, claims.times)


# --- with processes -------------------------------------------------------------------------------------------------


class Clients:
    """Some clients at a time, one after the other."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = itertools.cycle(ports)
        self._numbers = itertools.count()
        self.times: list[float] = []
        """From CONNECT to CONNACK, in seconds."""

    async def run(self, parallel: int, seconds: float) -> None:
        """Connect and go, for a while."""
        end = time.perf_counter() + seconds
        await asyncio.gather(*(self._one_after_the_other(end) for _ in range(parallel)))

    async def _one_after_the_other(self, end: float) -> None:
        while time.perf_counter() < end:
            reader, writer = await asyncio.open_connection("127.0.0.1", next(self._ports))
            begun = time.perf_counter()
            writer.write(packets.connect(f"connects-{os.getpid()}-{next(self._numbers)}"))
            answer = await reader.readexactly(packets.CONNACK_BYTES)
            self.times.append(time.perf_counter() - begun)
            if answer[3]:
                raise SystemExit(f"CONNECT was answered with {answer.hex()}")
            writer.write(packets.DISCONNECT)
            writer.close()


def live(brokers: int, parallels: Sequence[int], seconds: float) -> Iterator[Point]:
    """A mesh of so many brokers, once for each number of clients at a time."""
    with Place(None) as place:
        ports = Saps().launch_mesh(place, brokers)
        asyncio.run(Clients(ports).run(max(parallels), WARM_UP))
        pids = family(place.pids)
        for parallel in parallels:
            clients, before = Clients(ports), cpu_seconds(pids)
            asyncio.run(clients.run(parallel, seconds))
            time.sleep(0.5)  # what is done for clients that have gone counts as well
            yield point_of("live", brokers, parallel, cpu_seconds(pids) - before, clients.times)


# --- the command ----------------------------------------------------------------------------------------------------

HEADERS = ("mesh", "brokers", "clients at a time", "CONNECTs", "processor time", "CONNACK after: median", "99 %", "all")


def cells(point: Point) -> tuple[str, ...]:
    """One row."""
    times = [f"{seconds * 1e3:.1f} ms" for seconds in point.times]
    counts = str(point.brokers), str(point.parallel), f"{point.connects:,}"
    return point.kind, *counts, f"{point.processor * 1e6:,.0f} µs", *times


def markdown(points: Sequence[Point], command: str) -> str:
    """The section of docs/performance.md."""
    return "\n".join(
        [
            f"Measured by `{command}`, load average {os.getloadavg()[0]:.1f} by all programs at the end, "
            f"{os.cpu_count()} processors. Processor time of all brokers together, from a client's connection to its "
            "end. *simulated*: the nodes alone, in one process, times in virtual seconds on links of 0.5 to 1 ms; "
            "*live*: processes and clients over MQTT, whose own process takes part of the machine.",
            "",
            "| " + " | ".join(HEADERS) + " |",
            "|---|" + "---:|" * (len(HEADERS) - 1),
            *("| " + " | ".join(cells(point)) + " |" for point in points),
        ]
    )


def measured(kinds: Sequence[str], brokers: Sequence[int], parallels: Sequence[int], seconds: float) -> Iterator[Point]:
    """All points."""
    for kind in kinds:
        for count in brokers:
            if kind == "live":
                yield from live(count, parallels, seconds)
            elif count > 1:  # alone a node does nothing
                yield from (simulated(count, parallel) for parallel in parallels)


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.connects", description=__doc__.partition("\n")[0])
    parser.add_argument("--kinds", nargs="+", choices=["simulated", "live"], default=["simulated", "live"])
    parser.add_argument("--brokers", type=int, nargs="+", metavar="N", default=MESHES)
    parser.add_argument("--parallel", type=int, nargs="+", metavar="N", default=PARALLEL, help="clients at a time")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each measurement (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--markdown", action="store_true", help="write the table into docs/performance.md")
    return parser.parse_args(argv)


def command_of(chosen: argparse.Namespace) -> str:
    """The command that repeats the measurement."""
    words = ["python -m benchmarks.connects"]
    words += [f"--kinds {chosen.kinds[0]}"] * (len(chosen.kinds) == 1)
    words += [f"--brokers {' '.join(map(str, chosen.brokers))}"] * (tuple(chosen.brokers) != MESHES)
    words += [f"--parallel {' '.join(map(str, chosen.parallel))}"] * (tuple(chosen.parallel) != PARALLEL)
    words += [f"--seconds {chosen.seconds:g}"] * (chosen.seconds != SECONDS)
    return " ".join(words)


def main() -> int:
    """The command. Exit status 1 if a broker failed."""
    chosen = arguments(sys.argv[1:])
    points = shown(measured(chosen.kinds, chosen.brokers, chosen.parallel, chosen.seconds), HEADERS, cells)
    if chosen.json:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(points)))
    if chosen.markdown:
        update_page(PAGE, "connects", markdown(points, command_of(chosen)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
