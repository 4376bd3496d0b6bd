"""The shared bidirectional tree of an OFM: the switches and links that carry a topic, and the brokers it connects.

A near-minimal Steiner tree over the switches with brokers, grown by cheapest paths (Takahashi & Matsuyama 1980). It
costs at most 2 (1 - 1/k) times the least possible for k switches. Planning is deterministic: equal input gives equal
trees.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from saps.ofm.network.topology import BrokerAddress, Link, Port, Topology

Pair: TypeAlias = "tuple[int, int]"
"""Two switches, the lower one first."""
Cost: TypeAlias = Callable[[Link], float]
"""The cost of a link in a tree, not negative. A cost of 1 for every link yields the fewest links."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The links and brokers of a tree. A tree of one switch, or none, has no links."""

    links: frozenset[Link] = frozenset()
    """One link between two neighbours, or several parallel links where the traffic is spread (`spread`)."""
    brokers: Mapping[BrokerAddress, Port] = field(default_factory=dict)
    """Every broker of the tree and its place."""
    spread: frozenset[Link] = frozenset()
    """One link for each pair of neighbours whose traffic is spread over all their links in the tree, even if only one
    is left. This link names the pair and need not be in use (`saps.ofm.network.parallel`)."""

    @property
    def pairs(self) -> dict[Pair, frozenset[Link]]:
        """The pairs of neighbours, with the links between them."""
        found: dict[Pair, set[Link]] = {}
        for link in self.links:
            found.setdefault(pair_of(link), set()).add(link)
        return {pair: frozenset(links) for pair, links in found.items()}

    @property
    def anchors(self) -> dict[Pair, Link]:
        """The links of `spread`, by pair."""
        return {pair_of(link): link for link in self.spread}

    @property
    def switches(self) -> frozenset[int]:
        """All switches that a packet may pass."""
        return frozenset(end.dpid for link in self.links for end in link) | {
            place.dpid for place in self.brokers.values()
        }

    def ports(self) -> dict[int, list[int]]:
        """Return the ports of each switch that carry links of the tree, ascending."""
        found: dict[int, list[int]] = {dpid: [] for dpid in self.switches}
        for link in self.links:
            for end in link:
                found[end.dpid].append(end.port)
        return {dpid: sorted(ports) for dpid, ports in found.items()}

    def neighbours(self) -> dict[int, list[int]]:
        """Return the neighbours of each switch in the tree, ascending."""
        found: dict[int, list[int]] = {dpid: [] for dpid in self.switches}
        for link in self.links:
            found[link.a.dpid].append(link.b.dpid)
            found[link.b.dpid].append(link.a.dpid)
        return {dpid: sorted(others) for dpid, others in found.items()}

    @property
    def pieces(self) -> list[set[int]]:
        """The switches of each connected piece."""
        around = self.neighbours()
        found: list[set[int]] = []
        left = set(around)
        while left:
            reached = [left.pop()]
            for dpid in reached:
                fresh = left.intersection(around[dpid])
                left -= fresh
                reached += fresh
            found.append(set(reached))
        return found

    @property
    def core(self) -> Tree:
        """The piece with the most brokers; of equals, the one with the lowest switch that has a broker. The tree itself
        if connected."""
        pieces = self.pieces
        if len(pieces) < 2:
            return self
        homes = Counter(place.dpid for place in self.brokers.values())
        best = min(pieces, key=lambda piece: (-sum(homes[at] for at in piece), min(piece & homes.keys(), default=0)))
        brokers = {broker: place for broker, place in self.brokers.items() if place.dpid in best}
        return broadcast_as(Tree(frozenset(link for link in self.links if link.a.dpid in best), brokers), self.spread)

    def without(self, brokers: Iterable[BrokerAddress]) -> Tree:
        """Return the tree after these brokers have left. If any has, branches that lead to no broker are pruned
        completely."""
        gone = self.brokers.keys() & set(brokers)
        if not gone:
            return self
        left = {broker: place for broker, place in self.brokers.items() if broker not in gone}
        return broadcast_as(Tree(pruned(self.links, {place.dpid for place in left.values()}), left), self.spread)

    @property
    def connected(self) -> bool:
        """Whether the tree is in one piece, or empty."""
        return len(self.pieces) < 2

    def shared(self, other: Tree) -> Tree:
        """Return what both trees share: common links, and brokers at a common place. The result may be in several
        pieces."""
        both = {broker: place for broker, place in self.brokers.items() if other.brokers.get(broker) == place}
        links = self.links & other.links
        if different := {pair_of(link) for link in self.spread ^ other.spread}:
            links = frozenset(link for link in links if pair_of(link) not in different)
        return broadcast_as(Tree(links, both), self.spread & other.spread)

    def intact(self, topology: Topology) -> bool:
        """Return whether all neighbours still have a link that carries packets, and every broker is still at its
        place."""
        usable = topology.usable
        joined = self.links <= usable or (bool(self.spread) and not any(map(usable.isdisjoint, self.pairs.values())))
        return joined and all(topology.where(broker) == place for broker, place in self.brokers.items())

    def validate(self) -> None:
        """Check that this is one tree, every leaf of which has a broker. Raises `AssertionError` if it is not."""
        around = {dpid: set(others) for dpid, others in self.neighbours().items()}
        pairs, anchors = self.pairs, self.anchors
        assert len(pairs) == max(len(around) - 1, 0), "a tree has one pair of neighbours fewer than switches"
        assert all(len(links) == 1 for pair, links in pairs.items() if pair not in anchors), "a cycle of two links"
        assert anchors.keys() <= pairs.keys(), "traffic spread over nothing"
        assert self.connected, "the tree is in several pieces"
        homes = {place.dpid for place in self.brokers.values()}
        assert all(dpid in homes for dpid, others in around.items() if len(others) < 2), "a leaf without a broker"
        trunks = {end for link in self.links for end in link}
        assert trunks.isdisjoint(self.brokers.values()), "a broker at a port that carries a link"


