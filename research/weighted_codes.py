"""A code weighted by use: Huffman's at each topic, over its children and its own events (Huffman 1952).

The shortest code, by use, in which a subtree is one prefix: the length of a word is the sum of what each level adds. A
tree or weights that change mean another code, in which many topics have another address (`recoded`).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from saps.ofm.topics.coding import TopicCode, fitting, padded
from saps.ofm.topics.tree import TopicTree

FLOOR = 4096
"""A child counts with at least this part of its siblings' use. So n siblings need at most log(FLOOR + n) / log(1.618)
bits, rounded up: 20 for 10,000. A larger number is shorter by use and longer for what is not used."""


def huffman(weights: list[float]) -> list[str]:
    """The words of Huffman's code for two weights or more, in their order. Of equal weights the earlier is lighter."""
    heap = [(weight, i, [i]) for i, weight in enumerate(weights)]
    heapq.heapify(heap)
    words = [""] * len(weights)
    while len(heap) > 1:
        light, heavy = heapq.heappop(heap), heapq.heappop(heap)
        for bit, (_, _, leaves) in (("0", light), ("1", heavy)):
            for leaf in leaves:
                words[leaf] = bit + words[leaf]
        heapq.heappush(heap, (light[0] + heavy[0], min(light[1], heavy[1]), light[2] + heavy[2]))
    return words


class WeightedCode:
    """The code of a tree as it is now (a `TopicCode`)."""

    name = "weighted"

    def __init__(self, tree: TopicTree, use: Mapping[str, float]) -> None:
        """`use`: how much each topic's own events count; 0 for one that is missing. Raises `ValueError` for less."""
        if any(weight < 0 for weight in use.values()):
            raise ValueError("use must not be negative")
        self.tree = tree
        self._codes: dict[str, str] = {}
        self._own: dict[str, str] = {}
        self._fathers: dict[str, str] = {}
        sums = _sums(tree, use)
        self._level(None, "", tree.children(None), [0.0], sums)
        for topic in tree:
            if children := tree.children(topic):
                self._level(topic, self._codes[topic], children, [use.get(topic, 0.0)], sums)

    def _level(
        self, topic: str | None, code: str, children: list[str], own: list[float], sums: Mapping[str, float]
    ) -> None:
        """Gives a topic's children their codes, and its own events a word that none of them begins with."""
        if not children:
            return
        weights = own + [sums[child] for child in children]
        least = sum(weights) / FLOOR or 1.0
        end, *words = huffman([max(weight, least) for weight in weights])
        if topic is not None:
            self._own[topic] = code + end
        for child, word in zip(children, words, strict=True):
            self._codes[child] = code + word
            self._fathers[code + word] = code

    def code(self, topic: str) -> str:
        return self._codes[topic]

    def word(self, topic: str) -> str:
        return padded(topic, self._own.get(topic, self._codes[topic]))

    def subtree(self, topic: str) -> str:
        return fitting(topic, self._codes[topic])

    def father(self, code: str) -> str:
        return self._fathers[code]

    def covers(self, one: str, other: str) -> bool:
        return one != other and other.startswith(one)


def _sums(tree: TopicTree, use: Mapping[str, float]) -> dict[str, float]:
    """The use of each topic and all below it."""
    sums: dict[str, float] = {}
    for topic in reversed(list(tree)):
        sums[topic] = use.get(topic, 0.0) + sum(sums[child] for child in tree.children(topic))
    return sums


def recoded(words: Mapping[str, str], after: TopicCode) -> list[str]:
    """The topics that had these words and have others in a code: their flow entries must be replaced."""
    return [topic for topic, word in words.items() if after.word(topic) != word]
