"""Trees that live on: whatever happens, they are trees over their members, and loads are what they carry."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from saps.ofm.planner.balanced import balanced
from saps.ofm.planner.graph import Demands, Graph
from saps.ofm.planner.instances import random_network
from saps.ofm.planner.live import LiveTrees, NoPathError
from saps.ofm.planner.moderation import MINUTE
from saps.ofm.planner.trees import Trees, validate


class LiveMachine(RuleBasedStateMachine):
    """Members, links and time at random."""

    @initialize(seed=st.integers(0, 10**6), nodes=st.integers(3, 12), share=st.sampled_from([0.2, 0.5]))
    def start(self, seed: int, nodes: int, share: float) -> None:
        rng = np.random.default_rng(seed)
        self.graph = random_network(nodes, min(2 * nodes, nodes * (nodes - 1) // 2), rng)
        demands = Demands.uniform(nodes, 8, min(3, nodes), rng)
        self.live = LiveTrees.of(self.graph, demands, balanced(self.graph, demands), share=share)
        self.members = {topic: set(demands.nodes_of(topic).tolist()) for topic in range(8)}
        self.dead: set[int] = set()
        self.now = 0.0
        self.moves: list[float] = []

    @rule(topic=st.integers(0, 7), node=st.integers(0, 11))
    def join(self, topic: int, node: int) -> None:
        node %= self.graph.nodes
        before = set(self.live.edges_of(topic).tolist())
        try:
            branch = self.live.join(topic, node)
        except NoPathError:
            assert set(self.live.edges_of(topic).tolist()) == before
            return
        self.members[topic].add(node)
        assert set(self.live.edges_of(topic).tolist()) == before | set(branch.tolist())

    @rule(topic=st.integers(0, 7), pick=st.integers(0, 11))
    def leave(self, topic: int, pick: int) -> None:
        if self.members[topic]:
            node = sorted(self.members[topic])[pick % len(self.members[topic])]
            before = set(self.live.edges_of(topic).tolist())
            gone = self.live.leave(topic, node)
            self.members[topic].remove(node)
            assert set(self.live.edges_of(topic).tolist()) == before - set(gone.tolist())

    @rule(picks=st.lists(st.integers(0, 100), min_size=1, max_size=3))
    def fail(self, picks: list[int]) -> None:
        failed = {pick % self.graph.edges for pick in picks}
        before = {topic: set(self.live.edges_of(topic).tolist()) for topic in self.members}
        mended, lost = self.live.fail(failed)
        self.dead |= failed
        assert set(mended) | set(lost) == {topic for topic, edges in before.items() if edges & failed}

    @rule()
    def recover(self) -> None:
        self.live.recover(self.dead)
        self.dead.clear()
        for topic in self.members:
            self.check(topic)

    @rule(later=st.floats(0, 40))
    def even_out(self, later: float) -> None:
        self.now += later
        moved = self.live.even_out(self.now)
        self.moves += [self.now] * len(moved)
        recent = [at for at in self.moves if at > self.now - MINUTE]
        assert len(recent) <= max(1, int(self.live.share * len(self.members)))

    def check(self, topic: int) -> None:
        demands = Demands.of([sorted(self.members[topic])])
        validate(self.graph, demands, Trees.of([self.live.edges_of(topic).tolist()]))

    @invariant()
    def trees_are_trees(self) -> None:
        load = np.zeros(self.graph.edges)
        network = nx.Graph((a, b) for edge, (a, b) in enumerate(self.graph.ends.tolist()) if edge not in self.dead)
        network.add_nodes_from(range(self.graph.nodes))
        for topic, members in self.members.items():
            edges = self.live.edges_of(topic)
            load[edges] += 1
            assert not self.dead & set(edges.tolist())
            assert set(self.live.members_of(topic)) == members
            if len({min(nx.node_connected_component(network, node)) for node in members}) <= 1:
                self.check(topic)
        assert self.live.load == pytest.approx(load)


TestLive = LiveMachine.TestCase
TestLive.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def test_what_comes_back_is_used_little_by_little() -> None:
    """Two ways between two nodes: when one is back, trees move over, a share a minute, until both carry half."""
    graph = Graph.of(4, [(0, 1), (1, 3), (0, 2), (2, 3)])
    live: LiveTrees[int] = LiveTrees(graph, share=0.1)
    live.fail([0])
    for topic in range(40):
        live.add(topic, [0, 3], 1.0)
    assert live.busiest == 40
    live.recover([0])
    steps = [len(live.even_out(minute * MINUTE)) for minute in range(12)]
    assert steps == [4, 4, 4, 4, 4, 0, 0, 0, 0, 0, 0, 0]
    assert live.busiest == 20


def test_a_demand_that_grows_is_evened_out() -> None:
    graph = Graph.of(4, [(0, 1), (1, 3), (0, 2), (2, 3)])
    live: LiveTrees[str] = LiveTrees(graph, share=1.0)
    for topic in "abcd":
        live.add(topic, [0, 3], 1.0)
    assert live.busiest == 2
    live.demand("a", 3.0)
    assert live.busiest == 4
    live.even_out(0.0)
    assert live.busiest == 3
    live.remove("a")
    assert live.topics == ["b", "c", "d"]
    assert live.load.sum() == 6


def test_a_node_that_must_not_be_passed_is_not() -> None:
    graph = Graph.of(4, [(0, 1), (1, 3), (0, 2), (2, 3)])
    live: LiveTrees[str] = LiveTrees(graph)
    closed = np.array([False, True, False, False])
    for topic in "abc":
        assert sorted(live.add(topic, [0, 3], 1.0, closed).tolist()) == [1, 3]
    with pytest.raises(NoPathError):
        live.join("a", 1)
    mended, lost = live.fail([3])
    assert (mended, lost) == ([], ["a", "b", "c"])
    assert live.recover([3]) == ["a", "b", "c"]
