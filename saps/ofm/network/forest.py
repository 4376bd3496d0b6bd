"""Spanning forests. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable


def joining(edges: Iterable[tuple[Hashable, Hashable]]) -> list[int]:
    """Return the positions of the edges that join two parts of a graph when all are added in order: those of a spanning
    forest (Kruskal 1956)."""
    above: dict[Hashable, Hashable] = {}

    def root(node: Hashable) -> Hashable:
        while (higher := above.get(node, node)) != node:
            above[node] = above.get(higher, higher)
            node = higher
        return node

    found = []
    for place, (one, other) in enumerate(edges):
        a, b = root(one), root(other)
        if a != b:
            above[b] = a
            found.append(place)
    return found
