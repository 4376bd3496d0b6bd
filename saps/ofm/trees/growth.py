"""Adapts a tree to another set of brokers and to failures, with as few changes as possible.

What stays connected loses no packet (`reconcile.rollout`), so a tree is grown, pruned and mended rather than planned
anew. The tree thereby drifts from the cheapest one; an OFM that ends and begins again gets the cheapest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from saps.ofm.network.topology import BrokerAddress, Topology
from saps.ofm.trees.tree import Planner, Tree


def grown(planner: Planner, topology: Topology, tree: Tree, brokers: Collection[BrokerAddress]) -> Tree:
    """Return the next tree on the way from `tree` to one over those of `brokers` that can be connected now. Repeated
    calls with each result end at that tree. If the network is partitioned, the tree lies in the part with the most
    brokers.

    Brokers leave before others join. At once, joining branches might use links that leaving branches free elsewhere,
    and `reconcile.rollout` would have to mute brokers that stay."""
    here = reachable(topology, brokers)
    whole = tree
    tree = whole.without(
        broker for broker, place in whole.brokers.items() if broker not in here or topology.where(broker) != place
    )
    if tree.brokers and tree != whole and tree.intact(topology):
        return tree
    if not tree.brokers:
        return planner.plan(topology, here)
    if not tree.intact(topology):
        tree = planner.mend(topology, tree)
    for broker in sorted(here - tree.brokers.keys()):
        tree = planner.join(topology, tree, broker)
    return tree


def connected(tree: Tree, topology: Topology, well: Callable[[int], bool]) -> set[BrokerAddress]:
    """Return the largest set of a tree's brokers that reach each other now. Paths use only switches that are `well` and
    links that carry packets. Brokers count only at the ports where they still are."""
    ill = {dpid for dpid in tree.switches if not well(dpid)}
    at: dict[int, set[BrokerAddress]] = {}
    for broker, place in tree.brokers.items():
        if place.dpid not in ill and topology.where(broker) == place:
            at.setdefault(place.dpid, set()).add(broker)
    around = Tree(tree.links & topology.usable, tree.brokers).neighbours()
    return _most(at, lambda dpid: [other for other in around[dpid] if other not in ill])


def reachable(topology: Topology, brokers: Collection[BrokerAddress]) -> set[BrokerAddress]:
    """Return the largest set of these brokers that one tree can connect now."""
    found: dict[int, set[BrokerAddress]] = {}
    lowest: dict[int, int] = {}
    for broker in brokers:
        if (place := topology.where(broker)) is not None:
            piece = topology.piece(place.dpid)
            found.setdefault(piece, set()).add(broker)
            lowest[piece] = min(place.dpid, lowest.get(piece, place.dpid))
    return found[min(found, key=lambda piece: (-len(found[piece]), lowest[piece]))] if found else set()


def _most(at: dict[int, set[BrokerAddress]], around: Callable[[int], list[int]]) -> set[BrokerAddress]:
    """Return the brokers of the piece with the most brokers; of equals, the piece with the lowest switch. `at` gives
    the brokers of each switch, and is emptied."""
    best: set[BrokerAddress] = set()
    while at:
        reached = [min(at)]
        found: set[BrokerAddress] = set()
        seen = set(reached)
        for dpid in reached:
            found |= at.pop(dpid, set())
            for other in around(dpid):
                if other not in seen:
                    seen.add(other)
                    reached.append(other)
        if len(found) > len(best):
            best = found
    return best
