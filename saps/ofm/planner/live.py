"""Trees that live on: members join and leave, links fail and come back, and trees move a little to even out the load.

What SDNPS (2016, 4.3) does as "routing update" and Algorithm 3, with lengths of `balanced` in place of widest paths:
a joining member takes the cheapest path to the tree; a leaving one is pruned, and with it all that leads to nobody
else; the pieces of a broken tree are joined by cheapest paths, and what is left of it stays. When a link has come
back or demands have changed, trees are re-routed one by one, never more than a stated share of them in a minute, so
that the network does not swing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from saps.ofm.planner.balanced import Prices, lengths
from saps.ofm.planner.forest import identity, prune, root, unite
from saps.ofm.planner.graph import Demands, Flags, Graph, Ints, Offsets
from saps.ofm.planner.growth import grow, scratch
from saps.ofm.planner.moderation import Moderation
from saps.ofm.planner.trees import Trees
from saps.overlay.design.compiled import compiled

Topic = TypeVar("Topic", bound=Hashable)

SHARE = 0.05
"""Of all trees, how many may be re-routed in a minute without need. More: sooner even, more changes of tables."""
GAIN = 0.1
"""A tree is re-routed if that makes it cheaper by this share, at the prices of the moment. Lower: more changes."""


class NoPathError(Exception):
    """Some members cannot be joined by the edges that are alive and the nodes that are open."""


@dataclass(slots=True)
class _Session:
    members: dict[int, None]
    rate: float
    edges: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    closed: Flags | None = None
    """Nodes that must not be passed: a policy, or a full table."""


class LiveTrees(Generic[Topic]):
    """The trees in force and the loads they make. Trees are changed only by the methods; each gives what it changed."""

    def __init__(self, graph: Graph, *, share: float = SHARE, gain: float = GAIN, prices: Prices | None = None) -> None:
        self.graph = graph
        self.gain, self.prices = gain, prices or Prices()
        self.share, self._moderation = share, Moderation(share)
        self.load = np.zeros(graph.edges)
        self.alive = np.ones(graph.edges, np.bool_)
        self._sessions: dict[Topic, _Session] = {}
        self._on: list[dict[Topic, None]] = [{} for _ in range(graph.edges)]
        """The topics whose trees use each edge."""
        self._broken: dict[Topic, None] = {}
        """Topics whose trees are in pieces."""
        self._work = scratch(graph.nodes)
        self._open = np.zeros(graph.nodes, np.bool_)
        self._length = np.empty(graph.edges)

    @classmethod
    def of(cls, graph: Graph, demands: Demands, trees: Trees, *, share: float = SHARE) -> LiveTrees[int]:
        """A plan comes into force; topics go by their numbers."""
        live: LiveTrees[int] = LiveTrees(graph, share=share)
        for topic in range(demands.topics):
            members = dict.fromkeys(demands.nodes_of(topic).tolist())
            live._sessions[topic] = _Session(members, float(demands.rate[topic]))
            live._set(topic, trees.edges_of(topic))
        return live

    # -- what there is

    @property
    def topics(self) -> list[Topic]:
        """All topics, in the order they came."""
        return list(self._sessions)

    def edges_of(self, topic: Topic) -> Ints:
        """The tree of a topic."""
        return self._sessions[topic].edges

    def members_of(self, topic: Topic) -> list[int]:
        """The members of a topic, in the order they came."""
        return list(self._sessions[topic].members)

    @property
    def busiest(self) -> float:
        """The greatest utilisation of an edge that is alive."""
        return float((self.load / self.graph.capacity)[self.alive].max(initial=0.0))

    # -- topics and members

    def add(self, topic: Topic, members: Sequence[int], rate: float, closed: Flags | None = None) -> Ints:
        """A new topic; gives its tree. Raises `NoPathError`; then there is none."""
        session = _Session(dict.fromkeys(members), rate, closed=closed)
        edges = self._joined(session, [[node] for node in session.members])
        self._sessions[topic] = session
        self._set(topic, edges)
        return edges

    def remove(self, topic: Topic) -> None:
        """A topic is no more."""
        self._set(topic, np.empty(0, np.int32))
        self._broken.pop(topic, None)
        del self._sessions[topic]

    def join(self, topic: Topic, node: int) -> Ints:
        """A node joins; gives the edges that came. Raises `NoPathError`; then nothing has changed."""
        session = self._sessions[topic]
        if node in session.members:
            return np.empty(0, np.int32)
        if session.closed is not None and session.closed[node]:
            raise NoPathError
        inside = np.fromiter(session.members, np.int32)
        if len(session.edges):
            inside = np.unique(self.graph.ends[session.edges])
        branch = np.empty(0, np.int32)
        if len(inside) and node not in inside:
            branch = self._joined(session, [inside.tolist(), [node]])
        session.members[node] = None
        self._set(topic, np.concatenate([session.edges, branch]))
        return branch

    def leave(self, topic: Topic, node: int) -> Ints:
        """A node leaves; gives the edges that went."""
        session = self._sessions[topic]
        if node not in session.members:
            return np.empty(0, np.int32)
        del session.members[node]
        before = session.edges
        self._set(topic, _pruned(self.graph, before, np.fromiter(session.members, np.int32)))
        return np.setdiff1d(before, session.edges)

    def demand(self, topic: Topic, rate: float) -> None:
        """A topic takes another bandwidth from now on; its tree stays (see `even_out`)."""
        session = self._sessions[topic]
        self.load[session.edges] += rate - session.rate
        session.rate = rate

    # -- links

    def fail(self, edges: Iterable[int]) -> tuple[list[Topic], list[Topic]]:
        """Links have failed (Algorithm 3, lines 1-5): all trees over them are mended, the largest first. Gives those
        mended, and those that cannot be: what is left of their trees stays, in pieces."""
        failed = set(edges)
        hurt = dict.fromkeys(topic for edge in sorted(failed) for topic in self._on[edge])
        self.alive[list(failed)] = False
        mended: list[Topic] = []
        lost: list[Topic] = []
        for topic in sorted(hurt, key=lambda topic: -self._sessions[topic].rate):
            session = self._sessions[topic]
            self._set(topic, session.edges[self.alive[session.edges]])
        for topic in sorted(hurt, key=lambda topic: -self._sessions[topic].rate):
            (mended if self.mend(topic) else lost).append(topic)
        return mended, lost

    def recover(self, edges: Iterable[int]) -> list[Topic]:
        """Links are back (Algorithm 3, lines 6-8). Trees in pieces are mended, which are given; the others stay where
        they are until `even_out`."""
        self.alive[list(edges)] = True
        return [topic for topic in list(self._broken) if self.mend(topic)]

    def mend(self, topic: Topic) -> bool:
        """Joins the pieces of a tree; says whether it is whole now."""
        session = self._sessions[topic]
        members = np.fromiter(session.members, np.int32)
        self._set(topic, _pruned(self.graph, session.edges, members))
        at, nodes = pieces_of(self.graph, session.edges, members)
        pieces = [nodes[at[i] : at[i + 1]].tolist() for i in range(len(at) - 1)]
        try:
            found = self._joined(session, pieces)
        except NoPathError:
            self._broken[topic] = None
            return False
        self._broken.pop(topic, None)
        self._set(topic, _pruned(self.graph, np.concatenate([session.edges, found]), members))
        return True

    # -- mild moves

    def allowance(self, now: float) -> int:
        """How many trees may be re-routed now: at most the share of all, and at least one, in any minute."""
        return self._moderation.left(now, len(self._sessions))

    def even_out(self, now: float, *, tries: int = 100) -> list[Topic]:
        """Re-routes trees from the busiest edges where that is worth it, within the allowance; `now` in seconds. Gives
        the topics whose trees have moved. Call it every few seconds."""
        moved: list[Topic] = []
        tried: dict[Topic, None] = {}
        allowed = self.allowance(now)
        order = np.argsort(-self.load / self.graph.capacity, kind="stable")
        for edge in order.tolist():
            for topic in list(self._on[edge]):
                if len(moved) >= allowed or len(tried) >= tries:
                    return moved
                if topic not in tried:
                    tried[topic] = None
                    if self._reroute(topic):
                        self._moderation.moved(now)
                        moved.append(topic)
        return moved

    def _reroute(self, topic: Topic) -> bool:
        session = self._sessions[topic]
        before = session.edges
        self._set(topic, np.empty(0, np.int32))
        try:
            after = self._joined(session, [[node] for node in session.members])
        except NoPathError:
            self._set(topic, before)
            return False
        better = self._length[after].sum() < (1 - self.gain) * self._length[before].sum()
        self._set(topic, after if better else before)
        return bool(better)

    # -- within

    def _joined(self, session: _Session, groups: Sequence[Sequence[int]]) -> Ints:
        """Edges that join groups of nodes, at the prices of the moment, which are left in `_length`."""
        steepness = self.prices.last if self.busiest else 0.0
        lengths(self.graph, self.load, session.rate, max(self.busiest, 1e-300), steepness, self._length)
        self._length[~self.alive] = np.inf
        at = np.concatenate([[0], np.cumsum([len(group) for group in groups])]).astype(np.int64)
        nodes = np.array([node for group in groups for node in group], np.int32)
        closed = self._open if session.closed is None else session.closed
        count = grow(self.graph, self._length, closed, at, nodes, self._work)
        if count < 0 or closed[np.fromiter(session.members, np.int32)].any():
            raise NoPathError
        return self._work.out[:count].copy()

    def _set(self, topic: Topic, edges: Ints) -> None:
        session = self._sessions[topic]
        for edge in session.edges.tolist():
            self._on[edge].pop(topic, None)
        self.load[session.edges] -= session.rate
        session.edges = edges
        self.load[edges] += session.rate
        for edge in edges.tolist():
            self._on[edge][topic] = None


def _pruned(graph: Graph, edges: Ints, members: Ints) -> Ints:
    keep = np.zeros(graph.nodes, np.bool_)
    keep[members] = True
    left = edges.copy()
    return left[: prune(graph, left, len(left), keep, np.zeros(graph.nodes, np.int32))]


@compiled
def pieces_of(graph: Graph, edges: Ints, members: Ints) -> tuple[Offsets, Ints]:
    """The nodes of each connected piece of a tree, members without edges included, in compressed rows."""
    n = len(graph.at) - 1
    parent, seen = identity(n), np.zeros(n, np.bool_)
    for v in members:
        seen[v] = True
    for e in edges:
        unite(parent, graph.ends[e, 0], graph.ends[e, 1])
        seen[graph.ends[e, 0]] = seen[graph.ends[e, 1]] = True
    number, size, pieces = np.full(n, -1, np.int32), np.zeros(n, np.int64), 0
    for v in range(n):
        if seen[v]:
            r = root(parent, v)
            if number[r] < 0:
                number[r] = pieces
                pieces += 1
            size[number[r]] += 1
    at = np.zeros(pieces + 1, np.int64)
    for i in range(pieces):
        at[i + 1] = at[i] + size[i]
    nodes, filled = np.empty(at[pieces], np.int32), at.copy()
    for v in range(n):
        if seen[v]:
            piece = number[root(parent, v)]
            nodes[filled[piece]] = v
            filled[piece] += 1
    return at, nodes
