"""Adapts the planners to the controller (`saps.ofm.trees.tree.Planner`): one topic after the other, on the live
network.

The load of other topics is known from the trees that were adopted. A tree is grown, pruned and mended with as few
changes as possible (`saps.ofm.trees.growth`). The choice of planner decides how a tree is first made, and which path a
new branch takes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, get_args

import numpy as np

from saps.ofm.network import parallel
from saps.ofm.network.topology import BrokerAddress, Link, Port, Topology
from saps.ofm.planner.aggregate import Aggregate
from saps.ofm.planner.balanced import Prices, lengths
from saps.ofm.planner.choice import Choice
from saps.ofm.planner.frugal import frugal_tree
from saps.ofm.planner.graph import Demands, Flags, Floats, Graph, Ints
from saps.ofm.planner.kernels.forest import pieces_of, prune
from saps.ofm.planner.kernels.growth import grow, scratch
from saps.ofm.planner.sdnps import sdnps, widened
from saps.ofm.planner.shortest import mehlhorn, shortest_paths
from saps.ofm.trees.growth import reachable
from saps.ofm.trees.tree import Tree, UnreachableError

CHOICES: tuple[Choice, ...] = get_args(Choice)
"""All planners a controller can have."""
CROWDED = 0.3
"""Utilisation of a link up to which no tree is moved away from it. A smaller value changes tables more often, for
little gain."""
GAIN = 0.1
"""Least share by which a move must lower the utilisation of a tree's busiest link. A smaller value changes tables more
often."""
_TINY = 1e-9
"""Capacity assumed to be left on an overloaded link: the least of all, but the link is not closed."""


class _Given(NamedTuple):
    tree: Tree
    load: dict[Link, float]
    """Load of the topic on each link."""


class NetworkPlanner:
    """The trees of all topics of a controller. `for_topic` returns the planner of one topic."""

    def __init__(
        self,
        choice: Choice,
        *,
        capacity: Callable[[Link], float] = lambda link: 1.0,
        rate: Callable[[str], float] = lambda topic: 1.0,
        avoid: Callable[[str], Collection[int]] = lambda topic: (),
        version: Callable[[], int] = lambda: 0,
        spread: bool = False,
    ) -> None:
        """`capacity` of links and `rate` of topics share one unit. `avoid` returns the switches that a topic must not
        pass (by a policy). `version` counts the changes of capacities. With `spread`, trees are laid over parallel
        links (`saps.ofm.network.parallel`)."""
        self.choice: Choice = choice
        self.capacity, self.rate, self.avoid, self._version = capacity, rate, avoid, version
        self._spread = spread
        self._given: dict[str, _Given] = {}
        self._load: dict[Link, float] = {}
        self._network: tuple[Topology, tuple[int, int], Aggregate] | None = None

    def for_topic(self, topic: str) -> TopicPlanner:
        """See `saps.ofm.trees.tree.Planners.for_topic`."""
        return TopicPlanner(self, topic)

    def warm(self) -> None:
        """Compile or load all that a tree may need, by planning, mending and growing one on a made-up ring of six
        switches. Otherwise the first link failure of a process would wait for seconds. No tree is kept."""
        topology, brokers = Topology(), list[BrokerAddress]()
        for dpid in range(1, 7):
            topology.switch_up(dpid, [1, 2, 9])
            brokers.append(BrokerAddress(f"192.0.2.{dpid}", f"02:00:00:00:00:{dpid:02x}", 1))
        for dpid, broker in enumerate(brokers, start=1):
            topology.link_up(Port(dpid, 1), Port(dpid % 6 + 1, 2))
            topology.attach(broker, dpid, 9)
        planner = self.for_topic("")
        tree = planner.plan(topology, brokers[:3])
        link = min(tree.links)
        topology.link_down(*link)
        planner.join(topology, planner.mend(topology, tree), brokers[4])
        self._network = None

    def adopted(self, topic: str, tree: Tree | None) -> None:
        """See `saps.ofm.trees.tree.Planners.adopted`."""
        old = self._given.pop(topic, None)
        if old is not None:
            for link, taken in old.load.items():
                self._load[link] -= taken
        if tree is not None:
            load = self._taken(topic, tree)
            for link, taken in load.items():
                self._load[link] = self._load.get(link, 0.0) + taken
            self._given[topic] = _Given(tree, load)

    def _taken(self, topic: str, tree: Tree) -> dict[Link, float]:
        """Return the load of a topic on each link of a tree."""
        rate = self.rate(topic)
        return {link: rate * share for link, share in parallel.shares(tree, self.capacity).items()}

    def load(self, link: Link, *, but: str) -> float:
        """Return the load of a link by all topics but one."""
        own = self._given.get(but)
        return self._load.get(link, 0.0) - (own.load.get(link, 0.0) if own is not None else 0.0)

    def network(self, topology: Topology) -> Aggregate:
        """Return the present network, with a node for each switch. It is cached until the topology or a capacity
        changes."""
        known, versions = self._network, (topology.version, self._version())
        if known is None or known[0] is not topology or known[1] != versions:
            known = self._network = (topology, versions, Aggregate.of(topology, self.capacity))
        return known[2]

    def remeasured(self, topic: str) -> None:
        """See `saps.ofm.trees.tree.Planners.remeasured`."""
        if (given := self._given.get(topic)) is not None:
            self.adopted(topic, given.tree)

    def crowded(self) -> list[str]:
        """See `saps.ofm.trees.tree.Planners.crowded`. Only the balanced planner names topics, and only above a
        utilisation of `CROWDED`."""
        if self.choice != "balanced":
            return []
        most = {topic: self._busiest(topic, given.tree) for topic, given in self._given.items()}
        return sorted((topic for topic, use in most.items() if use > CROWDED), key=lambda topic: (-most[topic], topic))

    def better(self, topic: str, topology: Topology) -> Tree | None:
        """See `saps.ofm.trees.tree.Planners.better`. The busiest link of the new tree, with the topic on it, must be
        less used by `GAIN`."""
        now = self._given[topic].tree
        try:
            other = self.for_topic(topic).plan(topology, now.brokers)
        except UnreachableError:
            return None
        wide = parallel.widened(topology, other) if self._spread else other
        eased = self._busiest(topic, wide) < (1 - GAIN) * self._busiest(topic, now)
        return other if eased and other.brokers == now.brokers else None

    def _busiest(self, topic: str, tree: Tree) -> float:
        """Return the greatest utilisation of a link if the topic had this tree."""
        return max(
            (
                (self.load(link, but=topic) + own) / self.capacity(link)
                for link, own in self._taken(topic, tree).items()
            ),
            default=0.0,
        )


class TopicPlanner:
    """A `saps.ofm.trees.tree.Planner` for one topic."""

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

    def mend(self, topology: Topology, tree: Tree) -> Tree:
        """See `Planner.mend`."""
        return self._planned(topology, tree, sorted(tree.brokers))

    def _planned(self, topology: Topology, tree: Tree, brokers: list[BrokerAddress]) -> Tree:
        """Return a tree over the brokers that keeps what is left of `tree`. Raises `UnreachableError`."""
        places = places_of(topology, brokers)
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
        """Return the link with most bandwidth left."""
        capacity = self._planner.capacity
        return max(trunk, key=lambda link: capacity(link) - self._planner.load(link, but=self._topic))

    def _edges(self, network: Aggregate, members: Ints, kept: Ints) -> Ints | None:
        graph, closed = network.graph, self._closed(network)
        if closed[members].any():
            return None
        load = self._loads(network)
        if len(kept) or closed.any():
            found = self._branches(graph, members, kept, load, closed)
        else:
            found = self._anew(graph, members, load)
        return None if found is None else self._trimmed(graph, found, members)

    def _loads(self, network: Aggregate) -> Floats:
        """Return the load of each edge by the other topics."""
        load = self._planner.load
        return np.array([sum(load(link, but=self._topic) for link in trunk) for trunk in network.trunks], np.float64)

    def _trimmed(self, graph: Graph, edges: Ints, members: Ints) -> Ints:
        """Return a tree without branches that lead to no member."""
        keep = np.zeros(graph.nodes, np.bool_)
        keep[members] = True
        return edges[: prune(graph, edges, len(edges), keep, np.zeros(graph.nodes, np.int32))]

    def _closed(self, network: Aggregate) -> Flags:
        closed = np.zeros(network.graph.nodes, np.bool_)
        for dpid in self._planner.avoid(self._topic):
            if dpid in network.node_of:
                closed[network.node_of[dpid]] = True
        return closed

    def _anew(self, graph: Graph, members: Ints, load: Floats) -> Ints | None:
        """Return the edges of a new tree, or None if a member cannot be reached."""
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
        """Return the kept edges, pruned, with paths that make them one tree over the members; None if there are no such
        paths."""
        kept = self._trimmed(graph, kept.copy(), members)
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


def places_of(topology: Topology, brokers: Iterable[BrokerAddress]) -> dict[BrokerAddress, Port]:
    """Return the places of brokers. Raises `UnreachableError` if one is unknown or down."""
    found = {broker: topology.where(broker) for broker in brokers}
    lost = [broker for broker, place in found.items() if place is None]
    if lost:
        raise UnreachableError(lost)
    return {broker: place for broker, place in found.items() if place is not None}
