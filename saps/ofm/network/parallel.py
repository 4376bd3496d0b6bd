"""Parallel links between two switches of a tree: the traffic of one topic spread over all of them, by sender.

Planners think of one link between two neighbours. `narrowed` shows them a tree like that, and `widened` lays what they
come to over all links that there are. A tree that has spread its traffic somewhere does so as long as it goes there: a
link that fails is left out (the switches have noticed by themselves), and taken in again when it is back. Where a tree
was laid over a single link it stays there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from saps.ofm.flows.plan import select_kind
from saps.ofm.network.topology import Link, Port, Topology
from saps.ofm.trees.tree import Pair, Tree, pair_of

MOST = 100
"""The greatest weight of a link: one that is slower than the fastest by more than this still gets so much."""


def narrowed(topology: Topology, tree: Tree) -> Tree:
    """The tree with one link between two neighbours, one that carries packets if there is any."""
    if not tree.spread:
        return tree
    chosen = (min(filter(topology.carries, links), default=min(links)) for links in tree.pairs.values())
    return Tree(frozenset(chosen), tree.brokers)


def widened(topology: Topology, tree: Tree, former: Tree | None = None) -> Tree:
    """The tree over all parallel links: a `narrowed` one; `former` is the tree that it follows."""
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
    """The links between two switches that carry packets, ascending."""
    near, far = pair
    return sorted(link for other, link in topology.neighbours(near) if other == far)


def shares(tree: Tree, capacity: Callable[[Link], float]) -> dict[Link, float]:
    """The part of the tree's traffic that each of its links takes."""
    if not tree.spread:
        return dict.fromkeys(tree.links, 1.0)
    found: dict[Link, float] = {}
    for links in tree.pairs.values():
        whole = sum(map(capacity, links))
        found |= {link: capacity(link) / whole for link in links}
    return found


def weights(tree: Tree, capacity: Callable[[Link], float]) -> tuple[tuple[Link, int], ...]:
    """The weights of the links over which the tree's traffic is spread, other than 1: their capacities, in the smallest
    whole numbers."""
    found: list[tuple[Link, int]] = []
    for pair, links in tree.pairs.items() if tree.spread else ():
        if pair in tree.anchors:
            found += zip(sorted(links), _whole([capacity(link) for link in sorted(links)]), strict=True)
    return tuple(sorted((link, weight) for link, weight in found if weight != 1))


def _whole(capacities: list[float]) -> list[int]:
    numbers = [max(1, round(capacity / 1e6)) for capacity in capacities]
    if max(capacities) < 1e6:  # no bit/s, or hardly any
        numbers = [max(1, round(MOST * capacity / max(capacities))) for capacity in capacities]
    common = math.gcd(*numbers)
    numbers = [number // common for number in numbers]
    most = max(numbers)
    return numbers if most <= MOST else [max(1, round(MOST * number / most)) for number in numbers]


def _free(parallel: Iterable[Link], spread: Iterable[Link]) -> Link | None:
    """The first link whose name is not taken at either end."""
    taken = {_name(end) for link in spread for end in link}
    return next((link for link in parallel if taken.isdisjoint(map(_name, link))), None)


def _name(end: Port) -> tuple[int, int]:
    return end.dpid, select_kind(end.port)
