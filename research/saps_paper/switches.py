"""Computes Figures 11 and 12 of the SAPS paper: a topic's entries and buckets, by the paper's count and by `saps.ofm`.

The paper counts one flow entry on each switch of the tree and one bucket for each address to be rewritten. The product
needs more entries. Each broker has one, which also returns its loopback packet. By default each tree link has one, so
that outdated tables form no loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from research.saps_paper import closed
from research.saps_paper.overlays import Setting, generator, members
from research.saps_paper.records import BROKERS, CLUSTERS, FEW, METHODS, OFM, Example, Resources
from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.flows.plan import Loopback, Ofm, plan
from saps.ofm.network.topology import BrokerAddress, Port, Topology
from saps.ofm.trees.tree import SharedTree, Tree
from saps.overlay.ring.keys import BrokerRef

MOST_ON_HOST = 1000
"""Most subscribers of one host (Figure 12)."""
ZIPF = 1.0
"""Exponent of Zipf's law over the clusters; the paper does not give it."""
RESOURCE_SUBSCRIBERS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)

_OFM = Ofm(OfmAddress("239.77.0.1", 5000), 1, Loopback("10.255.255.254", "02:ff:00:00:00:01"))
_LEFT, _RIGHT, _UP, _FIRST_HOST = 1, 2, 3, 10  # ports of a cluster's switch
_PORT = 7400


def network(topology: str, clusters: int, brokers: Sequence[BrokerRef]) -> tuple[Topology, list[BrokerAddress]]:
    """Return the paper's ``line`` or height-2 ``tree`` of `clusters` switches, and the addresses of the brokers.

    The brokers are attached to their clusters' switches. The tree has a root switch in addition."""
    found = Topology()
    root = clusters + 1
    for dpid in range(1, clusters + 1):
        found.switch_up(dpid)
        if topology == "tree":
            found.link_up(Port(dpid, _UP), Port(root, dpid))
        elif dpid > 1:
            found.link_up(Port(dpid - 1, _RIGHT), Port(dpid, _LEFT))
    addresses = []
    for i, broker in enumerate(brokers, start=1):
        low, high = i & 255, i >> 8
        address = BrokerAddress(f"10.0.{high}.{low}", f"02:00:00:00:{high:02x}:{low:02x}", _PORT)
        found.attach(address, int(broker.cluster) + 1, _FIRST_HOST + i)
        addresses.append(address)
    return found, addresses


def shared_tree(topology: str, clusters: int, brokers: Sequence[BrokerRef]) -> Tree:
    """Return the product's tree of a topic with these brokers."""
    return SharedTree().plan(*network(topology, clusters, brokers))


def examples(overlays: int, seed: int) -> list[Example]:
    """Return Figure 11: the product's plan beside the paper's count."""
    setting = Setting(CLUSTERS, FEW, BROKERS)
    found = []
    for topology in METHODS:
        plans = [planned(topology, CLUSTERS, members(setting, generator(setting, i, seed))) for i in range(overlays)]
        switches, brokers, joint, per_port, buckets = np.mean(plans, axis=0).tolist()
        found.append(Example("11", topology, CLUSTERS, FEW, switches, brokers, joint, per_port, buckets))
    return found


def planned(topology: str, clusters: int, brokers: Sequence[BrokerRef]) -> tuple[int, int, int, int, int]:
    """Return the numbers for a topic with these brokers.

    These are its switches, its brokers, its flow entries with one for all tree links of a switch, its flow entries with
    one for each tree link, and its buckets."""
    tree = shared_tree(topology, clusters, brokers)
    joint, per_port = plan(replace(_OFM, per_port=False), tree), plan(_OFM, tree)
    return len(tree.switches), len(brokers), joint.entries, per_port.entries, per_port.buckets


def resources(overlays: int, seed: int) -> list[Resources]:
    """Return the points of Figure 12."""
    found = []
    for topology, exponent in (("line", 0.0), ("tree", 0.0), ("tree", ZIPF)):
        for subscribers in RESOURCE_SUBSCRIBERS:
            rng = np.random.default_rng([seed, subscribers, topology == "tree", exponent > 0])
            counts = _placed(subscribers, exponent, overlays, rng)
            expected = None if exponent else closed.involved(CLUSTERS, subscribers, topology)
            distribution = "Zipf" if exponent else "uniform"
            point = "12", topology, CLUSTERS, subscribers, distribution, OFM
            found.append(Resources(*point, *_taken(topology, counts), expected))
    return found


def _placed(subscribers: int, exponent: float, overlays: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the subscribers by overlay and cluster, drawn by Zipf's law over the clusters (exponent 0: uniformly)."""
    weights = np.arange(1, CLUSTERS + 1) ** -exponent
    return rng.multinomial(subscribers, weights / weights.sum(), size=overlays)


def _taken(topology: str, placed: NDArray[np.int64]) -> tuple[float, float]:
    """Return the mean share of switches with an entry, and the mean of rewriting buckets divided by switches."""
    switches = CLUSTERS + (topology == "tree")
    involved = buckets = 0
    for counts in placed.tolist():
        there = [cluster for cluster, count in enumerate(counts) if count]
        involved += len(there) + (len(there) > 1) if topology == "tree" else there[-1] - there[0] + 1
        buckets += sum(closed.buckets(count, MOST_ON_HOST) for count in counts)
    return involved / (switches * len(placed)), buckets / (switches * len(placed))
