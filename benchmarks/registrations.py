"""What it costs to subscribe in a mesh against the number of filters there: ``python -m benchmarks.registrations``.

One broker takes all subscriptions, another publishes: so each filter is put into the overlay and announced. `simulated`
are two nodes of the product in one process, without sockets: processor time of both. `live` are two broker processes
and clients that subscribe over MQTT: processor time of both brokers. What is measured is the last part of each size, so
a figure is the cost of one more.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import multiprocessing
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec

from benchmarks import client, packets
from benchmarks.matching import SHAPES, topic_of
from benchmarks.peers import Saps
from benchmarks.probes import cpu_seconds, family, resident_bytes
from benchmarks.processes import Place
from benchmarks.progress import shown
from benchmarks.section import PAGE, update_page
from saps.simulator import Network, SimBroker, Simulation

SIZES = (1_000, 10_000, 100_000, 1_000_000)
"""Numbers of filters."""
LIVE_SIZES = (1_000, 10_000, 100_000)
PART = 1_000
"""Filters whose mean cost is the figure."""
TOGETHER = 100
"""Filters subscribed at a time, as in one SUBSCRIBE."""
PER_CLIENT = 500
"""Subscriptions of one MQTT client."""
PUBLISHED = 100
"""Topics published to by the other broker."""
APART = 1009
"""Their numbers' distance: each is of another site."""


class Point(msgspec.Struct, frozen=True):
    """One number of filters."""

    kind: str
    filters: int
    subscribe: float
    """Processor seconds of all brokers for one more filter."""
    unsubscribe: float
    match: float
    """Processor seconds until a broker knows what it is owed of a topic (simulated)."""
    memory: float
    """Resident bytes a filter, at all brokers together."""


def filters_of(count: int) -> list[str]:
    """So many filters of the load `mixed`."""
    made = (topic_filter for number in itertools.count() for topic_filter in SHAPES[0].filters(number))
    return list(itertools.islice(made, count))


# --- in the simulator -----------------------------------------------------------------------------------------------


