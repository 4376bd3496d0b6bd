"""Spreads the traffic of one topic over the parallel links between two switches of a tree, by sender.

Planners know one link between two neighbours. `narrowed` gives them a tree of this form, and `widened` lays their
result over all parallel links. A pair of neighbours whose traffic is spread stays so while the tree contains the pair.
A failed link is left out (the switches have noticed by themselves) and used again after its return. A pair that began
with a single link keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from saps.ofm.flows.plan import select_kind
from saps.ofm.network.topology import Link, Port, Topology
from saps.ofm.trees.tree import Pair, Tree, pair_of

MOST = 100
"""The greatest weight of a link, and the largest ratio of two weights: slower links still get 1."""


def narrowed(topology: Topology, tree: Tree) -> Tree:
    """Return the tree with one link between two neighbours, preferably one that carries packets."""
    if not tree.spread:
        return tree
    chosen = (min(filter(topology.carries, links), default=min(links)) for links in tree.pairs.values())
    return Tree(frozenset(chosen), tree.brokers)


def widened(topology: Topology, tree: Tree, former: Tree | None = None) -> Tree:
    """Return a `narrowed` tree laid over all parallel links. `former` is the tree that it replaces."""
    former = former or Tree()
    pairs, anchors = former.pairs, former.anchors
    links: set[Link] = set()
    spread = {anchors[pair] for pair in map(pair_of, tree.links) if pair in anchors}
    for link in sorted(tree.links):
        pair = pair_of(link)
        parallel = links_between(topology, pair)
        if pair in anchors:
            links.update(parallel or [link])
        elif pair not in pairs and len(parallel) > 1 and (anchor := _free(parallel, spread)) is not None:
            links.update(parallel)
            spread.add(anchor)
        else:
            links.add(link)
    return Tree(frozenset(links), tree.brokers, frozenset(spread))


def links_between(topology: Topology, pair: Pair) -> list[Link]:
    """Return the links between two switches that carry packets, ascending."""
    near, far = pair
    return sorted(link for other, link in topology.neighbours(near) if other == far)


def shares(tree: Tree, capacity: Callable[[Link], float]) -> dict[Link, float]:
    """Return the share of the tree's traffic that each of its links carries, from 0 to 1."""
    if not tree.spread:
        return dict.fromkeys(tree.links, 1.0)
    found: dict[Link, float] = {}
    for links in tree.pairs.values():
        whole = sum(map(capacity, links))
        found |= {link: capacity(link) / whole for link in links}
    return found


def weights(tree: Tree, capacity: Callable[[Link], float]) -> tuple[tuple[Link, int], ...]:
    """Return the weights other than 1 of the links over which the tree's traffic is spread. Weights are proportional to
    capacities (bit/s), as the smallest whole numbers up to `MOST`."""
    found: list[tuple[Link, int]] = []
    for pair, links in tree.pairs.items() if tree.spread else ():
        if pair in tree.anchors:
            found += zip(sorted(links), _whole([capacity(link) for link in sorted(links)]), strict=True)
    return tuple(sorted((link, weight) for link, weight in found if weight != 1))


def _whole(capacities: list[float]) -> list[int]:
    numbers = [max(1, round(capacity / 1e6)) for capacity in capacities]
    if max(capacities) < 1e6:  # capacities below 1 Mbit/s, which the rounding above loses
        numbers = [max(1, round(MOST * capacity / max(capacities))) for capacity in capacities]
    common = math.gcd(*numbers)
    numbers = [number // common for number in numbers]
    most = max(numbers)
    return numbers if most <= MOST else [max(1, round(MOST * number / most)) for number in numbers]


def _free(parallel: Iterable[Link], spread: Iterable[Link]) -> Link | None:
    """Return the first link whose name is free at both ends, or None."""
    taken = {_name(end) for link in spread for end in link}
    return next((link for link in parallel if taken.isdisjoint(map(_name, link))), None)


def _name(end: Port) -> tuple[int, int]:
    return end.dpid, select_kind(end.port)
