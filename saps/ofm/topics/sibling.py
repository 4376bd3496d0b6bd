"""The published code: encodes the topic tree as a binary tree, left child and right sibling (SDNPS 2016, 3.2).

The left branch is 0, the right branch 1; the first child of the root is ``0``, its next sibling ``01``, its own first
child ``00``. Everything is as printed, faults and limits included (docs/topic-codes.md); `covers_mended` is the correct
relation.
"""

from __future__ import annotations

from saps.ofm.topics.coding import fitting, padded
from saps.ofm.topics.tree import TopicTree, father_of


def dlsuffix(code: str) -> str:
    """Return the code without trailing 1s: that of the first sibling."""
    return code.rstrip("1")


def dlzero(code: str) -> str:
    """Return the code without *one* trailing 0. (If all trailing zeros were meant, every chain of first children would
    have one father.)"""
    return code.removesuffix("0")


def covers_mended(one: str, other: str) -> bool:
    """Return what `SiblingCode.covers` should: whatever is below a topic is in the left branch of its node."""
    return other.startswith(one + "0")


class SiblingCode:
    """The published code of a tree (a `TopicCode`). The removal of a topic changes the codes of later siblings."""

    name = "published"

    def __init__(self, tree: TopicTree) -> None:
        self.tree = tree
        self._places: dict[str | None, dict[str, int]] = {}
        self._version = -1

    def code(self, topic: str) -> str:
        father = father_of(topic)
        above = "" if father is None else self.code(father)
        return above + "0" + "1" * self._place(father, topic)

    def word(self, topic: str) -> str:
        """See `TopicCode.word`. The word is padded with zeros; the paper does not say with what. Ones would do no
        better."""
        return padded(topic, self.code(topic))

    def subtree(self, topic: str) -> str:
        """Return the topic expression itself, as in "a subspace covers ... iff it is a prefix"."""
        return fitting(topic, self.code(topic))

    def father(self, code: str) -> str:
        return dlzero(dlsuffix(code))

    def covers(self, one: str, other: str) -> bool:
        """Return whether `one` is a prefix of `other`'s father, as printed. That also holds for children of later
        siblings."""
        return self.father(other).startswith(one)

    def _place(self, father: str | None, topic: str) -> int:
        """Return the number of siblings before the topic."""
        if self._version != self.tree.version:
            self._places.clear()
            self._version = self.tree.version
        places = self._places.get(father)
        if places is None:
            children = self.tree.children(father)
            places = self._places[father] = {child: place for place, child in enumerate(children)}
        return places[topic]
