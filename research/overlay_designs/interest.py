"""The interest matrix: the subscriptions of nodes to topics (TD-CD-ODA 2017, section II).

``Interest(v, t) = 1`` for some pairs of the nodes 0 .. n-1 and the topics 0 .. k-1. The matrix is sparse, and kept
twice in compressed rows: each node's topics and each topic's nodes, both ascending. A *subscription* is a pair with a
1. Its number is its place among the topics' nodes, so that algorithms can keep a value for each subscription in one
array.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from saps.overlay.design.compiled import compiled

Ints = NDArray[np.int32]
"""Numbers of nodes, topics or subscriptions."""
Offsets = NDArray[np.int64]
"""Starts of the rows of a compressed matrix, followed by its end."""


class Interest(NamedTuple):
    """The interest matrix as a tuple of arrays, which compiled kernels take directly.

    Row v of ``topics_of``, from ``topics_at[v]`` to ``topics_at[v + 1]``, holds the topics of node v. The same stretch
    of ``subscription_of`` holds the numbers of these subscriptions. ``nodes_of`` and ``nodes_at`` hold the nodes of
    each topic in the same way.
    """

    topics_at: Offsets
    topics_of: Ints
    subscription_of: Ints
    nodes_at: Offsets
    nodes_of: Ints

    @property
    def nodes(self) -> int:
        """Number of nodes, n."""
        return len(self.topics_at) - 1

    @property
    def topics(self) -> int:
        """Number of topics, |T|, those without a subscriber included."""
        return len(self.nodes_at) - 1

    @property
    def subscriptions(self) -> int:
        """Number of pairs (node, topic)."""
        return len(self.nodes_of)

    def topics_of_node(self, node: int) -> Ints:
        """Return the topics of `node`, ascending."""
        return self.topics_of[self.topics_at[node] : self.topics_at[node + 1]]

    def nodes_of_topic(self, topic: int) -> Ints:
        """Return V_t, the nodes subscribed to `topic`, ascending."""
        return self.nodes_of[self.nodes_at[topic] : self.nodes_at[topic + 1]]

    @staticmethod
    def from_pairs(pairs: NDArray[Any], nodes: int, topics: int) -> Interest:
        """Return the matrix with a 1 at each (node, topic) of `pairs`, shape (m, 2); repetitions count once.

        Raises ValueError for a number outside 0 .. nodes-1 or 0 .. topics-1.
        """
        array = np.asarray(pairs, np.int64).reshape(-1, 2)
        if array.size and (array.min() < 0 or array[:, 0].max() >= nodes or array[:, 1].max() >= topics):
            raise ValueError(f"a pair outside {nodes} nodes and {topics} topics")
        flat = np.unique(array[:, 0] * topics + array[:, 1]) if array.size else np.empty(0, np.int64)
        node, topic = (flat // topics, flat % topics) if array.size else (flat, flat)
        by_topic = np.argsort(topic, kind="stable")
        subscription = np.empty(len(flat), np.int32)
        subscription[by_topic] = np.arange(len(flat), dtype=np.int32)
        return Interest(
            topics_at=_offsets(node, nodes),
            topics_of=topic.astype(np.int32),
            subscription_of=subscription,
            nodes_at=_offsets(topic, topics),
            nodes_of=node[by_topic].astype(np.int32),
        )

    @staticmethod
    def from_sets(
        interests: Mapping[int, Iterable[int]] | Iterable[Iterable[int]], topics: int | None = None
    ) -> Interest:
        """Return the matrix of each node's topics. `topics` None: one more than the greatest topic."""
        rows = list(interests.values()) if isinstance(interests, Mapping) else list(interests)
        pairs = [(node, topic) for node, row in enumerate(rows) for topic in row]
        if topics is None:
            topics = 1 + max((topic for _, topic in pairs), default=-1)
        return Interest.from_pairs(np.array(pairs, np.int64).reshape(-1, 2), len(rows), topics)

    @staticmethod
    def uniform(nodes: int, topics: int, subscriptions: int, rng: np.random.Generator) -> Interest:
        """Return a matrix in which each node takes `subscriptions` different topics uniformly at random (section V).

        Raises ValueError if there are fewer topics.
        """
        if subscriptions > topics:
            raise ValueError(f"{subscriptions} different topics of {topics}")
        draws = rng.integers(np.arange(subscriptions), topics, size=(nodes, subscriptions))
        chosen = _distinct(draws, topics)
        pairs = np.stack([np.repeat(np.arange(nodes), subscriptions), chosen.ravel()], axis=1)
        return Interest.from_pairs(pairs, nodes, topics)


def _offsets(rows: NDArray[np.int64], count: int) -> Offsets:
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]).astype(np.int64)


@compiled
def _distinct(draws: NDArray[np.int64], topics: int) -> NDArray[np.int64]:
    """Return distinct topics for each row by Fisher-Yates shuffles, stopped early.

    ``draws[v, j]`` is uniform over j .. topics-1. The permutation is not restored between rows, because the next
    shuffle is uniform from any order.
    """
    order = np.arange(topics)
    chosen = np.empty_like(draws)
    for v in range(draws.shape[0]):
        for j in range(draws.shape[1]):
            k = draws[v, j]
            order[j], order[k] = order[k], order[j]
            chosen[v, j] = order[j]
    return chosen
