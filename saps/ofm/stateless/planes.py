"""Lays planes: spanning trees over all brokers' switches, as different from each other as the network allows.

A plane is the tree of cheapest paths from one switch, pruned to the switches with brokers and those between. A link
that earlier planes use costs more, and most if all of them use it. So the failure of a link leaves some plane whole
where the network allows it. The root is the switch whose tree has the shortest paths and shares least. In a leaf-spine
network that gives a plane for each spine. Equal networks get equal planes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from saps.ofm.network.topology import BrokerAddress, Link, Port, Topology
from saps.ofm.trees.tree import Tree, UnreachableError, cheapest, pruned

MOST = 8
"""Most planes of a network."""
ROOTS = 64
"""Most switches tried as root of a plane. In a larger network the tried ones lie at equal distances in the order of
datapath ids."""
USED, ALWAYS = 0.1, 1.0
"""Additional cost of a link for each plane that uses it, and if all planes use it. An unused link costs 1."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    links: frozenset[Link]
    score: tuple[int, int, int]
    """Links that all planes would share; length of paths to the homes plus links shared; the root. Less is better."""


def lay_planes(
    topology: Topology, brokers: Collection[BrokerAddress], most: int = 4, before: Sequence[Tree] = ()
) -> list[Tree]:
    """Return up to `most` different trees over the brokers' places, fewer where the network has no more. Brokers
    without a place are left out. Planes of `before` whose links all carry packets keep their numbers, and only grow and
    shrink. O(planes * roots * links log switches).

    Raises `UnreachableError` with the brokers that no path joins to the first one.
    """
    places = {broker: place for broker in sorted(brokers) if (place := topology.where(broker)) is not None}
    homes = {place.dpid for place in places.values()}
    if not homes:
        return []
    first = min(homes)
    reach = {first, *cheapest(topology, [first], lambda link: 1.0)[0]}
    if missing := [broker for broker, place in places.items() if place.dpid not in reach]:
        raise UnreachableError(missing)
    roots = sorted(reach)
    roots = roots[:: max(1, -(-len(roots) // ROOTS))]
    found = [_kept(topology, plane, homes) for plane in before[: min(most, MOST)]]
    for number in [number for number, links in enumerate(found) if links is None]:
        laid = [links for links in found if links is not None]
        found[number] = min((_candidate(topology, root, homes, laid) for root in roots), key=_score).links
    every = [links for links in found if links is not None]
    while len(every) < min(most, MOST):
        best = min((_candidate(topology, root, homes, every) for root in roots), key=_score)
        if best.links in every:
            break
        every.append(best.links)
    return [Tree(links, places) for links in every]


def _score(candidate: _Candidate) -> tuple[int, int, int]:
    return candidate.score


def _kept(topology: Topology, plane: Tree, homes: Collection[int]) -> frozenset[Link] | None:
    """Return the links of an earlier plane, grown to all homes and pruned to them. None if a link carries no
    packets, or the plane lies in another piece of the network."""
    if not all(map(topology.carries, plane.links)):
        return None
    links = set(plane.links)
    inside = {end.dpid for link in links for end in link} or {min(homes)}
    for home in sorted(set(homes) - inside):
        towards, _ = cheapest(topology, sorted(inside), lambda link: 1.0, {home})
        if home not in towards:
            return None
        at = home
        while (link := towards.get(at)) is not None:
            links.add(link)
            at = link.far(at)
        inside |= {end.dpid for link in links for end in link}
    return pruned(links, homes)


def _candidate(topology: Topology, root: int, homes: Collection[int], laid: list[frozenset[Link]]) -> _Candidate:
    """Return the plane with this root."""
    used = Counter(link for links in laid for link in links)

    def cost(link: Link) -> float:
        return 1.0 + USED * used[link] + (ALWAYS if laid and used[link] == len(laid) else 0.0)

    towards, _ = cheapest(topology, [root], cost)
    links: set[Link] = set()
    length = 0
    for home in sorted(homes):
        at = home
        while (link := towards.get(at)) is not None:
            links.add(link)
            at = link.far(at)
            length += 1
    kept = pruned(links, homes)
    always = sum(used[link] == len(laid) for link in kept) if laid else 0
    return _Candidate(kept, (always, length + sum(used[link] for link in kept), root))


def rooted(tree: Tree, root: int) -> list[tuple[int, Link | None]]:
    """Return the tree's switches from a root on, parents first, each with the link that leads back to its parent."""
    around: dict[int, list[Link]] = {}
    for link in sorted(tree.links):
        for end in link:
            around.setdefault(end.dpid, []).append(link)
    order: list[tuple[int, Link | None]] = [(root, None)]
    for dpid, came in order:
        order += [(link.far(dpid), link) for link in around.get(dpid, ()) if link != came]
    return order


def below(order: Sequence[tuple[int, Link | None]], bits: Mapping[int, int]) -> dict[int, int]:
    """Return the bits at each switch and behind it, seen from the root of `rooted`. `bits` has the bits at each
    switch."""
    found = {dpid: bits.get(dpid, 0) for dpid, _ in order}
    for dpid, link in reversed(order):
        if link is not None:
            found[link.far(dpid)] |= found[dpid]
    return found


def behind(tree: Tree, bits: Mapping[int, int]) -> dict[Port, int]:
    """Return for each end of the tree's links the bits of the brokers behind the link. `bits` has the bits at each
    switch."""
    if not tree.links:
        return {}
    order = rooted(tree, min(tree.switches))
    lower = below(order, bits)
    every = lower[order[0][0]]
    found: dict[Port, int] = {}
    for dpid, link in order:
        if link is not None:
            found[link.near(dpid)] = every & ~lower[dpid]
            found[link.near(link.far(dpid))] = lower[dpid]
    return found


def crossed(tree: Tree, bits: Mapping[int, int], sender: int, wanted: int) -> list[Link]:
    """Return the links that a packet takes from the switch `sender` to the brokers of the bits `wanted`. Each link
    carries the packet once."""
    order = rooted(tree, sender)
    lower = below(order, bits)
    return [link for dpid, link in order if link is not None and lower[dpid] & wanted]
