"""Every planner on random networks: trees that span their members, within budgets, and no better than the bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.planner_bounds import load_bound, node_bound, tree_bound
from saps.ofm.planner.balanced import balanced
from saps.ofm.planner.graph import Demands, Graph
from saps.ofm.planner.registry import ALGORITHMS
from saps.ofm.planner.trees import Trees, entries, figures, loads, validate
from tests.ofm.planner.planner_cases import cases, optimum, random_lengths

pytestmark = pytest.mark.slow

KEEPS_ITS_FATHERS = "SDNPS"


@pytest.mark.parametrize("name", ALGORITHMS)
@settings(max_examples=40, deadline=None)
@given(case=cases())
def test_every_tree_is_a_tree_over_its_members(name: str, case: tuple[Graph, Demands]) -> None:
    graph, demands = case
    trees = ALGORITHMS[name].design(graph, demands)
    validate(graph, demands, trees, exact=name != KEEPS_ITS_FATHERS)
    again = ALGORITHMS[name].design(graph, demands)
    assert [row.tolist() for row in trees] == [row.tolist() for row in again]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_members_that_cannot_be_reached_leave_a_topic_without_links(name: str) -> None:
    graph = Graph.of(4, [(0, 1), (2, 3)])
    demands = Demands.of([[0, 3], [2, 3], [1]])
    trees = ALGORITHMS[name].design(graph, demands)
    assert [trees.edges_of(topic).tolist() for topic in range(3)] == [[], [1], []]


@settings(max_examples=60, deadline=None)
@given(case=cases(), data=st.data())
def test_budgets_and_policies_hold(case: tuple[Graph, Demands], data: st.DataObject) -> None:
    graph, demands = case
    budget = np.array(data.draw(st.lists(st.integers(0, 6), min_size=graph.nodes, max_size=graph.nodes)), np.int32)
    closed = data.draw(
        st.sets(st.tuples(st.integers(0, demands.topics - 1), st.integers(0, graph.nodes - 1)), max_size=8)
    )
    forbidden = np.zeros((demands.topics, graph.nodes), np.bool_)
    for at in closed:
        forbidden[at] = True
    trees = balanced(graph, demands, passes=data.draw(st.integers(0, 3)), budget=budget, forbidden=forbidden)
    placed = [t for t in range(demands.topics) if len(trees.edges_of(t))]
    kept = Demands.of([demands.nodes_of(t).tolist() for t in placed])
    rows = Trees.of([trees.edges_of(t).tolist() for t in placed])
    validate(graph, kept, rows)
    assert (entries(graph, kept, rows) <= budget).all()
    for topic in placed:
        assert not forbidden[topic, np.unique(graph.ends[trees.edges_of(topic)])].any()


def test_a_policy_is_walked_around_and_what_cannot_be_is_refused() -> None:
    graph = Graph.of(4, [(0, 1), (1, 3), (0, 2), (2, 3)])
    demands = Demands.of([[0, 3], [0, 3], [0, 1, 3], [0, 3]])
    forbidden = np.zeros((4, 4), np.bool_)
    forbidden[[0, 2, 3, 3], [1, 1, 1, 2]] = True
    trees = balanced(graph, demands, forbidden=forbidden)
    assert sorted(trees.edges_of(0).tolist()) == [1, 3]
    assert len(trees.edges_of(1)) == 2
    assert [len(trees.edges_of(topic)) for topic in (2, 3)] == [0, 0]


@settings(max_examples=40, deadline=None)
@given(case=cases(most=9), seed=st.integers(0, 1000))
def test_no_plan_is_better_than_the_bounds(case: tuple[Graph, Demands], seed: int) -> None:
    graph, demands = case
    plans = [algorithm.design(graph, demands) for algorithm in ALGORITHMS.values()]
    busiest = [figures(graph, demands, trees).busiest for trees in plans]
    bound = load_bound(graph, demands, loads(graph, demands, plans[-1]), np.random.default_rng(seed))
    assert node_bound(graph, demands) <= bound + 1e-9
    assert bound <= min(busiest) * (1 + 1e-9) + 1e-9
    length = random_lengths(graph, seed)
    assert tree_bound(graph, demands.nodes_of(0), length) <= optimum(graph, demands.nodes_of(0), length) + 1e-6


@settings(max_examples=30, deadline=None)
@given(case=cases())
def test_figures_are_what_they_say(case: tuple[Graph, Demands]) -> None:
    import networkx as nx

    graph, demands = case
    trees = ALGORITHMS["balanced"].design(graph, demands)
    load = np.zeros(graph.edges)
    across = []
    for topic in range(demands.topics):
        edges = trees.edges_of(topic)
        load[edges] += demands.rate[topic]
        across.append(nx.diameter(nx.Graph(graph.ends[edges].tolist())) if len(edges) else 0)
    result = figures(graph, demands, trees)
    assert result.residual == pytest.approx((graph.capacity - load).min())
    assert result.busiest == pytest.approx((load / graph.capacity).max())
    assert result.diameter == pytest.approx(np.mean(across))


@pytest.mark.parametrize(
    ("links", "capacity"), [([(0, 0)], 1.0), ([(0, 5)], 1.0), ([(0, 1), (1, 0)], 1.0), ([(0, 1)], 0.0)]
)
def test_a_network_that_is_none_is_refused(links: list[tuple[int, int]], capacity: float) -> None:
    with pytest.raises(ValueError):
        Graph.of(3, links, capacity)
