"""Computes how publications crossed a lab's network: copies on each link, the brokers that passed them on, and hops.

A switch port counts packets and bytes of all traffic. The size tells packets with publications from the others, because
acknowledgements and heartbeats are hardly larger than their headers. Let D packets of s bytes be among P packets of B
bytes in all, and the others have h bytes. Then B = D s + (P - D) h, so D = (B - h P) / (s - h).

Publications must be sent one at a time, larger than any other message, and within one packet. D is then a multiple of
their number, but for the few bytes by which other packets exceed h, and is rounded to it. `Copies.doubt` is the largest
rounding. The traffic of the idle mesh can be subtracted first (`Background`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from lab.counters import Counters, Traffic
from lab.lab import Lab
from saps.ofm.datapath.datagram import publications
from saps.ofm.switch.topologies import Topology
from saps.overlay.delivery.ofm_members import Tree
from saps.overlay.frames.delivery import Part, Publish
from saps.overlay.frames.framing import encode_into
from saps.overlay.ring.keys import BrokerRef

TCP_HEADERS, UDP_HEADERS = 66, 42
"""Bytes of a packet around its payload: Ethernet, IPv4, and TCP with time stamps or UDP."""

Edge = tuple[str, str]
"""A pair of hosts, from one broker's to another's, or of neighbouring switches."""

_CONNECTION = re.compile(r"\s\S+:\d+\s+(?P<peer>[0-9.]+):(?P<port>\d+)\s.*?\bbytes_sent:(?P<bytes>\d+)")


class Copies(NamedTuple):
    """Copies of a publication that crossed the links between switches."""

    links: Mapping[Edge, int]
    """Copies on each link, by direction; parallel links together."""
    inter_cluster: int
    """Sum of the copies on all links that join clusters."""
    doubt: float
    """Greatest distance of a link's count from a whole number of copies."""


def alm_packet(topic: str, payload: int) -> int:
    """Return the bytes of a packet that carries `payload` bytes from broker to broker.

    The numbers in the frame vary it by a few bytes."""
    buffer = bytearray()
    encode_into(buffer, _publish(topic, payload))
    return TCP_HEADERS + len(buffer)


def ofm_packet(topic: str, payload: int) -> int:
    """Return the bytes of a packet that carries `payload` bytes along a tree; the numbers in it vary it by a few."""
    origin = BrokerRef("c1b1", 1 << 40, "10.77.1.1:7300", "c1")
    tree = Tree("239.77.0.1:5000", origin.incarnation << 12)
    return UDP_HEADERS + len(publications(tree, origin, 200, _publish(topic, payload)))


def _publish(topic: str, payload: int) -> Publish:
    return Publish(1, 1, 0, 0, False, [Part(topic, 199)], [0], [200], [bytes(payload)])


def data_packets(counted: Traffic, size: int, other: int = TCP_HEADERS) -> float:
    """Return how many of the counted packets had `size` bytes, if all others had `other` bytes."""
    return (counted.bytes - other * counted.packets) / (size - other)


class Background(NamedTuple):
    """The traffic of a network while nobody publishes, counted for `seconds`."""

    seen: Counters
    seconds: float

    def packets(self, seconds: float) -> float:
        """Return the packets on all links that join clusters, scaled to `seconds`."""
        return self.seen.inter_cluster.packets * seconds / self.seconds

    def bytes(self, seconds: float) -> float:
        """Return the bytes on all links that join clusters, scaled to `seconds`."""
        return self.seen.inter_cluster.bytes * seconds / self.seconds

    def excess(self, size: int, seconds: float) -> dict[Edge, float]:
        """Return the packets of `size` bytes that this traffic looks like on each link, scaled to `seconds`."""
        found: dict[Edge, float] = {}
        for link, there, back in self.seen.links():
            for edge, part in (((link.a, link.b), there), ((link.b, link.a), back)):
                found[edge] = found.get(edge, 0.0) + data_packets(part, size) * seconds / self.seconds
        return found


