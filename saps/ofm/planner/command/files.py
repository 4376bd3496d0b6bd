"""Reads and writes the networks, demands and plans of `saps plan` as JSON.

A network has one of two forms. It is the controller's topology (`Topology.to_json`, as `GET /v1/topology` gives it),
aggregated by a file that names the cluster of each switch. Or it is a list of nodes and links (SDNPS 2016, 3.1: tuples
of source cluster, destination cluster, bandwidth; several between the same two are summed up).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from saps.ofm.network.topology import Topology
from saps.ofm.network.traffic import capacities_of
from saps.ofm.planner.aggregate import Aggregate
from saps.ofm.planner.graph import Demands, Graph
from saps.ofm.planner.trees import Trees

LEAST = 1e-9
"""Least rate of a topic: a topic without forecast traffic still gets a tree."""


class Trunk(msgspec.Struct, forbid_unknown_fields=True):
    """One or more links between two nodes."""

    a: str
    b: str
    capacity: float = 1.0
    """Capacity of all its links together, in units of bandwidth."""
    links: int = 1


class Network(msgspec.Struct, forbid_unknown_fields=True):
    """Named nodes, and the trunks that join them."""

    nodes: list[str]
    links: list[Trunk]


class Demand(msgspec.Struct, forbid_unknown_fields=True):
    """The demand of one topic."""

    topic: str
    members: list[str]
    """Nodes that publish or subscribe."""
    senders: list[str] = []
    """Members that publish; empty: the first member."""
    rate: float = 1.0
    """Forecast bandwidth on each link of its tree, in the unit of capacities."""
    father: str | None = None
    """Topic one level up, if it has a demand too. None: by name, as `a/b` is of `a/b/c`."""


class Plan(msgspec.Struct, forbid_unknown_fields=True):
    """Trees for all demands, with all that is needed to explain and draw them."""

    planner: str
    network: Network
    demands: list[Demand]
    trees: dict[str, list[tuple[str, str]]]
    """Links of each topic's tree, as pairs of nodes."""


def network_of(data: object, cluster_of: Mapping[int, str] | None = None, capacity: float = 1.0) -> Network:
    """Return the network in JSON's plain data of either form. `capacity` applies to the links of a controller's
    topology that have none in it. Raises `ValueError` that says where the data is wrong."""
    if isinstance(data, dict) and "switches" in data:
        given = capacities_of(data)
        whole = Aggregate.of(Topology.from_json(data), lambda link: given.get(link, capacity), cluster_of)
        return _named(whole)
    try:
        network = msgspec.convert(data, Network)
    except msgspec.ValidationError as error:
        raise ValueError(f"not a network: {error}") from None
    known = set(network.nodes)
    sums: dict[tuple[str, str], Trunk] = {}
    for link in network.links:
        if link.a == link.b or not {link.a, link.b} <= known:
            raise ValueError(f"not a network: link {link.a} - {link.b} does not join two of its nodes")
        if not link.capacity > 0:
            raise ValueError(f"not a network: link {link.a} - {link.b} has no capacity")
        a, b = sorted((link.a, link.b))
        trunk = sums.setdefault((a, b), Trunk(a, b, 0.0, 0))
        trunk.capacity += link.capacity
        trunk.links += link.links
    return Network(sorted(known), [sums[ends] for ends in sorted(sums)])


def _named(whole: Aggregate) -> Network:
    names, graph = whole.names, whole.graph
    return Network(
        list(names),
        [
            Trunk(names[a], names[b], float(capacity), len(trunk))
            for (a, b), capacity, trunk in zip(graph.ends.tolist(), graph.capacity, whole.trunks, strict=True)
        ],
    )


def demands_of(data: object) -> list[Demand]:
    """Return the demands in JSON's plain data, a list of demands. Raises `ValueError` that says where the data is
    wrong."""
    try:
        found = msgspec.convert(data, list[Demand])
    except msgspec.ValidationError as error:
        raise ValueError(f"not demands: {error}") from None
    for demand in found:
        if not set(demand.senders) <= set(demand.members) or len(set(demand.members)) < len(demand.members):
            raise ValueError(f"not demands: {demand.topic}: senders must be members, and members different")
        if not demand.rate > 0:
            raise ValueError(f"not demands: {demand.topic}: the rate must be greater than 0")
    if len({demand.topic for demand in found}) < len(found):
        raise ValueError("not demands: a topic is there twice")
    return found


