"""Builds the networks on which stateless delivery is counted: switches, links and brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from research.planner_instances import random_network
from saps.ofm.network.topology import BrokerAddress, Port, Topology

_HOSTS = 1000
"""First port of the brokers, above all ports of links."""


def _joined(links: Iterable[tuple[int, int]]) -> Topology:
    """Return switches joined by links, which are pairs of switches. Ports are numbered in the order of the links."""
    found, used = Topology(), dict[int, int]()

    def port(dpid: int) -> Port:
        used[dpid] = used.get(dpid, 0) + 1
        return Port(dpid, used[dpid])

    for a, b in links:
        found.link_up(port(a), port(b))
    return found


def _with_brokers(topology: Topology, homes: list[int], brokers: int) -> tuple[Topology, list[BrokerAddress]]:
    """Attach `brokers` brokers to the switches `homes` in turn, and return the topology with their addresses."""
    found = []
    for i in range(brokers):
        broker = BrokerAddress(f"fd00::{i + 1:x}", f"02:00:00:00:{i >> 8:02x}:{i & 255:02x}", 7401)
        topology.attach(broker, homes[i % len(homes)], _HOSTS + i)
        found.append(broker)
    return topology, found


def tree(brokers: int, rng: np.random.Generator) -> tuple[Topology, list[BrokerAddress]]:
    """Return a tree: a root, 6 switches below it, and 6 leaves below each; 4 and 4 for up to 16 brokers."""
    arity = 4 if brokers <= 16 else 6
    links = [(1, 2 + i) for i in range(arity)]
    links += [(2 + i, 100 + i * arity + j) for i in range(arity) for j in range(arity)]
    return _with_brokers(_joined(links), sorted(b for _, b in links if b >= 100), brokers)


def leaf_spine(brokers: int, rng: np.random.Generator) -> tuple[Topology, list[BrokerAddress]]:
    """Return 4 spines, and leaves with 3 brokers each.

    Up to 16 brokers, leaves have 2 brokers; above 96 brokers, there are 8 spines, and leaves have 8 brokers."""
    spines, at_leaf = (4, 2 if brokers <= 16 else 3) if brokers <= 96 else (8, 8)
    leaves = range(100, 100 + brokers // at_leaf)
    links = [(spine, leaf) for leaf in leaves for spine in range(1, spines + 1)]
    return _with_brokers(_joined(links), list(leaves), brokers)


def ring_of_rings(brokers: int, rng: np.random.Generator) -> tuple[Topology, list[BrokerAddress]]:
    """Return 8 rings of 6 switches, with the first of each in a further ring; 4 rings of 4 for up to 16 brokers."""
    rings, size = (4, 4) if brokers <= 16 else (8, 6)
    links = [(1 + r * size, 1 + (r + 1) % rings * size) for r in range(rings)]
    links += [(1 + r * size + i, 1 + r * size + (i + 1) % size) for r in range(rings) for i in range(size)]
    return _with_brokers(_joined(links), list(range(1, rings * size + 1)), brokers)


def random_graph(brokers: int, rng: np.random.Generator) -> tuple[Topology, list[BrokerAddress]]:
    """Return 48 switches (16 for up to 16 brokers) with 4 links each on average and at least 2."""
    switches = 16 if brokers <= 16 else 48
    graph = random_network(switches, 2 * switches, rng, least=2)
    links = [(a + 1, b + 1) for a, b in graph.ends.tolist()]
    return _with_brokers(_joined(links), list(range(1, switches + 1)), brokers)


Builder = Callable[[int, np.random.Generator], tuple[Topology, list[BrokerAddress]]]
NETWORKS: dict[str, Builder] = {
    "tree": tree,
    "leaf-spine": leaf_spine,
    "ring of rings": ring_of_rings,
    "random, degree 4": random_graph,
}
"""Builders of the networks, by name."""
