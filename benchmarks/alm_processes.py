"""The designed overlay on broker processes: ``python -m benchmarks.alm_processes --help``.

Broker processes on this machine form a mesh over TCP; each broker has a client for each of its random topics. Every
subscriber publishes once to each of its topics, one after the other. What travels between brokers is read from outside:
from the bytes that the kernel counts on each connection from one broker to another's overlay address. The connections
that grow by a payload are the publication's tree; its depth gives the hops, all trees together each broker's links.
"""

from __future__ import annotations

import contextlib
import re
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks import packets
from benchmarks.alm_links import PAGE, interests, orders
from benchmarks.client import accepts_clients, connected, read_exactly, subscribed
from benchmarks.processes import Place, free_port
from benchmarks.section import update_page

SAPS = Path(sys.executable).parent / "saps"
KINDS = {
    "plain": ["--alm", "plain"],
    "la": ["--alm", "la"],
    "cluster": ["--alm", "cluster"],
    "designed, 1 level": ["--alm", "designed", "--set", "overlay.design_levels=1"],
    "designed, 2 levels": ["--alm", "designed", "--set", "overlay.design_levels=2"],
}
CLUSTERS = 4
PAYLOAD = bytes(16_384)
"""Larger than all that brokers say to each other beside a publication meanwhile."""
INTERVAL = 1.0
"""Seconds between two surveys."""
SETTLE = 6 * INTERVAL
"""Seconds after which the mesh has its design: two surveys, the second with the streams that are open then."""
_CONNECTION = re.compile(r":(?P<port>\d+)\s+users:.*?pid=(?P<pid>\d+).*?bytes_sent:(?P<bytes>\d+)")

Edge = tuple[int, int]
"""From one broker to another, by their numbers."""


class Row(msgspec.Struct, frozen=True):
    """What was counted with one way of running ALM."""

    alm: str
    messages: float
    """Copies for each member reached."""
    hops_mean: float
    hops_max: int
    links_mean: float
    """Other brokers that a broker exchanges publications with."""
    links_max: int
    connected_mean: float
    """Other brokers that it has a TCP connection with, for whatever."""


HEADERS = ("ALM", "messages a member", "hops, mean", "max", "links a broker, mean", "max", "connected brokers, mean")


class Mesh:
    """Broker processes that have joined. Its `Place` ends them."""

    def __init__(self, place: Place, count: int, options: Sequence[str]) -> None:
        self.place = place
        self.mqtt = [free_port() for _ in range(count)]
        self.overlay = [free_port() for _ in range(count)]
        for number in range(count):
            argv = [str(SAPS), "broker", "--name", f"b{number}", "--cluster", f"c{number % CLUSTERS}"]
            argv += ["--mqtt", f"127.0.0.1:{self.mqtt[number]}", "--overlay", f"127.0.0.1:{self.overlay[number]}"]
            argv += ["--join", f"127.0.0.1:{self.overlay[0]}"] if number else []
            place.start([*argv, *options])
            place.wait_until(lambda port=self.mqtt[number]: accepts_clients(port))  # type: ignore[misc]

    def sent(self) -> dict[Edge, int]:
        """Bytes that each broker has sent to each other so far, by the kernel's count."""
        listing = subprocess.run(
            ["ss", "-tinpHO", "state", "established"], capture_output=True, text=True, check=True
        ).stdout
        number_of = {pid: number for number, pid in enumerate(self.place.pids)}
        listener = {port: number for number, port in enumerate(self.overlay)}
        sent: dict[Edge, int] = {}
        for line in listing.splitlines():
            found = _CONNECTION.search(line)
            if found is not None and int(found["port"]) in listener and int(found["pid"]) in number_of:
                edge = number_of[int(found["pid"])], listener[int(found["port"])]
                sent[edge] = sent.get(edge, 0) + int(found["bytes"])
        return sent