def copies(
    seen: Counters, publications: int, size: int, background: Background | None = None, seconds: float = 0.0
) -> Copies:
    """Return the copies of a publication on the links.

    `seen` counts the traffic of `seconds`, in which `publications` messages were sent in packets of `size` bytes.
    `background`, if given, is subtracted."""
    links: dict[Edge, int] = {}
    inter_cluster, doubt = 0, 0.0
    idle = {} if background is None else background.excess(size, seconds)
    for link, there, back in seen.links():
        for edge, part in (((link.a, link.b), there), ((link.b, link.a), back)):
            each = (data_packets(part, size) - idle.pop(edge, 0.0)) / publications
            links[edge] = links.get(edge, 0) + round(each)  # parallel links together
            doubt = max(doubt, abs(each - round(each)))
            inter_cluster += round(each) if link.inter_cluster else 0
    return Copies(links, inter_cluster, doubt)


def sent_bytes(lab: Lab, hosts: Iterable[str], port: int) -> dict[Edge, int]:
    """Return the bytes that the broker on each host has sent to each other broker, by pairs of hosts.

    The bytes are the kernel's counts of the TCP connections to the brokers' overlay `port`."""
    by_ip = {host.ip: host.name for host in lab.topology.hosts}
    sent: dict[Edge, int] = {}
    for host in hosts:
        listed = lab.host(host).run(["ss", "-tinHO", "state", "established"], capture_output=True, text=True).stdout
        for found in _CONNECTION.finditer(listed):
            if int(found["port"]) == port and found["peer"] in by_ip:
                edge = host, by_ip[found["peer"]]
                sent[edge] = sent.get(edge, 0) + int(found["bytes"])
    return sent


def passed_on(before: Mapping[Edge, int], after: Mapping[Edge, int], size: int) -> list[Edge]:
    """Return the pairs of brokers between which at least `size` bytes were sent, so that the first passed on a
    publication to the second."""
    return [edge for edge, sent in after.items() if sent - before.get(edge, 0) >= size]


def broker_hops(topology: Topology, publisher: str, edges: Sequence[Edge]) -> dict[str, int]:
    """Return the number of links between clusters that a publication crossed on its way to each broker.

    `edges` are the pairs of brokers that passed it on. Brokers that they do not reach are missing."""
    return _walk({publisher: 0}, edges, lambda a, b: crossings(topology, a, b))


def link_hops(topology: Topology, publisher: str, links: Mapping[Edge, int]) -> dict[str, int]:
    """Return the number of links between clusters that a publication crossed on its way to each host.

    The switches copied it along `links`, from the publisher's switch to that of each host."""
    carried = [edge for edge, count in links.items() if count]
    weights = {frozenset((link.a, link.b)): int(link.inter_cluster) for link in topology.links}
    depths = _walk({topology.host(publisher).switch: 0}, carried, lambda a, b: weights[frozenset((a, b))])
    return {host.name: depths[host.switch] for host in topology.hosts if host.switch in depths}


def crossings(topology: Topology, a: str, b: str) -> int:
    """Return the number of links between clusters on the way from one host to another, without spare links."""
    links = [edge for link in topology.links if not link.spare for edge in ((link.a, link.b), (link.b, link.a))]
    weights = {frozenset((link.a, link.b)): int(link.inter_cluster) for link in topology.links}
    depths = _walk({topology.host(a).switch: 0}, links, lambda x, y: weights[frozenset((x, y))])
    return depths[topology.host(b).switch]


def _walk(depths: dict[str, int], edges: Iterable[Edge], weight: Callable[[str, str], int]) -> dict[str, int]:
    """Return the least depth of every node that the edges reach from the nodes in `depths` (Dijkstra)."""
    onward = defaultdict(list)
    for a, b in edges:
        onward[a].append(b)
    queue = [(depth, at) for at, depth in depths.items()]
    while queue:
        depth, at = heappop(queue)
        for there in onward[at] if depth == depths[at] else ():
            beyond = depth + weight(at, there)
            if beyond < depths.get(there, beyond + 1):
                depths[there] = beyond
                heappush(queue, (beyond, there))
    return depths
