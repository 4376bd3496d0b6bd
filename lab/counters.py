"""What crossed each link, from the kernel's counters of the switch ports: exact, immediate, and no switch is asked.

Bytes are Ethernet frames without the check sequence. A snapshot costs one read of a file, whatever the number of links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from lab.namespace import Namespace
from saps.ofm.switch.topologies import Host, Link, Topology


class Traffic(NamedTuple):
    """Packets, and their bytes."""

    packets: int = 0
    bytes: int = 0


def total(parts: Iterable[Traffic]) -> Traffic:
    """The sum of several counts."""
    packets = size = 0
    for part in parts:
        packets += part.packets
        size += part.bytes
    return Traffic(packets, size)


class Counters:
    """A snapshot: what every switch port has sent and received so far. ``later - earlier`` is what came between."""

    def __init__(self, topology: Topology, sent: Mapping[str, Traffic], received: Mapping[str, Traffic]) -> None:
        self._topology = topology
        self._sent = dict(sent)
        self._received = dict(received)

    def __sub__(self, earlier: Counters) -> Counters:
        return Counters(
            self._topology, _difference(self._sent, earlier._sent), _difference(self._received, earlier._received)
        )

    def across(self, a: str, b: str, number: int = 1) -> Traffic:
        """What switch `a` sent to its neighbour `b`, over the link of that number. Raises `KeyError`."""
        link = self._topology.link(a, b, number)
        return self._sent[link.name if link.a == a else link.reverse]

    def to_host(self, name: str) -> Traffic:
        """What its switch sent to a host. Raises `KeyError`."""
        return self._sent[name]

    def from_host(self, name: str) -> Traffic:
        """What a host sent to its switch. Raises `KeyError`."""
        return self._received[name]

    def links(self) -> Iterator[tuple[Link, Traffic, Traffic]]:
        """Every link between switches: from `a` to `b`, and from `b` to `a`."""
        for link in self._topology.links:
            yield link, self._sent[link.name], self._sent[link.reverse]

    def hosts(self) -> Iterator[tuple[Host, Traffic, Traffic]]:
        """Every host: what it sent, and what it was sent."""
        for host in self._topology.hosts:
            yield host, self._received[host.name], self._sent[host.name]

    @property
    def inter_cluster(self) -> Traffic:
        """Everything, both ways, on links that join clusters, or a cluster and a switch between clusters.

        A packet counts on each such link it crosses: twice from one cluster to another through the core of a tree."""
        return total(part for link, *both in self.links() if link.inter_cluster for part in both)

    @property
    def intra_cluster(self) -> Traffic:
        """Everything on the other links between switches, both directions."""
        return total(part for link, *both in self.links() if not link.inter_cluster for part in both)


def _difference(later: Mapping[str, Traffic], earlier: Mapping[str, Traffic]) -> dict[str, Traffic]:
    return {
        name: Traffic(count.packets - earlier[name].packets, count.bytes - earlier[name].bytes)
        for name, count in later.items()
    }


def parse(text: str) -> tuple[dict[str, Traffic], dict[str, Traffic]]:
    """Received and sent by interface, from the text of ``/proc/net/dev`` (proc_net_dev(5))."""
    received, sent = {}, {}
    for line in text.splitlines()[2:]:
        name, _, counts = line.partition(":")
        numbers = [int(number) for number in counts.split()]
        received[name.strip()] = Traffic(numbers[1], numbers[0])
        sent[name.strip()] = Traffic(numbers[9], numbers[8])
    return received, sent


def reader(topology: Topology, switches: Namespace) -> Callable[[], Counters]:
    """A function that takes a snapshot each time it is called."""
    wanted = {name for link in topology.links for name in (link.name, link.reverse)}
    wanted |= {host.name for host in topology.hosts}

    def read() -> Counters:
        with switches.inside():
            text = Path("/proc/thread-self/net/dev").read_text()
        received, sent = ({name: part[name] for name in wanted} for part in parse(text))
        return Counters(topology, sent, received)

    return read
