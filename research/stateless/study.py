"""Counts stateless delivery by the product's own planes and tables, and a tree for each topic beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from research.stateless.networks import NETWORKS
from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.flows.plan import Loopback, Ofm, plan
from saps.ofm.network.topology import BrokerAddress, Topology
from saps.ofm.planner.frugal import frugal_tree
from saps.ofm.planner.graph import Graph
from saps.ofm.stateless.address import bits_of
from saps.ofm.stateless.planes import crossed, lay_planes
from saps.ofm.stateless.tables import Layout, assign, tables
from saps.ofm.trees.tree import SharedTree

BROKERS = (16, 48, 96)
PLANES = (1, 4)
TOPICS, QUICK_TOPICS = 300, 30
MEAN = 8.0
"""Mean number of a topic's members beyond 2, exponentially distributed."""
MANY = 1000
"""Brokers of the network with several sets of brokers."""
_OFM = Ofm(OfmAddress("ff05:77::1", 5000), 1, Loopback("fd00::ffff:1", "02:ff:00:00:00:01"))


class Row(NamedTuple):
    """The counts of a network with its brokers, for one number of planes."""

    network: str
    brokers: int
    switches: int
    planes: int
    """Planes requested."""
    laid: int
    """Planes that the network allows."""
    entries: int
    """Flow entries of the fullest switch, for any number of topics."""
    groups: int
    """Most groups of a switch."""
    tables: int
    """Flow tables in use."""
    topic_entries: int
    """Flow entries of the fullest switch with a tree for each of `topics`."""
    topics: int
    copies: float
    """Copies on links between switches by the best plane, one publication of each topic, divided by Steiner trees'."""
    on_ports: float
    """The same ratio with the links of the brokers counted as well."""
    worst: float
    """Greatest ratio of one topic's copies to those of its Steiner tree."""
    packets: float
    """Mean packets that the publisher sends: one for each set with members."""


def rows(topics: int, seed: int) -> Iterator[Row]:
    """Yield the counts of all networks."""
    for name in NETWORKS:
        for brokers in BROKERS:
            yield from measure(name, brokers, topics, seed)
    yield from measure("leaf-spine", MANY, topics, seed)


def members(brokers: int, topics: int, rng: np.random.Generator) -> list[list[int]]:
    """Return the numbers of each topic's brokers; the first one publishes."""
    sizes = np.minimum(2 + rng.exponential(MEAN, topics).astype(int), brokers)
    return [rng.choice(brokers, size, replace=False).tolist() for size in sizes]


def measure(name: str, brokers: int, topics: int, seed: int) -> Iterator[Row]:
    """Yield the counts of one network for several numbers of planes, with the same topics."""
    rng = np.random.default_rng([seed, brokers, *name.encode()])
    topology, addresses = NETWORKS[name](brokers, rng)
    chosen = members(brokers, topics, rng)
    least = [steiner(topology, [addresses[i] for i in topic]) for topic in chosen]
    fullest = topic_entries(topology, [[addresses[i] for i in topic] for topic in chosen])
    hosts = [len(topic) for topic in chosen]
    for planes in PLANES:
        layout = Layout(assign((), addresses), tuple(lay_planes(topology, addresses, planes)))
        made = tables(layout)
        copies, packets = zip(
            *(_best(topology, layout, [addresses[i] for i in topic]) for topic in chosen), strict=True
        )
        yield Row(
            name,
            brokers,
            len(topology.switches),
            planes,
            len(layout.planes),
            max(one.entries for one in made.values()),
            max(len(one.groups) for one in made.values()),
            max(flow.table for one in made.values() for flow in one.flows.values()) + 1,
            fullest,
            topics,
            sum(copies) / sum(least),
            (sum(copies) + sum(hosts)) / (sum(least) + sum(hosts)),
            max(some / one for some, one in zip(copies, least, strict=True) if one),
            sum(packets) / topics,
        )


def _best(topology: Topology, layout: Layout, topic: list[BrokerAddress]) -> tuple[int, int]:
    """Return the links that copies of a publication cross by the best plane of each set, and the packets sent."""
    sender = layout.planes[0].brokers[topic[0]].dpid
    wanted: dict[int, list[int]] = {}
    for broker in topic[1:]:
        number, position = layout.receivers[broker]
        wanted.setdefault(number, []).append(position)
    copies = 0
    for number, positions in wanted.items():
        bits = bits_of(positions)
        copies += min(len(crossed(plane, layout.bits_at(number, plane), sender, bits)) for plane in layout.planes)
    return copies, len(wanted)


def steiner(topology: Topology, topic: list[BrokerAddress]) -> int:
    """Return the links of the least tree over a topic's switches.

    The number is exact up to 7 switches, and found by local search beyond (`saps.ofm.planner.frugal`)."""
    numbers = {dpid: i for i, dpid in enumerate(topology.switches)}
    graph = Graph.of(len(numbers), {(numbers[link.a.dpid], numbers[link.b.dpid]) for link in topology.links})
    homes = {place.dpid for broker in topic if (place := topology.where(broker)) is not None}
    nodes = np.array(sorted(numbers[dpid] for dpid in homes), np.int32)
    edges = frugal_tree(graph, nodes, np.ones(graph.edges))
    assert edges is not None
    return len(edges)


def topic_entries(topology: Topology, topics: list[list[BrokerAddress]]) -> int:
    """Return the flow entries of the fullest switch with the product's tree for each topic."""
    planner, used = SharedTree(), Counter[int]()
    for topic in topics:
        for dpid, made in plan(_OFM, planner.plan(topology, topic)).tables.items():
            used[dpid] += made.entries
    return max(used.values())
