"""The planners as the controller uses them (`saps.ofm.tree.Planner`): one topic after the other, on the live network.

What other topics take is known from the trees that were given out. A tree grows, is pruned and is mended as little as
possible (`saps.ofm.growth`); how it is first made, and which path a new branch takes, is the planner's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, get_args

import numpy as np

from saps.ofm.growth import reachable
from saps.ofm.planner.aggregate import Aggregate
from saps.ofm.planner.balanced import Prices, lengths
from saps.ofm.planner.choice import Choice
from saps.ofm.planner.forest import prune
from saps.ofm.planner.frugal import frugal_tree
from saps.ofm.planner.graph import Demands, Flags, Floats, Graph, Ints
from saps.ofm.planner.growth import grow, scratch
from saps.ofm.planner.live import pieces_of
from saps.ofm.planner.sdnps import sdnps, widened
from saps.ofm.planner.shortest import mehlhorn, shortest_paths
from saps.ofm.topology import BrokerAddress, Link, Port, Topology
from saps.ofm.tree import Tree, UnreachableError

CHOICES: tuple[Choice, ...] = get_args(Choice)
"""The planners a controller can have."""
_TINY = 1e-9
"""What is left of a link that carries more than its capacity: the least there is, but the link is not closed."""


class _Given(NamedTuple):
    tree: Tree
    rate: float


class NetworkPlanner:
    """The trees of all topics of a controller. `for_topic` gives what plans one of them."""

    def __init__(
        self,
        choice: Choice,
        *,
        capacity: Callable[[Link], float] = lambda link: 1.0,
        rate: Callable[[str], float] = lambda topic: 1.0,
        avoid: Callable[[str], Collection[int]] = lambda topic: (),
    ) -> None:
        """`capacity` of links and `rate` of topics in one unit; `avoid`: switches that a topic must not pass (by
        a policy)."""
        self.choice: Choice = choice
        self.capacity, self.rate, self.avoid = capacity, rate, avoid
        self._given: dict[str, _Given] = {}
        self._load: dict[Link, float] = {}
        self._network: tuple[Topology, int, Aggregate] | None = None

    def for_topic(self, topic: str) -> TopicPlanner:
        """See `saps.ofm.tree.Planners.for_topic`."""
        return TopicPlanner(self, topic)

    def adopted(self, topic: str, tree: Tree | None) -> None:
        """See `saps.ofm.tree.Planners.adopted`."""
        old = self._given.pop(topic, None)
        if old is not None:
            for link in old.tree.links:
                self._load[link] -= old.rate
        if tree is not None:
            rate = self.rate(topic)
            for link in tree.links:
                self._load[link] = self._load.get(link, 0.0) + rate
            self._given[topic] = _Given(tree, rate)

    def load(self, link: Link, *, but: str) -> float:
        """What all topics but one take on a link."""
        own = self._given.get(but)
        mine = own.rate if own is not None and link in own.tree.links else 0.0
        return self._load.get(link, 0.0) - mine

    def network(self, topology: Topology) -> Aggregate:
        """The network as it is now, each switch a node."""
        known = self._network
        if known is None or known[0] is not topology or known[1] != topology.version:
            known = self._network = (topology, topology.version, Aggregate.of(topology, self.capacity))
        return known[2]


class TopicPlanner:
    """`saps.ofm.tree.Planner` for one topic."""

    def __init__(self, planner: NetworkPlanner, topic: str) -> None:
        self._planner, self._topic = planner, topic

    def plan(self, topology: Topology, brokers: Iterable[BrokerAddress]) -> Tree:
        """See `Planner.plan`."""
        return self._planned(topology, Tree(), sorted(set(brokers)))

    def join(self, topology: Topology, tree: Tree, broker: BrokerAddress) -> Tree:
        """See `Planner.join`."""
        if broker in tree.brokers and topology.where(broker) != tree.brokers[broker]:
            tree = tree.without([broker])
        return self._planned(topology, tree, sorted({*tree.brokers, broker}))

    def leave(self, topology: Topology, tree: Tree, broker: BrokerAddress) -> Tree:
        """See `Planner.leave`."""
        return tree.without([broker])

    def mend(self, topology: Topology, tree: Tree) -> Tree:
        """See `Planner.mend`."""
        return self._planned(topology, tree, sorted(tree.brokers))

    def _planned(self, topology: Topology, tree: Tree, brokers: list[BrokerAddress]) -> Tree:
        """A tree over the brokers that keeps what is left of `tree`."""
        places = _places(topology, brokers)
        network = self._planner.network(topology)
        edge_of = {link: edge for edge, trunk in enumerate(network.trunks) for link in trunk}
        kept = {edge_of[link]: link for link in sorted(tree.links) if link in edge_of}
        homes = sorted({network.node_of[place.dpid] for place in places.values()})
        members = np.array(homes, np.int32)
        edges = self._edges(network, members, np.array(sorted(kept), np.int32))
        if edges is None:
            raise UnreachableError(set(brokers) - reachable(topology, brokers) or brokers[1:] or brokers)
        links = frozenset(kept.get(edge) or self._least(network.trunks[edge]) for edge in edges.tolist())
        return Tree(links, places)

    def _least(self, trunk: tuple[Link, ...]) -> Link:
        """Of parallel links, the one with most bandwidth left."""
        capacity = self._planner.capacity
        return max(trunk, key=lambda link: capacity(link) - self._planner.load(link, but=self._topic))

    def _edges(self, network: Aggregate, members: Ints, kept: Ints) -> Ints | None:
        graph, closed = network.graph, self._closed(network)
        if closed[members].any():
            return None
        load = np.array([sum(self._planner.load(link, but=self._topic) for link in trunk) for trunk in network.trunks])
        if len(kept) or closed.any():
            found = self._branches(graph, members, kept, load, closed)
        else:
            found = self._anew(graph, members, load)
        if found is None:
            return None
        keep = np.zeros(graph.nodes, np.bool_)
        keep[members] = True
        return found[: prune(graph, found, len(found), keep, np.zeros(graph.nodes, np.int32))]

    def _closed(self, network: Aggregate) -> Flags:
        closed = np.zeros(network.graph.nodes, np.bool_)
        for dpid in self._planner.avoid(self._topic):
            if dpid in network.node_of:
                closed[network.node_of[dpid]] = True
        return closed

    def _anew(self, graph: Graph, members: Ints, load: Floats) -> Ints | None:
        """A tree that has no former one."""
        demands = Demands.of([members.tolist()], self._planner.rate(self._topic), 1)
        match self._planner.choice:
            case "shortest":
                trees = shortest_paths(graph, demands)
            case "mehlhorn":
                trees = mehlhorn(graph, demands)
            case "cost-first":
                return frugal_tree(graph, members, np.ones(graph.edges))
            case "sdnps":
                trees = sdnps(graph._replace(capacity=np.maximum(graph.capacity - load, _TINY)), demands)
            case _:
                return self._branches(graph, members, np.empty(0, np.int32), load, np.zeros(graph.nodes, np.bool_))
        return trees.edges if len(trees.edges) or len(members) < 2 else None

    def _branches(self, graph: Graph, members: Ints, kept: Ints, load: Floats, closed: Flags) -> Ints | None:
        """What is kept, pruned, and paths that make it one tree over the members."""
        keep = np.zeros(graph.nodes, np.bool_)
        keep[members] = True
        kept = kept.copy()
        kept = kept[: prune(graph, kept, len(kept), keep, np.zeros(graph.nodes, np.int32))]
        if self._planner.choice == "sdnps" and not closed.any():
            return widened(graph, np.maximum(graph.capacity - load, _TINY), members, kept)
        length = np.ones(graph.edges)
        if self._planner.choice == "balanced":
            rate = self._planner.rate(self._topic)
            target = float(((load + rate) / graph.capacity).max(initial=0.0))
            lengths(graph, load, rate, target, Prices().last, length)
        at, nodes = pieces_of(graph, kept, members)
        work = scratch(graph.nodes)
        count = grow(graph, length, closed, at, nodes, work)
        return np.concatenate([kept, work.out[:count]]) if count >= 0 else None


def _places(topology: Topology, brokers: Iterable[BrokerAddress]) -> dict[BrokerAddress, Port]:
    found = {broker: topology.where(broker) for broker in brokers}
    lost = [broker for broker, place in found.items() if place is None]
    if lost:
        raise UnreachableError(lost)
    return {broker: place for broker, place in found.items() if place is not None}