def pair_of(link: Link) -> Pair:
    """Return the switches that a link joins."""
    return (link.a.dpid, link.b.dpid)


def broadcast_as(tree: Tree, spread: Iterable[Link]) -> Tree:
    """Return the tree with its traffic spread between the pairs of `spread` that it has."""
    wanted = frozenset(spread)
    if wanted:
        pairs = tree.pairs.keys()
        wanted = frozenset(link for link in wanted if pair_of(link) in pairs)
    return Tree(tree.links, tree.brokers, wanted)


class UnreachableError(Exception):
    """Brokers that one tree cannot join: their places are unknown, down, or in another part of the network."""

    def __init__(self, brokers: Iterable[BrokerAddress]) -> None:
        self.brokers = tuple(sorted(brokers))
        names = ", ".join(f"<{broker.ip}, {broker.mac}, {broker.port}>" for broker in self.brokers)
        super().__init__(f"no path to {names}")


class Planner(Protocol):
    """Decides on trees. Results use only what carries packets in `topology` now; no argument is changed."""

    def plan(self, topology: Topology, brokers: Iterable[BrokerAddress]) -> Tree:
        """Return a tree over the brokers. Raises `UnreachableError`."""

    def join(self, topology: Topology, tree: Tree, broker: BrokerAddress) -> Tree:
        """Return `tree`, which must be intact, with a branch to one more broker. The result contains all of `tree`,
        except for the branch to the broker's former place if it has moved. Raises `UnreachableError`."""

    def mend(self, topology: Topology, tree: Tree) -> Tree:
        """Return a tree over the same brokers after something failed or moved. Raises `UnreachableError`."""


class Planners(Protocol):
    """Decides on the trees of all topics together, so that they avoid each other's links (SDNPS 2016, Algorithm 1)."""

    def for_topic(self, topic: str) -> Planner:
        """Return the planner of one topic's tree."""

    def adopted(self, topic: str, tree: Tree | None) -> None:
        """Take `tree` as the topic's tree from now on; None: the topic has none."""

    def remeasured(self, topic: str) -> None:
        """Note that the topic's bandwidth has changed."""

    def crowded(self) -> list[str]:
        """Return the topics whose trees might better be elsewhere, the one with the busiest link first."""

    def better(self, topic: str, topology: Topology) -> Tree | None:
        """Return another tree over the same brokers if it is good enough to be worth a move, or None."""


