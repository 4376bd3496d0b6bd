"""Explains a topic's tree in words, for operators of the network."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from saps.ofm.planner.command.files import Plan, loaded
from saps.ofm.planner.graph import Demands, Floats, Graph, Ints
from saps.ofm.planner.shortest import mehlhorn
from saps.ofm.planner.trees import Trees, diameters, loads


def explain(plan: Plan, topic: str) -> str:
    """Return the members, the links with their load, and the tree that fewest hops would give. Raises `KeyError` for a
    topic that the plan does not have, `ValueError` for an inconsistent plan."""
    return "\n".join(_lines(plan, topic))


def _lines(plan: Plan, topic: str) -> Iterator[str]:
    graph, demands, ordered, trees = loaded(plan)
    names, topics = plan.network.nodes, [demand.topic for demand in ordered]
    if topic not in topics:
        raise KeyError(topic)
    number = topics.index(topic)
    demand, edges, load = ordered[number], trees.edges_of(number), loads(graph, demands, trees)
    only = Demands.of([demands.nodes_of(number).tolist()], demand.rate)
    yield f"topic {topic}: rate {demand.rate:g}, {len(demand.members)} members, planned by {plan.planner}"
    yield f"members: {', '.join(demand.members)}; publishing: {', '.join(demand.senders or demand.members[:1])}"
    if not len(edges):
        yield "no links: one member only, or refused for lack of a path or of room"
        return
    relays = set(np.unique(graph.ends[edges]).tolist()) - set(demands.nodes_of(number).tolist())
    yield f"nodes that only relay: {', '.join(names[node] for node in sorted(relays)) or 'none'}"
    cost, across = len(edges), int(diameters(graph, Trees.of([edges.tolist()]))[0])
    yield f"links: {cost}, the longest way {across} hops; if only hops counted (Mehlhorn), {_cost(graph, only)} links"
    yield "link, load of capacity, of which this topic:"
    used = load / graph.capacity
    for edge in edges[np.argsort(-used[edges], kind="stable")].tolist():
        share = demand.rate / graph.capacity[edge]
        yield f"  {_name(plan, edge)}: {100 * used[edge]:.1f} %, of which {100 * share:.1f} %"
    yield from _avoided(plan, graph, only, edges, used)


def _avoided(plan: Plan, graph: Graph, only: Demands, edges: Ints, used: Floats) -> Iterator[str]:
    """Yield lines on the links that the tree of fewest hops would take and this tree avoids."""
    others = np.setdiff1d(mehlhorn(graph, only).edges_of(0), edges)
    if not len(others):
        yield "no link is avoided: it is the tree of fewest hops"
        return
    yield "links of the tree of fewest hops that are avoided, and what their load would be:"
    for edge in others[np.argsort(-used[others], kind="stable")].tolist():
        yield f"  {_name(plan, edge)}: {100 * (used[edge] + only.rate[0] / graph.capacity[edge]):.1f} %"


def _cost(graph: Graph, only: Demands) -> int:
    return len(mehlhorn(graph, only).edges)


def _name(plan: Plan, edge: int) -> str:
    link = plan.network.links[edge]
    return f"{link.a} - {link.b}"