def count(alm: str, wanted: Sequence[Sequence[str]]) -> Row:
    """Run one mesh of processes."""
    with Place(None) as place, contextlib.ExitStack() as stack:
        mesh = Mesh(place, len(wanted), [*KINDS[alm], "--set", f"overlay.design_interval={INTERVAL:g}"])
        members: dict[str, list[tuple[int, socket.socket]]] = defaultdict(list)
        for broker, topics in enumerate(wanted):
            for topic in topics:
                subscriber = stack.enter_context(subscribed(mesh.mqtt[broker], topic, 0))
                members[topic].append((broker, subscriber))
        publishers = [stack.enter_context(connected(port)) for port in mesh.mqtt]
        for broker, topics in enumerate(wanted):
            for topic in topics:  # opens the streams
                _publish(publishers[broker], topic, b"", members[topic])
        time.sleep(SETTLE)
        return _publish_all(alm, mesh, wanted, members, publishers)


def _publish_all(
    alm: str,
    mesh: Mesh,
    wanted: Sequence[Sequence[str]],
    members: Mapping[str, list[tuple[int, socket.socket]]],
    publishers: Sequence[socket.socket],
) -> Row:
    links: dict[int, set[int]] = defaultdict(set)
    hops: list[int] = []
    copies = reached = 0
    for broker, topics in enumerate(wanted):
        for topic in topics:
            before = mesh.sent()
            _publish(publishers[broker], topic, PAYLOAD, members[topic])
            grown = {edge: sent - before.get(edge, 0) for edge, sent in mesh.sent().items()}
            edges = [edge for edge, more in grown.items() if more >= len(PAYLOAD)]
            copies += sum(grown[edge] // len(PAYLOAD) for edge in edges)
            reached += len(members[topic]) - 1
            hops.extend(_depths(broker, edges).values())
            for source, target in edges:
                links[source].add(target)
                links[target].add(source)
    peers: dict[int, set[int]] = defaultdict(set)
    for source, target in mesh.sent():
        peers[source].add(target)
        peers[target].add(source)
    degrees = [len(links[broker]) for broker in range(len(wanted))]
    return Row(
        alm,
        copies / reached,
        statistics.mean(hops),
        max(hops),
        statistics.mean(degrees),
        max(degrees),
        statistics.mean(len(peers[broker]) for broker in range(len(wanted))),
    )


def _publish(
    publisher: socket.socket, topic: str, payload: bytes, members: Sequence[tuple[int, socket.socket]]
) -> None:
    """Publish, and return when all of the topic's subscribers have it."""
    packet = packets.publish(topic, payload, 0, 0)
    publisher.sendall(packet)
    for _, subscriber in members:
        read_exactly(subscriber, len(packet))


def _depths(root: int, edges: Sequence[Edge]) -> dict[int, int]:
    """How many edges from the root each other broker is."""
    depths = {root: 0}
    queue = [root]
    for at in queue:
        for source, target in edges:
            if source == at and target not in depths:
                depths[target] = depths[at] + 1
                queue.append(target)
    del depths[root]
    return depths


def table(rows: Sequence[Row]) -> str:
    """As Markdown."""
    lines = [f"| {' | '.join(HEADERS)} |", f"|{' --- |' * len(HEADERS)}"]
    lines += [
        f"| {row.alm} | {row.messages:.3f} | {row.hops_mean:.2f} | {row.hops_max} | {row.links_mean:.1f} "
        f"| {row.links_max} | {row.connected_mean:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, print, and with ``--write`` update the page."""
    chosen = orders(arguments, KINDS, "python -m benchmarks.alm_processes", __doc__, (16, 16, 5))
    console = Console(stderr=True)
    wanted = interests(chosen.brokers, chosen.topics, chosen.subscriptions, chosen.seed)
    rows = []
    for alm in chosen.alm or KINDS:
        rows.append(count(alm, wanted))
        console.print(rows[-1])
    text = (
        f"{chosen.brokers} broker processes in {CLUSTERS} clusters, {chosen.topics} topics, {chosen.subscriptions} "
        f"random subscriptions a broker, seed {chosen.seed}:\n\n{table(rows)}"
    )
    print(text)
    if chosen.write:
        update_page(PAGE, "processes", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
