"""The network as planners see it, and the demands of topics, as arrays that compiled loops take unchanged.

Nodes are switches or clusters, 0 .. n-1. Edges are the links or trunks between them, 0 .. m-1, undirected. Parallel
links are one edge with the sum of their capacities (SDNPS 2016, 3.4: trunks are aggregated).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
"""Numbers of nodes, edges or topics."""
Offsets = NDArray[np.int64]
"""Offsets of the rows of a compressed matrix, and of its end."""
Floats = NDArray[np.float64]
"""Capacities, loads, lengths."""
Flags = NDArray[np.bool_]


class Graph(NamedTuple):
    """A network. Row v, ``at[v]`` to ``at[v + 1]``, holds the edges of node v and the nodes at their other ends."""

    at: Offsets
    to: Ints
    edge: Ints
    ends: Ints
    """Shape (m, 2): both ends of each edge."""
    capacity: Floats
    """c(e) in units of bandwidth (SDNPS 2016, 4.1); greater than 0."""

    @property
    def nodes(self) -> int:
        """Number of nodes, n."""
        return len(self.at) - 1

    @property
    def edges(self) -> int:
        """Number of edges, m."""
        return len(self.capacity)

    @classmethod
    def of(cls, nodes: int, links: Iterable[tuple[int, int]], capacity: Sequence[float] | float = 1.0) -> Graph:
        """Return a network of links in any order. Raises `ValueError` for a loop, an unknown node, two links between
        the same nodes, or a capacity that is not greater than 0."""
        ends = np.array(sorted((min(link), max(link)) for link in links), np.int32).reshape(-1, 2)
        order = np.arange(len(ends))
        if not isinstance(capacity, float | int):
            given = [(min(link), max(link)) for link in links]
            order = np.array(sorted(range(len(given)), key=given.__getitem__), np.int64)
            capacity = list(np.asarray(capacity, np.float64)[order])
        if len(ends) and (ends.min() < 0 or ends.max() >= nodes or (ends[:, 0] == ends[:, 1]).any()):
            raise ValueError("a link must join two different nodes of the graph")
        if (np.diff(ends.astype(np.int64) @ np.array([nodes, 1])) == 0).any():
            raise ValueError("parallel links: sum them up into one")
        capacities = np.full(len(ends), capacity, np.float64)
        if not (capacities > 0).all():
            raise ValueError("a capacity must be greater than 0")
        tails, heads = np.concatenate([ends, ends[:, ::-1]]).T
        edge = np.tile(np.arange(len(ends), dtype=np.int32), 2)
        rows = np.lexsort((heads, tails))
        at = np.concatenate([[0], np.cumsum(np.bincount(tails, minlength=nodes))]).astype(np.int64)
        return cls(at, np.ascontiguousarray(heads[rows]), np.ascontiguousarray(edge[rows]), ends, capacities)


class Demands(NamedTuple):
    """The demands of topics: the sessions (PubInt_t, SubInt_t, Pubpr_t) of SDNPS 2016, 4.1."""

    at: Offsets
    members: Ints
    """Nodes of each topic, in compressed rows, each node once; publishing nodes come first."""
    senders: Ints
    """Number of members of each topic that publish, |PubInt_t|."""
    rate: Floats
    """Bandwidth of a topic on every edge of its tree, the sum of Eq. (6)."""
    father: Ints
    """Topic one level up in the topic tree; -1 at the first level. A father has a lower number than its children."""

    @property
    def topics(self) -> int:
        """Number of topics, |T|."""
        return len(self.rate)

    def nodes_of(self, topic: int) -> Ints:
        """Return the members of a topic."""
        return self.members[self.at[topic] : self.at[topic + 1]]

    @classmethod
    def of(
        cls,
        members: Sequence[Sequence[int]],
        rate: Sequence[float] | float = 1.0,
        senders: Sequence[int] | int = 1,
        father: Sequence[int] | int = -1,
    ) -> Demands:
        """Return demands made from lists by topic. Raises `ValueError` if a topic has a member twice, or a father with
        a number that is not lower than its own."""
        if any(len(set(nodes)) != len(nodes) for nodes in members):
            raise ValueError("a topic has a member twice")
        at = np.concatenate([[0], np.cumsum([len(nodes) for nodes in members])]).astype(np.int64)
        flat = np.array([node for nodes in members for node in nodes], np.int32)
        fathers = np.full(len(members), father, np.int32)
        if (fathers >= np.arange(len(members))).any() or (fathers < -1).any():
            raise ValueError("a parent must have a lower number than its child")
        sizes = np.diff(at)
        return cls(
            at,
            flat,
            np.minimum(np.full(len(members), senders), sizes).astype(np.int32),
            np.full(len(members), rate, np.float64),
            fathers,
        )

    @classmethod
    def uniform(
        cls, nodes: int, topics: int, size: int, rng: np.random.Generator, *, share_of_senders: float = 0.2
    ) -> Demands:
        """Return demands with `size` random members for each topic; all rates are 1."""
        members = np.argsort(rng.random((topics, nodes)), axis=1)[:, :size] if topics * nodes <= 10**7 else None
        rows = members if members is not None else [rng.choice(nodes, size, replace=False) for _ in range(topics)]
        return cls.of([row.tolist() for row in rows], 1.0, max(1, round(share_of_senders * size)))
