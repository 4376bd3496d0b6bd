"""As few flow entries as possible for topics of which some have the same tree (SDNPS 2016, 3.2: "aggregation").

Entries match prefixes of words, and a longer one has the higher priority. So it is the problem of the smallest routing
table, and solved optimally as that (Draves et al. 1999). A word that no topic has may match anything.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from saps.ofm.topics.coding import CodeTooLongError, TopicCode

T = TypeVar("T", bound=Hashable)


class Entry(NamedTuple, Generic[T]):
    """One flow entry of a switch: the words it matches, and where they go."""

    prefix: str
    tree: T | None
    """None: nowhere."""


class Aggregated(NamedTuple, Generic[T]):
    """The entries of a set of topics."""

    entries: list[Entry[T]]
    alone: int
    """How many there would be with one for each topic that has a tree and an address."""
    too_long: list[str]
    """Topics that have no address in this code."""
    clashing: list[str]
    """Topics that share a word with one of another tree: whatever the entries, one of the two goes wrong."""


def aggregate(code: TopicCode, trees: Mapping[str, T | None]) -> Aggregated[T]:
    """The entries for the topics of a code's tree. `trees`: the tree of each topic; None, or missing: it has none, and
    its events must match no entry, or one that leads nowhere."""
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
    """The fewest entries by which each of these words, all of one length, goes where it shall."""
    if not words:
        return []
    root = _grow(sorted(words), words)
    return list(_entries(root))


def lookup(entries: Iterable[Entry[T]], word: str) -> T | None:
    """Where a switch with these entries sends a word."""
    fitting = [entry for entry in entries if word.startswith(entry.prefix)]
    return max(fitting, key=lambda entry: len(entry.prefix)).tree if fitting else None


class _Node(Generic[T]):
    """Some words, all that begin with `prefix`; `best`: what an entry for it may lead to in a smallest solution."""

    __slots__ = ("below", "best", "prefix")

    def __init__(self, prefix: str, below: tuple[_Node[T], ...], best: list[T | None]) -> None:
        self.prefix = prefix
        self.below = below
        self.best = best


def _grow(words: list[str], trees: Mapping[str, T | None]) -> _Node[T]:
    """The binary trie of sorted words, without nodes that have one child. At most `WORD_BITS` deep."""
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