class SharedTree:
    """The planner of shared trees by cheapest paths (SAPS 2016, 3.1.1). It plans each topic as if it were alone."""

    def __init__(self, cost: Cost = lambda link: 1.0) -> None:
        self.cost = cost

    def for_topic(self, topic: str) -> SharedTree:
        """See `Planners.for_topic`."""
        return self

    def adopted(self, topic: str, tree: Tree | None) -> None:
        """See `Planners.adopted`. This planner ignores the trees of other topics."""

    def remeasured(self, topic: str) -> None:
        """See `Planners.remeasured`. This planner ignores the load."""

    def crowded(self) -> list[str]:
        """See `Planners.crowded`: always empty."""
        return []

    def better(self, topic: str, topology: Topology) -> Tree | None:
        """See `Planners.better`: always None."""
        return None

    def plan(self, topology: Topology, brokers: Iterable[BrokerAddress]) -> Tree:
        """See `Planner.plan`. O(k E log V) for k switches with brokers."""
        places = _places(topology, brokers)
        return Tree(_steiner(topology, places, self.cost), places)

    def join(self, topology: Topology, tree: Tree, broker: BrokerAddress) -> Tree:
        """See `Planner.join`: adds the cheapest path to the tree."""
        place = _places(topology, [broker])[broker]
        if tree.brokers.get(broker, place) != place:
            tree = tree.without([broker])
        links = tree.links
        if tree.brokers:
            path = _path(topology, tree.switches, {place.dpid}, self.cost)
            if path is None:
                raise UnreachableError([broker])
            links |= set(path)
        return Tree(links, {**tree.brokers, broker: place})

    def mend(self, topology: Topology, tree: Tree) -> Tree:
        """See `Planner.mend`: joins the remaining pieces by cheapest paths."""
        places = _places(topology, tree.brokers)
        homes = {place.dpid for place in places.values()}
        rest = Tree(tree.links & topology.usable, places)
        piece_of = {dpid: piece for piece in rest.pieces if not homes.isdisjoint(piece) for dpid in piece}
        links = {link for link in rest.links if link.a.dpid in piece_of}
        inside = set(piece_of[next(iter(places.values())).dpid]) if places else set()
        while missing := piece_of.keys() - inside:
            path = _path(topology, inside, missing, self.cost)
            if path is None:
                raise UnreachableError(broker for broker, place in places.items() if place.dpid in missing)
            links.update(path)
            for dpid in [end.dpid for link in path for end in link]:
                inside |= piece_of.get(dpid, {dpid})
        return Tree(pruned(links, homes), places)


def _places(topology: Topology, brokers: Iterable[BrokerAddress]) -> dict[BrokerAddress, Port]:
    found, lost = {}, []
    for broker in sorted(set(brokers)):
        if (place := topology.where(broker)) is not None:
            found[broker] = place
        else:
            lost.append(broker)
    if lost:
        raise UnreachableError(lost)
    return found


def _steiner(topology: Topology, places: Mapping[BrokerAddress, Port], cost: Cost) -> frozenset[Link]:
    """Return the links of a tree over all places. Each switch is joined by the cheapest path to the tree so far."""
    missing = {place.dpid for place in places.values()}
    if not missing:
        return frozenset()
    # Growth begins at the switch of the first broker, so that a partition is blamed on the same brokers each time.
    inside = {next(iter(places.values())).dpid}
    missing -= inside
    links: set[Link] = set()
    while missing:
        path = _path(topology, inside, missing, cost)
        if path is None:
            raise UnreachableError(broker for broker, place in places.items() if place.dpid in missing)
        links.update(path)
        inside.update(end.dpid for link in path for end in link)
        missing -= inside
    return frozenset(links)


def _path(topology: Topology, sources: Collection[int], targets: Collection[int], cost: Cost) -> list[Link] | None:
    """Return the links of the cheapest path from any source to any target, or None if there is none."""
    came_by, target = cheapest(topology, sources, cost, targets)
    return None if target is None else _back(came_by, target)


def cheapest(
    topology: Topology, sources: Collection[int], cost: Cost, targets: Collection[int] = ()
) -> tuple[dict[int, Link], int | None]:
    """Run Dijkstra's algorithm from the sources up to the first target. Return the link by which the cheapest path
    reaches each other switch, and the target that was reached (None: no target was).

    Of equal costs, the path with fewer links wins, then the one of the lower switch. So the result never depends on the
    order of a set."""
    came_by: dict[int, Link] = {}
    best = dict.fromkeys(sources, (0.0, 0))
    heap = [(0.0, 0, dpid) for dpid in sorted(sources)]
    done: set[int] = set()
    while heap:
        spent, hops, dpid = heapq.heappop(heap)
        if dpid in done:
            continue
        done.add(dpid)
        if dpid in targets:
            return came_by, dpid
        for other, link in topology.neighbours(dpid):
            reach = (spent + cost(link), hops + 1)
            if other not in best or reach < best[other]:
                best[other] = reach
                came_by[other] = link
                heapq.heappush(heap, (*reach, other))
    return came_by, None


def _back(came_by: Mapping[int, Link], dpid: int) -> list[Link]:
    path = []
    while (link := came_by.get(dpid)) is not None:
        path.append(link)
        dpid = link.far(dpid)
    return path


def pruned(links: Iterable[Link], homes: Collection[int]) -> frozenset[Link]:
    """Return the links that are left after leaves without a broker are cut off, repeatedly."""
    around: dict[int, dict[int, set[Link]]] = {}
    for link in links:
        for end in link:
            around.setdefault(end.dpid, {}).setdefault(link.far(end.dpid), set()).add(link)
    bare = [dpid for dpid, at in around.items() if len(at) == 1 and dpid not in homes]
    for dpid in bare:
        if not around[dpid]:
            continue  # the other end of the last link was cut first
        other, _ = around[dpid].popitem()
        rest = around[other]
        del rest[dpid]
        if len(rest) == 1 and other not in homes:
            bare.append(other)
    return frozenset(link for at in around.values() for beside in at.values() for link in beside)
