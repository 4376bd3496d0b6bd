"""Counts the traffic of each link by the kernel's counters of the switch ports: exact, immediate, and without switches.

Bytes are those of Ethernet frames without the check sequence. A snapshot costs one read of a file for any number of
links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from lab.namespace import Namespace
from saps.ofm.switch.topologies import Host, Link, Topology


class Traffic(NamedTuple):
    """A number of packets, and their bytes."""

    packets: int = 0
    bytes: int = 0


def total(parts: Iterable[Traffic]) -> Traffic:
    """Return the sum of several counts."""
    packets = size = 0
    for part in parts:
        packets += part.packets
        size += part.bytes
    return Traffic(packets, size)


class Counters:
    """A snapshot of the traffic that every switch port has sent and received. ``later - earlier`` is the difference."""

    def __init__(self, topology: Topology, sent: Mapping[str, Traffic], received: Mapping[str, Traffic]) -> None:
        self._topology = topology
        self._sent = dict(sent)
        self._received = dict(received)

    def __sub__(self, earlier: Counters) -> Counters:
        return Counters(
            self._topology, _difference(self._sent, earlier._sent), _difference(self._received, earlier._received)
        )

    def across(self, a: str, b: str, number: int = 1) -> Traffic:
        """Return the traffic from switch `a` to its neighbour `b` over the link of that number. Raises `KeyError`."""
        link = self._topology.link(a, b, number)
        return self._sent[link.name if link.a == a else link.reverse]

    def to_host(self, name: str) -> Traffic:
        """Return the traffic to a host from its switch. Raises `KeyError`."""
        return self._sent[name]

    def from_host(self, name: str) -> Traffic:
        """Return the traffic from a host to its switch. Raises `KeyError`."""
        return self._received[name]

    def links(self) -> Iterator[tuple[Link, Traffic, Traffic]]:
        """Yield every link between switches, with its traffic from `a` to `b` and from `b` to `a`."""
        for link in self._topology.links:
            yield link, self._sent[link.name], self._sent[link.reverse]

    def hosts(self) -> Iterator[tuple[Host, Traffic, Traffic]]:
        """Yield every host, with the traffic from it and to it."""
        for host in self._topology.hosts:
            yield host, self._received[host.name], self._sent[host.name]

    @property
    def inter_cluster(self) -> Traffic:
        """The traffic, both ways, on links that join clusters, or a cluster and a switch between clusters.

        A packet counts on each of these links that it crosses: twice on its way between clusters through the core of a
        tree."""
        return total(part for link, *both in self.links() if link.inter_cluster for part in both)

    @property
    def intra_cluster(self) -> Traffic:
        """The traffic, both ways, on the other links between switches."""
        return total(part for link, *both in self.links() if not link.inter_cluster for part in both)


def _difference(later: Mapping[str, Traffic], earlier: Mapping[str, Traffic]) -> dict[str, Traffic]:
    return {
        name: Traffic(count.packets - earlier[name].packets, count.bytes - earlier[name].bytes)
        for name, count in later.items()
    }


def parse(text: str) -> tuple[dict[str, Traffic], dict[str, Traffic]]:
    """Parse the text of ``/proc/net/dev`` (proc_net_dev(5)). Returns received and sent traffic by interface."""
    received, sent = {}, {}
    for line in text.splitlines()[2:]:
        name, _, counts = line.partition(":")
        numbers = [int(number) for number in counts.split()]
        received[name.strip()] = Traffic(numbers[1], numbers[0])
        sent[name.strip()] = Traffic(numbers[9], numbers[8])
    return received, sent


def reader(topology: Topology, switches: Namespace) -> Callable[[], Counters]:
    """Return a function that takes a snapshot at each call."""
    wanted = {name for link in topology.links for name in (link.name, link.reverse)}
    wanted |= {host.name for host in topology.hosts}

    def read() -> Counters:
        with switches.inside():
            text = Path("/proc/thread-self/net/dev").read_text()
        received, sent = ({name: part[name] for name in wanted} for part in parse(text))
        return Counters(topology, sent, received)

    return read
