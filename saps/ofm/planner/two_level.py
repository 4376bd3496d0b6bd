"""Plans trees on two levels: first between clusters, then inside each cluster from its border switches (SDNPS 2016,
3.4, 4.2).

A tree enters each cluster it passes once. One trunk joins two neighbouring clusters; of parallel links, the one with
most bandwidth left. So a change inside a cluster affects no tree outside it. A search covers the clusters, or the
switches of one cluster, never all switches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import count

import numpy as np

from saps.ofm.network.topology import BrokerAddress, Link, Topology
from saps.ofm.planner.aggregate import Aggregate
from saps.ofm.planner.fitted import NetworkPlanner, TopicPlanner, places_of
from saps.ofm.planner.graph import Flags, Ints
from saps.ofm.trees.tree import Tree, UnreachableError


class TwoLevelPlanner(NetworkPlanner):
    """A `NetworkPlanner` for a network of clusters. `cluster_of` names the cluster of each switch. A switch without a
    cluster is a cluster of its own, and a partitioned cluster counts as several."""

    def __init__(
        self,
        cluster_of: Mapping[int, str],
        *,
        capacity: Callable[[Link], float] = lambda link: 1.0,
        rate: Callable[[str], float] = lambda topic: 1.0,
        avoid: Callable[[str], Collection[int]] = lambda topic: (),
        version: Callable[[], int] = lambda: 0,
        spread: bool = False,
    ) -> None:
        """See `NetworkPlanner`. Paths are priced by load as with `balanced`."""
        super().__init__("balanced", capacity=capacity, rate=rate, avoid=avoid, version=version, spread=spread)
        self._cluster_of = cluster_of
        self._clusters: tuple[Aggregate, Aggregate] | None = None

    def for_topic(self, topic: str) -> TopicPlanner:
        """See `saps.ofm.trees.tree.Planners.for_topic`."""
        return _TwoLevel(self, topic)

    def clusters(self, topology: Topology) -> Aggregate:
        """Return the present network, with a node for each cluster or connected part of one."""
        network = self.network(topology)
        if self._clusters is None or self._clusters[0] is not network:
            pieces = _pieces(topology, self._cluster_of)
            self._clusters = (network, Aggregate.of(topology, self.capacity, pieces))
        return self._clusters[1]


class _TwoLevel(TopicPlanner):
    """A `saps.ofm.trees.tree.Planner` on two levels for one topic."""

    _planner: TwoLevelPlanner

    def _planned(self, topology: Topology, tree: Tree, brokers: list[BrokerAddress]) -> Tree:
        places = places_of(topology, brokers)
        switches, clusters = self._planner.network(topology), self._planner.clusters(topology)
        homes = {place.dpid for place in places.values()}
        between = self._between(clusters, homes, tree)
        if between is None:  # no path on two levels keeps the present tree; one level may have one
            return super()._planned(topology, tree, brokers)
        links = set(between)
        inside: dict[int, set[int]] = {}
        for dpid in homes | {end.dpid for link in between for end in link}:
            inside.setdefault(clusters.node_of[dpid], set()).add(dpid)
        for cluster, ends in sorted(inside.items()):
            found = self._inside(switches, clusters, cluster, ends, tree)
            if found is None:
                raise UnreachableError(broker for broker, place in places.items() if place.dpid in ends)
            links |= found
        return Tree(frozenset(links), places)

    def _between(self, clusters: Aggregate, homes: Iterable[int], tree: Tree) -> list[Link] | None:
        """Return one link of each trunk of a tree over the clusters, or None if no such tree keeps the trunks of
        `tree`."""
        edge_of = {link: edge for edge, trunk in enumerate(clusters.trunks) for link in trunk}
        kept = {edge_of[link]: link for link in sorted(tree.links) if link in edge_of}
        if len(kept) < sum(link in edge_of for link in tree.links):
            return None
        members = np.array(sorted({clusters.node_of[dpid] for dpid in homes}), np.int32)
        closed = np.zeros(clusters.graph.nodes, np.bool_)  # a barred switch bars no cluster: see `_inside`
        found = self._grown(clusters, members, np.array(sorted(kept), np.int32), closed)
        if found is None:
            return None
        return [kept.get(edge) or self._least(clusters.trunks[edge]) for edge in found.tolist()]

    def _inside(
        self, switches: Aggregate, clusters: Aggregate, cluster: int, ends: set[int], tree: Tree
    ) -> set[Link] | None:
        """Return the links inside a cluster that join its border switches and those with brokers, or None if they
        cannot be joined."""
        edge_of = {link: edge for edge, trunk in enumerate(switches.trunks) for link in trunk}
        closed = self._closed(switches)
        for dpid, node in switches.node_of.items():
            closed[node] |= clusters.node_of[dpid] != cluster
        members = np.array(sorted(switches.node_of[dpid] for dpid in ends), np.int32)
        if closed[members].any():
            return None
        own = {link for link in tree.links if {clusters.node_of.get(end.dpid) for end in link} == {cluster}}
        kept = {edge_of[link]: link for link in sorted(own) if link in edge_of}
        found = self._grown(switches, members, np.array(sorted(kept), np.int32), closed)
        if found is None:
            return None
        return {kept.get(edge) or self._least(switches.trunks[edge]) for edge in found.tolist()}

    def _grown(self, network: Aggregate, members: Ints, kept: Ints, closed: Flags) -> Ints | None:
        load = self._loads(network)
        found = self._branches(network.graph, members, kept, load, closed)
        return None if found is None else self._trimmed(network.graph, found, members)


def _pieces(topology: Topology, cluster_of: Mapping[int, str]) -> dict[int, str]:
    """Return the cluster of each switch. Each further part that is not connected inside its cluster has a number behind
    the name."""
    found: dict[int, str] = {}
    numbers: dict[str, count[int]] = {}
    for first in topology.switches:
        cluster = cluster_of.get(first)
        if cluster is None or first in found:
            continue
        number = next(numbers.setdefault(cluster, count(1)))
        name = cluster if number == 1 else f"{cluster}\0{number}"
        reached = [first]
        found[first] = name
        for dpid in reached:
            for other, _ in topology.neighbours(dpid):
                if other not in found and cluster_of.get(other) == cluster:
                    found[other] = name
                    reached.append(other)
    return found