def forecast(demands: list[Demand], data: object) -> list[Demand]:
    """Return the demands at their forecast rates. `data` is JSON's plain data: rate by topic, or objects with `topic`
    and `rate`, alone or under `decisions` (the table of decisions of the monitoring job). Topics without a forecast
    keep their rates. Raises `ValueError` that says where the data is wrong."""
    rows = data.get("decisions", data) if isinstance(data, dict) else data
    try:
        if isinstance(rows, dict):
            rates = msgspec.convert(rows, dict[str, float])
        else:
            rates = {row.topic: row.rate for row in msgspec.convert(rows, list[_Forecast])}
    except msgspec.ValidationError as error:
        raise ValueError(f"not a forecast: {error}") from None
    return [
        msgspec.structs.replace(demand, rate=max(rates.get(demand.topic, demand.rate), LEAST)) for demand in demands
    ]


def plan_of(data: object) -> Plan:
    """Return the plan in JSON's plain data. Raises `ValueError` that says where the data is wrong."""
    try:
        return msgspec.convert(data, Plan)
    except msgspec.ValidationError as error:
        raise ValueError(f"not a plan: {error}") from None


def plain(value: Network | Plan) -> dict[str, Any]:
    """Return plain data for `json.dumps`."""
    data: dict[str, Any] = msgspec.to_builtins(value)
    return data


def graph_of(network: Network) -> Graph:
    """Return the network in the planners' form, with nodes and edges in the network's order."""
    number = {name: node for node, name in enumerate(network.nodes)}
    links = [(number[link.a], number[link.b]) for link in network.links]
    return Graph.of(len(number), links, [link.capacity for link in network.links])


def arrays_of(demands: list[Demand], network: Network) -> tuple[Demands, list[Demand]]:
    """Return the demands in the planners' form, and the list of demands in the same order: fathers before children,
    otherwise as given. Raises `ValueError` for a member that is no node of the network."""
    ordered = sorted(demands, key=lambda demand: demand.topic.count("/"))
    number = {name: node for node, name in enumerate(network.nodes)}
    place = {demand.topic: i for i, demand in enumerate(ordered)}
    members, fathers = [], []
    for i, demand in enumerate(ordered):
        if lost := sorted(set(demand.members) - number.keys()):
            raise ValueError(f"{demand.topic}: not in the network: {', '.join(lost)}")
        senders = demand.senders or demand.members[:1]
        members.append([number[name] for name in [*senders, *(m for m in demand.members if m not in senders)]])
        father = place.get(_father(demand), -1)
        fathers.append(father if father < i else -1)
    rates = [demand.rate for demand in ordered]
    return Demands.of(members, rates, [max(1, len(d.senders)) for d in ordered], fathers), ordered


def _father(demand: Demand) -> str:
    return demand.father if demand.father is not None else demand.topic.rpartition("/")[0]


def named_trees(
    trees: Trees, demands: list[Demand], network: Network, graph: Graph
) -> dict[str, list[tuple[str, str]]]:
    """Return the links of each tree by the names of their ends."""
    names = network.nodes
    return {
        demand.topic: [(names[a], names[b]) for a, b in graph.ends[trees.edges_of(i)].tolist()]
        for i, demand in enumerate(demands)
    }


class _Forecast(msgspec.Struct):
    topic: str
    rate: float


class Loaded(NamedTuple):
    """A plan in the planners' form."""

    graph: Graph
    demands: Demands
    ordered: list[Demand]
    """The demands, in the order of `demands` and `trees`."""
    trees: Trees


def loaded(plan: Plan) -> Loaded:
    """Return a plan in the planners' form, the inverse of `named_trees`. Raises `ValueError` for an inconsistent
    plan."""
    graph = graph_of(plan.network)
    demands, ordered = arrays_of(plan.demands, plan.network)
    number = {name: node for node, name in enumerate(plan.network.nodes)}
    edge_of = {(a, b): edge for edge, (a, b) in enumerate(graph.ends.tolist())}
    rows = []
    for demand in ordered:
        try:
            ends = [sorted((number[a], number[b])) for a, b in plan.trees[demand.topic]]
            rows.append([edge_of[a, b] for a, b in ends])
        except KeyError as missing:
            raise ValueError(f"not a plan: {demand.topic}: {missing} is not in it") from None
    return Loaded(graph, demands, ordered, Trees.of(rows))
