"""A topic code weighted by use: Huffman's code at each topic, over its children and its own events (Huffman 1952).

It is the shortest code, by use, in which a subtree has one prefix. The length of a word is the sum of the bits of each
level. Another tree or other weights give another code, in which many topics have another address (`recoded`).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from saps.ofm.topics.coding import TopicCode, fitting, padded
from saps.ofm.topics.tree import TopicTree

FLOOR = 4096
"""A child counts for at least 1 / FLOOR of its siblings' use. So n siblings need at most log(FLOOR + n) / log(1.618)
bits, rounded up: 20 for 10,000. A larger FLOOR gives shorter words by use, and longer words for unused topics."""


def huffman(weights: list[float]) -> list[str]:
    """Return the words of Huffman's code for two or more weights, in their order.

    Of equal weights the earlier counts as lighter."""
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
    """The weighted code of a tree's present state (a `TopicCode`)."""

    name = "weighted"

    def __init__(self, tree: TopicTree, use: Mapping[str, float]) -> None:
        """`use` is the weight of each topic's own events, 0 if it is missing. Raises `ValueError` for a negative
        one."""
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
        """Assign codes to a topic's children, and to its own events a word with which no child's code begins."""
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
    """Return the use of each topic together with all topics below it."""
    sums: dict[str, float] = {}
    for topic in reversed(list(tree)):
        sums[topic] = use.get(topic, 0.0) + sum(sums[child] for child in tree.children(topic))
    return sums


def recoded(words: Mapping[str, str], after: TopicCode) -> list[str]:
    """Return the topics whose words in the code `after` differ from `words`. Their flow entries must be replaced."""
    return [topic for topic, word in words.items() if after.word(topic) != word]
