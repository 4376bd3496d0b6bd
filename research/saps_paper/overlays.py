"""The scenes of the SAPS paper's simulation (section 4.1): the places of the brokers, and the multicast trees over
them.

Subscribers are placed on hosts uniformly at random. A host with a subscriber is a broker with one key for the topic,
and the publisher is one of these brokers. The product's own `saps.overlay.delivery.tree` grows the trees, in each of
its orders. Broker names are random, and with them the membership vectors, so each scene is another overlay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from saps.overlay.delivery.tree import divide
from saps.overlay.ring.keys import BrokerRef, KeyOrder, place


class Setting(NamedTuple):
    """One point of an experiment."""

    clusters: int
    subscribers: int
    brokers: int | None
    """Hosts in a cluster; None: each subscriber has a host of its own."""


class Tree(NamedTuple):
    """The path of one publication. Node 0 is the publisher; a node's parent has a lower number."""

    parent: list[int]
    """Parent of each node; -1 for the publisher."""
    cluster: list[int]
    """Number of each node's cluster."""


class Measure(NamedTuple):
    """The cost of one publication."""

    traffic: int
    """Inter-cluster messages, as the topology counts them."""
    hops: int
    """Most inter-cluster hops to any subscriber: the paper's maximum delay."""
    copies: int
    """Messages between brokers of different clusters, each counted once."""


Distance = Callable[[int, int], int]
"""Function that returns the hops of one unicast message between two clusters."""


def generator(setting: Setting, overlay: int, seed: int) -> np.random.Generator:
    """Return the random generator of one overlay of a setting, the same in every run with this seed."""
    return np.random.default_rng([seed, *(number or 0 for number in setting), overlay])


def on_tree(a: int, b: int) -> int:
    """Return the hops between two clusters on the height-2 tree: to the upper switch and from it."""
    return 0 if a == b else 2


def on_line(positions: Sequence[int]) -> Distance:
    """Return the distance on the line: the links between the switches of two clusters.

    `positions[c]` is the position of cluster number c."""
    return lambda a, b: abs(positions[a] - positions[b])


def members(setting: Setting, rng: np.random.Generator) -> list[BrokerRef]:
    """Return the brokers with a subscriber, placed at random."""
    clusters = rng.integers(setting.clusters, size=setting.subscribers)
    if setting.brokers is not None:
        hosts = clusters * setting.brokers + rng.integers(setting.brokers, size=setting.subscribers)
        clusters = np.unique(hosts) // setting.brokers
    width = len(str(setting.clusters - 1))
    return [BrokerRef(rng.bytes(8).hex(), 1, "", f"{cluster:0{width}}") for cluster in clusters.tolist()]


def multicast(publisher: BrokerRef, everyone: Sequence[BrokerRef], order: KeyOrder) -> Tree:
    """Return the tree of one publication from `publisher`, one of `everyone`, to all the others."""
    others = sorted((b for b in everyone if b is not publisher), key=lambda b: (place(b, order), b.name))
    tree = Tree([-1], [int(publisher.cluster)])
    todo = [(0, branch) for branch in divide(publisher, others, order)]
    while todo:
        sender, branch = todo.pop()
        node = len(tree.parent)
        tree.parent.append(sender)
        tree.cluster.append(int(branch.child.cluster))
        todo.extend((node, onward) for onward in divide(branch.child, branch.slice, order))
    return tree


def measure(tree: Tree, distance: Distance) -> Measure:
    """Return the cost of a tree on the topology of `distance`."""
    delay = [0] * len(tree.parent)
    traffic = copies = 0
    for node in range(1, len(delay)):
        parent = tree.parent[node]
        hop = distance(tree.cluster[parent], tree.cluster[node])
        delay[node] = delay[parent] + hop
        traffic += hop
        copies += hop > 0
    return Measure(traffic, max(delay), copies)


def ofm_on_tree(tree: Tree) -> Measure:
    """Return the cost of OFM on the height-2 tree: up from the publisher's cluster, down to each other occupied one."""
    occupied = len(set(tree.cluster))
    return Measure(occupied, 2, 0) if occupied > 1 else Measure(0, 0, 0)


def ofm_on_line(tree: Tree) -> Measure:
    """Return the cost of OFM on the line: once over each link between the outermost clusters with subscribers.

    Clusters are numbered by position."""
    first, last, home = min(tree.cluster), max(tree.cluster), tree.cluster[0]
    return Measure(last - first, max(last - home, home - first), 0)
