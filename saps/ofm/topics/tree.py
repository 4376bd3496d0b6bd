"""Keeps the topic tree: registered topics, each below its father; a topic covers all below it (SDNPS 2016, 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class _Node:
    __slots__ = ("children", "given", "number", "topic")

    def __init__(self, topic: str | None, number: int) -> None:
        self.topic = topic
        self.number = number
        self.children: dict[str, _Node] = {}
        self.given = 0
        """The highest number given to a child so far."""


def father_of(topic: str) -> str | None:
    """Return the topic one level up, or None for a topic of the first level."""
    father, slash, _ = topic.rpartition("/")
    return father if slash else None


class TopicTree:
    """Topics in the order in which they were added. The root, None, is not a topic."""

    def __init__(self) -> None:
        self._root = _Node(None, 0)
        self._nodes: dict[str, _Node] = {}
        self.version = 0
        """Number of changes so far."""

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, topic: str) -> bool:
        return topic in self._nodes

    def __iter__(self) -> Iterator[str]:
        """Iterate over all topics, each before those below it."""
        return self.below(None)

    def add(self, topic: str) -> None:
        """Add a topic and those above it. Each new one gets the next number among its siblings."""
        node, path = self._root, ""
        for depth, level in enumerate(topic.split("/")):
            path = f"{path}/{level}" if depth else level
            child = node.children.get(level)
            if child is None:
                node.given += 1
                child = node.children[level] = self._nodes[path] = _Node(path, node.given)
                self.version += 1
            node = child

    def place(self, topic: str, numbers: Sequence[int]) -> None:
        """Add a topic and those above it with these numbers, from the first level down. Raises `ValueError` if one of
        them has another number, or another topic has its number; then nothing has changed."""
        levels = topic.split("/")
        if len(levels) != len(numbers):
            raise ValueError(f"{topic!r} has {len(levels)} levels, not {len(numbers)}")
        node: _Node | None = self._root
        for level, number in zip(levels, numbers, strict=True):
            children = node.children if node is not None else {}
            if any((name == level) != (child.number == number) for name, child in children.items()):
                raise ValueError(f"{topic!r}: number {number} and {level!r} do not belong together")
            node = children.get(level)
        node, path = self._root, ""
        for depth, (level, number) in enumerate(zip(levels, numbers, strict=True)):
            path = f"{path}/{level}" if depth else level
            if level not in node.children:
                node.given = max(node.given, number)
                node.children[level] = self._nodes[path] = _Node(path, number)
                self.version += 1
            node = node.children[level]

    def remove(self, topic: str) -> None:
        """Remove a topic with all below it. Raises `KeyError` for an unknown topic. Its number is reused only if it was
        the highest."""
        father, node = self._node(father_of(topic)), self._nodes[topic]
        for gone in list(self.below(topic)):
            del self._nodes[gone]
        del father.children[topic.rpartition("/")[2]]
        if father.given == node.number:
            father.given -= 1
        self.version += 1

    def below(self, topic: str | None) -> Iterator[str]:
        """Yield the topic and all that it covers, each before those below it; None: all topics."""
        stack = [self._node(topic)]
        while stack:
            node = stack.pop()
            if node.topic is not None:
                yield node.topic
            stack.extend(reversed(node.children.values()))

    def children(self, topic: str | None) -> list[str]:
        """Return the topics one level below, in the order in which they were added."""
        return [node.topic for node in self._node(topic).children.values() if node.topic is not None]

    def number(self, topic: str) -> int:
        """Return the topic's number among its siblings, from 1. It never changes while the topic exists."""
        return self._nodes[topic].number

    def count(self, topic: str | None) -> int:
        """Return the number of children of a topic."""
        return len(self._node(topic).children)

    def _node(self, topic: str | None) -> _Node:
        return self._root if topic is None else self._nodes[topic]
