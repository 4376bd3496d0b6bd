"""The overlay that follows its nodes: invariants after every change, and the bounds of the change."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from research.overlay_designs.balanced_stars import centres
from research.overlay_designs.interest import Interest
from research.overlay_designs.two_level_trees import parents
from saps.overlay.design.live import Change, LiveOverlay, live

pytestmark = pytest.mark.slow

NODES = st.integers(0, 11)
TOPICS = st.integers(0, 4)


class Churn(RuleBasedStateMachine):
    """Nodes come, change their minds and go; a plain graph follows the changes that are reported."""

    @initialize(levels=st.sampled_from([1, 2]))
    def begin(self, levels: int) -> None:
        self.overlay: LiveOverlay[int, int] = LiveOverlay(levels)
        self.graph: nx.Graph[int] = nx.Graph()
        self.interests: dict[int, set[int]] = {}

    def follow(self, change: Change[int]) -> None:
        for edge in change.added:
            assert not self.graph.has_edge(*edge)
            self.graph.add_edge(*edge)
        for edge in change.removed:
            self.graph.remove_edge(*edge)

    @rule(node=NODES, topics=st.sets(TOPICS))
    def join(self, node: int, topics: set[int]) -> None:
        if node in self.interests:
            with pytest.raises(ValueError):
                self.overlay.join(node, topics)
            return
        change = self.overlay.join(node, topics)
        assert len(change.added) <= len(topics)
        assert change.removed == []
        self.interests[node] = topics
        self.graph.add_node(node)
        self.follow(change)

    @precondition(lambda self: self.interests)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(self.interests)))
        children = sum(len(self.overlay.trees[topic].children[node]) for topic in self.overlay.topics[node])
        change = self.overlay.leave(node)
        assert len(change.added) <= children
        assert {frozenset(edge) for edge in change.removed} == {frozenset(edge) for edge in self.graph.edges(node)}
        self.follow(change)
        self.graph.remove_node(node)
        del self.interests[node]

    @precondition(lambda self: self.interests)
    @rule(data=st.data(), topic=TOPICS)
    def subscribe(self, data: st.DataObject, topic: int) -> None:
        node = data.draw(st.sampled_from(sorted(self.interests)))
        change = self.overlay.subscribe(node, topic)
        assert len(change.added) <= (topic not in self.interests[node])
        assert change.removed == []
        self.interests[node] = self.interests[node] | {topic}
        self.follow(change)

    @precondition(lambda self: self.interests)
    @rule(data=st.data(), topic=TOPICS)
    def unsubscribe(self, data: st.DataObject, topic: int) -> None:
        node = data.draw(st.sampled_from(sorted(self.interests)))
        self.follow(self.overlay.unsubscribe(node, topic))
        self.interests[node] = self.interests[node] - {topic}

    @invariant()
    def topic_connected(self) -> None:
        if not hasattr(self, "overlay"):
            return
        assert {frozenset(link) for link in self.overlay.links()} == {frozenset(edge) for edge in self.graph.edges}
        for topic in range(5):
            members = [node for node, topics in self.interests.items() if topic in topics]
            if members:
                assert nx.diameter(self.graph.subgraph(members)) <= 2 * self.overlay.levels

    @invariant()
    def no_link_without_use(self) -> None:
        if not hasattr(self, "overlay"):
            return
        needed = {frozenset(edge) for tree in self.overlay.trees.values() for edge in tree.parent.items()}
        assert {frozenset(link) for link in self.overlay.links()} == needed


TestChurn = Churn.TestCase


@pytest.mark.parametrize("levels", [1, 2])
def test_a_designed_overlay_lives_on(levels: int) -> None:
    rng = np.random.default_rng(5)
    interest = Interest.uniform(60, 20, 4, rng)
    stars = levels == 1
    parent = np.repeat(centres(interest, rng), np.diff(interest.nodes_at)) if stars else parents(interest, rng)
    overlay = live(interest, parent, levels)
    assert len(set(map(frozenset, overlay.links()))) == len(
        {
            frozenset(edge)
            for edge in zip(parent.tolist(), interest.nodes_of.tolist(), strict=True)
            if edge[0] != edge[1]
        }
    )
    for node in range(0, 60, 2):
        overlay.leave(node)
    graph = nx.Graph(overlay.links())
    for topic in range(20):
        members = [node for node in interest.nodes_of_topic(topic).tolist() if node % 2]
        if len(members) > 1:
            assert nx.diameter(graph.subgraph(members)) <= 2 * levels


def test_a_deeper_design_is_refused() -> None:
    interest = Interest.from_sets([{0}, {0}, {0}])
    with pytest.raises(ValueError, match="deeper"):
        live(interest, np.array([0, 0, 1], np.int32), 1)


def test_levels_are_one_or_two() -> None:
    with pytest.raises(ValueError, match="levels"):
        LiveOverlay(3)
