"""The store of retained messages: values kept by topic and found by topic filter (MQTT 5.0, 3.3.1.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

V = TypeVar("V")

CAPACITY = 100_000
"""Most topics with a value; each costs the value and about 1 KiB."""


class RetainedStore(Generic[V]):
    """At most one value for each topic, in a trie over the levels of topics."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self._root: _Node[V] = _Node()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, topic: str, value: V) -> bool:
        """Set the value of a topic. Returns False if the store is full and the topic new."""
        levels = topic.split("/")
        if self._size >= self.capacity and self.get(topic) is None:
            return False
        node = self._root
        for level in levels:
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        self._size += node.value is None
        node.value = value
        return True

    def get(self, topic: str) -> V | None:
        """Return the value of a topic, or None."""
        node: _Node[V] | None = self._root
        for level in topic.split("/"):
            node = node.children.get(level) if node is not None else None
        return node.value if node is not None else None

    def remove(self, topic: str) -> None:
        """Remove the value of a topic, if there is one."""
        levels = topic.split("/")
        path = [self._root]
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return
            path.append(child)
        if path[-1].value is None:
            return
        path[-1].value = None
        self._size -= 1
        for parent, level, node in zip(path[-2::-1], reversed(levels), reversed(path), strict=False):
            if node.children or node.value is not None:
                break
            del parent.children[level]

    def matching(self, topic_filter: str) -> list[V]:
        """Return the values of the topics that a filter matches."""
        return list(self._match(topic_filter.split("/")))

    def values(self) -> list[V]:
        """Return all values, including those of ``$`` topics."""
        return list(self._root.below(hide=False))

    def _match(self, levels: list[str]) -> Iterator[V]:
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
            if node.value is not None:
                yield node.value


class _Node(Generic[V]):
    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Node[V]] = {}
        self.value: V | None = None

    def below(self, hide: bool) -> Iterator[V]:
        """Yield the values of this node and all below it; with `hide` without those below a ``$`` level."""
        stack = [self]
        while stack:
            node = stack.pop()
            if node.value is not None:
                yield node.value
            stack.extend(child for name, child in node.children.items() if not (hide and name.startswith("$")))
            hide = False
