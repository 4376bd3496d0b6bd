"""Random topic trees, and the codes under test."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hypothesis import strategies as st

from research.weighted_codes import WeightedCode
from saps.ofm.topics.coding import TopicCode
from saps.ofm.topics.delimited import DelimitedCode
from saps.ofm.topics.tree import TopicTree

LEVELS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5)
TOPICS = st.lists(LEVELS.map("/".join), min_size=1, max_size=25)


def tree_of(topics: Iterable[str]) -> TopicTree:
    tree = TopicTree()
    for topic in topics:
        tree.add(topic)
    return tree


def weighted(tree: TopicTree) -> WeightedCode:
    """By a use that differs much from topic to topic."""
    return WeightedCode(tree, {topic: 3.0 ** (i % 7) for i, topic in enumerate(tree)})


OURS: list[Callable[[TopicTree], TopicCode]] = [DelimitedCode, weighted]
