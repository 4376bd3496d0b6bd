"""The papers' algorithms word by word, over sets: slow, and independent of the product's code but for the ties."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product

import networkx as nx

from research.overlay_designs.interest import Interest

Edges = set[tuple[int, int]]


def topics_of(interest: Interest) -> list[set[int]]:
    """Each node's topics."""
    return [set(interest.topics_of_node(v).tolist()) for v in range(interest.nodes)]


def greedy_merge(interest: Interest) -> Edges:
    """GM: always the edge that merges most components over all topics, the lexicographically first of equals."""
    wants = topics_of(interest)
    component = {(v, t): v for v in range(interest.nodes) for t in wants[v]}
    edges: Edges = set()
    while True:
        gains = {
            (u, v): [t for t in wants[u] & wants[v] if component[u, t] != component[v, t]]
            for u, v in combinations(range(interest.nodes), 2)
        }
        best = max(gains, key=lambda edge: len(gains[edge]), default=None)
        if best is None or not gains[best]:
            return edges
        edges.add(best)
        for t in gains[best]:
            old, new = component[best[0], t], component[best[1], t]
            for node, topic in component:
                if topic == t and component[node, t] == old:
                    component[node, t] = new


def greedy_stars(
    interest: Interest, rank: list[int], score: Callable[[int, set[int], list[set[int]]], Fraction]
) -> Edges:
    """Until no topic remains, the node of the greatest score(node, remaining, interests) takes all its topics."""
    wants = topics_of(interest)
    remaining = set().union(*wants)
    edges: Edges = set()
    while remaining:
        candidates = [v for v in range(interest.nodes) if wants[v] & remaining]
        v = min(candidates, key=lambda v: (-score(v, remaining, wants), rank[v]))
        edges |= {(min(u, v), max(u, v)) for u in range(interest.nodes) if u != v and wants[u] & wants[v] & remaining}
        remaining -= wants[v]
    return edges


def two_d_oda(interest: Interest, rank: list[int], *, as_printed: bool) -> Edges:
    """2D-ODA: one star at a time, the densest; `rank` by subscription."""
    wants = topics_of(interest)
    remaining = set().union(*wants)
    edges: Edges = set()

    def linked(u: int, v: int) -> bool:
        return (min(u, v), max(u, v)) in edges

    def density(u: int, topic: int) -> Fraction:
        star = [v for v in range(interest.nodes) if topic in wants[v]]
        counted = range(interest.nodes) if as_printed else star
        shared = sum(len(wants[u] & wants[v] & remaining) for v in counted)
        return Fraction(shared, sum(not linked(u, v) for v in star))

    while remaining:
        stars = [
            (-density(u, t), rank[interest.nodes_at[t] + interest.nodes_of_topic(t).tolist().index(u)], u, t)
            for t in remaining
            for u in interest.nodes_of_topic(t).tolist()
        ]
        _, _, u, t = min(stars)
        edges |= {(min(u, v), max(u, v)) for v in range(interest.nodes) if v != u and t in wants[v]}
        remaining.remove(t)
    return edges


def least_maximum_of_stars(interest: Interest) -> int:
    """The least maximum degree of one star for each topic, by trying all centres."""
    topics = [interest.nodes_of_topic(t).tolist() for t in range(interest.topics) if len(interest.nodes_of_topic(t))]
    least = interest.nodes
    for centres in product(*topics):
        edges = {frozenset((c, v)) for c, nodes in zip(centres, topics, strict=True) for v in nodes if v != c}
        degrees = [sum(v in edge for edge in edges) for v in range(interest.nodes)]
        least = min(least, max(degrees, default=0))
    return least


def diameters(interest: Interest, edges: Edges) -> list[int]:
    """Each topic's diameter by networkx, -1 if it is not connected."""
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(interest.nodes))
    graph.add_edges_from(edges)
    found = []
    for t in range(interest.topics):
        inside = graph.subgraph(interest.nodes_of_topic(t).tolist())
        connected = len(inside) == 0 or nx.is_connected(inside)
        found.append((nx.diameter(inside) if len(inside) else 0) if connected else -1)
    return found
