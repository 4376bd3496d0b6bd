"""Computes the fewest flow entries for topics, some of which share a tree (SDNPS 2016, 3.2: "aggregation").

Entries match prefixes of words, and a longer prefix has a higher priority. So this is the problem of the smallest
routing table, and is solved optimally in the same way (Draves et al. 1999). A word that no topic has may match any
entry.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from saps.ofm.topics.coding import CodeTooLongError, TopicCode

T = TypeVar("T", bound=Hashable)


class Entry(NamedTuple, Generic[T]):
    """One flow entry of a switch: the prefix of the words it matches, and their tree."""

    prefix: str
    tree: T | None
    """The tree of matching words; None: they are dropped."""


class Aggregated(NamedTuple, Generic[T]):
    """The entries of a set of topics."""

    entries: list[Entry[T]]
    alone: int
    """Number of entries with one for each topic that has a tree and an address."""
    too_long: list[str]
    """Topics that have no address in this code."""
    clashing: list[str]
    """Topics whose word belongs to a topic of another tree. No set of entries can serve both."""


def aggregate(code: TopicCode, trees: Mapping[str, T | None]) -> Aggregated[T]:
    """Return the entries for the topics of a code's tree. `trees` gives the tree of each topic. For None or a missing
    topic, its events match no entry, or one that drops."""
    words: dict[str, T | None] = {}
    too_long, clashing, alone = [], [], 0
    for topic in code.tree:
        tree = trees.get(topic)
        try:
            word = code.word(topic)
        except CodeTooLongError:
            too_long.append(topic)
            continue
        if word in words and words[word] != tree:
            clashing.append(topic)
            continue
        alone += tree is not None
        words[word] = tree
    return Aggregated(smallest(words), alone, too_long, clashing)


def smallest(words: Mapping[str, T | None]) -> list[Entry[T]]:
    """Return the fewest entries that send each of these words to its tree. All words have the same length."""
    if not words:
        return []
    root = _grow(sorted(words), words)
    return list(_entries(root))


def lookup(entries: Iterable[Entry[T]], word: str) -> T | None:
    """Return the tree to which a switch with these entries sends a word, or None."""
    fitting = [entry for entry in entries if word.startswith(entry.prefix)]
    return max(fitting, key=lambda entry: len(entry.prefix)).tree if fitting else None


class _Node(Generic[T]):
    """All words that begin with `prefix`. `best` lists the trees an entry for it may have in a smallest solution."""

    __slots__ = ("below", "best", "prefix")

    def __init__(self, prefix: str, below: tuple[_Node[T], ...], best: list[T | None]) -> None:
        self.prefix = prefix
        self.below = below
        self.best = best


def _grow(words: list[str], trees: Mapping[str, T | None]) -> _Node[T]:
    """Return the binary trie of sorted words, without nodes that have one child. It is at most `WORD_BITS` deep."""
    first, last = words[0], words[-1]
    if first == last:
        return _Node(first, (), [trees[first]])
    at = next(i for i, (one, other) in enumerate(zip(first, last, strict=True)) if one != other)
    low, high = 0, len(words)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if words[middle][at] == "1" else (middle + 1, high)
    left, right = _grow(words[:low], trees), _grow(words[low:], trees)
    common = [tree for tree in left.best if tree in set(right.best)]
    return _Node(first[:at], (left, right), common or left.best + right.best)


def _entries(root: _Node[T]) -> Iterable[Entry[T]]:
    stack: list[tuple[_Node[T], T | None]] = [(root, None)]
    while stack:
        node, inherited = stack.pop()
        if inherited not in node.best:
            inherited = node.best[0]
            yield Entry(node.prefix, inherited)
        stack.extend((child, inherited) for child in reversed(node.below))