def simulated(count: int) -> Point:
    """Two nodes in this process. Memory is right in a fresh process only."""
    mesh = Simulation(1, network=Network(latency=(0.0001, 0.0002)), check=False)
    mesh.build(2, 1)
    publisher, subscriber = mesh.alive()
    for number in range(PUBLISHED):
        publisher.publish(topic_of(number * APART), b"x")
    mesh.run(1)
    wanted = filters_of(count)
    before = resident_bytes([os.getpid()])
    _timed(mesh, subscriber.subscribe, wanted[:-PART])
    subscribe = _timed(mesh, subscriber.subscribe, wanted[-PART:])
    memory = (resident_bytes([os.getpid()]) - before) / count
    match = statistics.median(
        _match(subscriber, number) for number in range(0, max(1, count // 4), max(1, count // 400))
    )
    unsubscribe = _timed(mesh, _withdraw(subscriber), wanted[-PART:])
    return Point("simulated", count, subscribe, unsubscribe, match, memory)


def _alone(count: int) -> Point:
    """In a process of its own. Without collections of reference cycles, as good as in a broker: it has calmed them."""
    gc.disable()
    return simulated(count)


def _withdraw(broker: SimBroker) -> Callable[[str, Callable[[], None]], None]:
    return lambda wanted, done: broker.act(lambda: broker.node.rendezvous.subscriptions.unsubscribe(wanted, done))


def _timed(mesh: Simulation, act: Callable[[str, Callable[[], None]], None], wanted: Sequence[str]) -> float:
    """Have the mesh take up a number of filters, `TOGETHER` at a time; processor seconds for each."""
    begun = time.thread_time()
    for start in range(0, len(wanted), TOGETHER):
        part = wanted[start : start + TOGETHER]
        ready: list[str] = []
        for topic_filter in part:
            act(topic_filter, partial(ready.append, topic_filter))
        mesh.run_until(partial(_complete, ready, part), 60)
    return (time.thread_time() - begun) / max(1, len(wanted))


def _complete(ready: Sequence[str], part: Sequence[str]) -> bool:
    return len(ready) == len(part)


def _match(broker: SimBroker, number: int) -> float:
    topic, baseline = topic_of(number), broker.node.rendezvous.subscriptions.baseline
    begun = time.thread_time()
    assert baseline(topic, ("b0", 1)) is not None
    return time.thread_time() - begun


# --- with processes -------------------------------------------------------------------------------------------------


def live(count: int) -> Point:
    """Two broker processes; clients of `PER_CLIENT` subscriptions each, one SUBSCRIBE for `TOGETHER`."""
    with Place(None) as place, ExitStack() as sockets:
        site = Saps().launch_pair(place)
        publisher = sockets.enter_context(client.connected(site.publish_port))
        for number in range(PUBLISHED):
            publisher.sendall(packets.publish(topic_of(number * APART), b"x", 0, 0))
        pids = family(place.pids)
        before, wanted = resident_bytes(pids), filters_of(count)
        held: list[socket.socket] = []
        for start in range(0, count, PER_CLIENT):
            if start >= count - PART and start - PER_CLIENT < count - PART:
                begun = cpu_seconds(pids)
            held.append(sockets.enter_context(client.connected(site.subscribe_port)))
            for first in range(start, min(count, start + PER_CLIENT), TOGETHER):
                _subscribe(held[-1], wanted[first : first + TOGETHER])
        subscribe = (cpu_seconds(pids) - begun) / min(PART, count)
        memory = (resident_bytes(pids) - before) / count
        begun = cpu_seconds(pids)
        for sock in held[-PART // PER_CLIENT :]:  # a client that goes takes all its subscriptions with it
            sock.sendall(packets.DISCONNECT)
        last = client.connected(site.subscribe_port)
        _subscribe(sockets.enter_context(last), ["after"])
        time.sleep(1.0)
        unsubscribe = (cpu_seconds(pids) - begun) / min(PART, count)
    return Point("live", count, subscribe, unsubscribe, 0.0, memory)


def _subscribe(sock: socket.socket, filters: Sequence[str]) -> None:
    """One SUBSCRIBE, past its SUBACK. Raises SetupError."""
    sock.sendall(packets.subscribe_all(filters, 0))
    sock.settimeout(60.0)
    size = client.read_exactly(sock, 2)[1]
    if 0x80 in client.read_exactly(sock, size)[2:]:
        raise client.SetupError("a subscription was refused")


# --- the command ----------------------------------------------------------------------------------------------------

HEADERS = ("mesh", "filters", "to subscribe one more", "to end one", "match", "memory a filter")


def cells(point: Point) -> tuple[str, ...]:
    """One row."""
    return (
        point.kind,
        f"{point.filters:,}",
        f"{point.subscribe * 1e6:,.0f} µs",
        f"{point.unsubscribe * 1e6:,.0f} µs",
        f"{point.match * 1e6:.1f} µs" if point.match else "",
        f"{point.memory / 1000:.1f} kB",
    )


def markdown(points: Sequence[Point], command: str) -> str:
    """The section of docs/performance.md."""
    return "\n".join(
        [
            f"Measured by `{command}`: processor time of two brokers. One gets all subscriptions (load `mixed`), "
            f"{TOGETHER} at a time, the other publishes to {PUBLISHED} topics.",
            "",
            "| " + " | ".join(HEADERS) + " |",
            "|---|" + "---:|" * (len(HEADERS) - 1),
            *("| " + " | ".join(cells(point)) + " |" for point in points),
        ]
    )


def measured(kinds: Sequence[str], sizes: Sequence[int]) -> Iterator[Point]:
    """All points, the simulated ones each in a process of its own."""
    for kind in kinds:
        for size in sizes or (SIZES if kind == "simulated" else LIVE_SIZES):
            if kind == "simulated":
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                    yield process.submit(_alone, size).result()
            else:
                yield live(size)


def main() -> int:
    """The command. Exit status 1 if a broker failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.registrations", description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", default=[], help="numbers of filters")
    parser.add_argument("--kinds", nargs="+", choices=["simulated", "live"], default=["simulated", "live"])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--markdown", action="store_true", help="write the table into docs/performance.md")
    chosen = parser.parse_args()
    points = shown(measured(chosen.kinds, chosen.sizes), HEADERS, cells)
    if chosen.json:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(points)))
    if chosen.markdown:
        sizes = f" --sizes {' '.join(map(str, chosen.sizes))}" if chosen.sizes else ""
        kinds = f" --kinds {' '.join(chosen.kinds)}" if len(chosen.kinds) == 1 else ""
        update_page(PAGE, "registrations", markdown(points, "python -m benchmarks.registrations" + kinds + sizes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
