"""The retained messages of a broker, found by topic filter (MQTT 5.0, section 3.3.1.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saps.hub import Publication


class RetainedStore:
    """At most one retained publication a topic, in a trie over the topic's levels."""

    def __init__(self, capacity: int = 100_000) -> None:
        """`capacity`: topics with a retained message; each costs its payload and about 1 KiB."""
        self.capacity = capacity
        self.refused = 0
        """Messages not retained because the store was full."""
        self._root = _Node()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, publication: Publication) -> None:
        """Retain the publication in place of the topic's earlier one; an empty payload only removes that."""
        levels = publication.message.topic.split("/")
        if not publication.message.payload:
            self._remove(levels)
            return
        if self._size >= self.capacity and self._find(levels) is None:
            self.refused += 1
            return
        node = self._root
        for level in levels:
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        self._size += node.publication is None
        node.publication = publication

    def matching(self, topic_filter: str, now: float) -> list[Publication]:
        """The retained publications that match the filter and have not expired at `now`; expired ones are removed."""
        found = list(self._match(topic_filter.split("/")))
        live = [p for p in found if p.expires is None or p.expires > now]
        if len(live) < len(found):
            for publication in found:
                if publication.expires is not None and publication.expires <= now:
                    self._remove(publication.message.topic.split("/"))
        return live

    def _find(self, levels: list[str]) -> Publication | None:
        node: _Node | None = self._root
        for level in levels:
            node = node.children.get(level) if node is not None else None
        return node.publication if node is not None else None

    def _remove(self, levels: list[str]) -> None:
        path = [self._root]
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return
            path.append(child)
        if path[-1].publication is None:
            return
        path[-1].publication = None
        self._size -= 1
        for parent, level, node in zip(path[-2::-1], reversed(levels), reversed(path), strict=False):
            if node.children or node.publication is not None:
                break
            del parent.children[level]

    def _match(self, levels: list[str]) -> Iterator[Publication]:
        nodes = [self._root]
        for depth, level in enumerate(levels):
            if level == "#":
                for node in nodes:
                    yield from node.below(hide=depth == 0)
                return
            if level == "+":
                nodes = [
                    child
                    for node in nodes
                    for name, child in node.children.items()
                    if depth or not name.startswith("$")  # a leading wildcard does not match it (4.7.2)
                ]
            else:
                nodes = [node.children[level] for node in nodes if level in node.children]
        for node in nodes:
            if node.publication is not None:
                yield node.publication


class _Node:
    __slots__ = ("children", "publication")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.publication: Publication | None = None

    def below(self, hide: bool) -> Iterator[Publication]:
        """This node's publication and all its descendants', those under a ``$`` level left out if `hide`."""
        stack = [self]
        while stack:
            node = stack.pop()
            if node.publication is not None:
                yield node.publication
            stack.extend(child for name, child in node.children.items() if not (hide and name.startswith("$")))
            hide = False
