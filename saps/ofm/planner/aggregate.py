"""Turns the controller's topology into a planner's network of switches or whole clusters, with parallel links summed
up.

Parallel links between two nodes are one edge. A tree takes the link with most bandwidth left, so topics split over the
links (SDNPS 2016, 3.4: "aggregating trunks between clusters"; "allocates traffic evenly").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from saps.ofm.network.topology import Link, Topology
from saps.ofm.planner.graph import Graph


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A network of named nodes, and the links behind its edges."""

    names: tuple[str, ...]
    """Names of the nodes, ascending."""
    graph: Graph
    trunks: tuple[tuple[Link, ...], ...]
    """Links of each edge, ascending."""
    node_of: Mapping[int, int] = field(default_factory=dict)
    """Node of each switch."""

    @classmethod
    def of(
        cls,
        topology: Topology,
        capacity: Callable[[Link], float] = lambda link: 1.0,
        cluster_of: Mapping[int, str] | None = None,
    ) -> Aggregate:
        """Return the network of what carries packets now. Switches without a cluster are nodes of their own, named by
        16 hexadecimal digits. Links within a cluster are left out. Capacities are greater than 0 and share one unit."""
        clusters = cluster_of or {}
        name_of = {dpid: clusters.get(dpid, f"{dpid:016x}") for dpid in topology.switches}
        names = sorted(set(name_of.values()))
        number = {name: node for node, name in enumerate(names)}
        node_of = {dpid: number[name] for dpid, name in name_of.items()}
        trunks: dict[tuple[int, int], list[Link]] = {}
        for link in topology.links:
            a, b = sorted((node_of[link.a.dpid], node_of[link.b.dpid]))
            if a != b:
                trunks.setdefault((a, b), []).append(link)
        ends = sorted(trunks)
        sums = [sum(map(capacity, trunks[pair])) for pair in ends]
        return cls(tuple(names), Graph.of(len(names), ends, sums), tuple(tuple(trunks[pair]) for pair in ends), node_of)
