"""Each planner beside networkx, or beside the optimum, on small networks."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networkx.algorithms.approximation import steiner_tree

from research.planner_instances import random_network
from saps.ofm.planner.frugal import frugal_tree
from saps.ofm.planner.graph import Demands, Floats, Graph, Ints
from saps.ofm.planner.sdnps import sdnps
from saps.ofm.planner.shortest import mehlhorn, shortest_paths, takahashi_matsuyama
from tests.ofm.planner.planner_cases import cases, net, optimum, random_lengths

pytestmark = pytest.mark.slow

Case = tuple[Graph, Demands]
LENGTHS = st.integers(0, 10**6)


def numbers(network: nx.Graph[int], path: list[int]) -> set[int]:
    return {network.edges[a, b]["number"] for a, b in itertools.pairwise(path)}


def width(graph: Graph, edges: Ints) -> float:
    return float(graph.capacity[edges].min(initial=np.inf))


@settings(max_examples=60, deadline=None)
@given(case=cases(), seed=LENGTHS)
def test_shortest_paths_are_those_of_dijkstra(case: Case, seed: int) -> None:
    graph, demands = case
    length = random_lengths(graph, seed)
    trees, network = shortest_paths(graph, demands, length), net(graph, length)
    for topic in range(demands.topics):
        first, *others = demands.nodes_of(topic).tolist()
        paths = [numbers(network, nx.dijkstra_path(network, first, node)) for node in others]
        assert set(trees.edges_of(topic).tolist()) == set().union(*paths)


@settings(max_examples=60, deadline=None)
@given(case=cases(), seed=LENGTHS)
def test_takahashi_matsuyama_is_a_new_search_for_each_member(case: Case, seed: int) -> None:
    graph, demands = case
    length = random_lengths(graph, seed)
    trees, network = takahashi_matsuyama(graph, demands, length), net(graph, length)
    for topic in range(demands.topics):
        inside, missing = {int(demands.nodes_of(topic)[0])}, set(demands.nodes_of(topic)[1:].tolist())
        edges: set[int] = set()
        while missing := missing - inside:
            found = [nx.multi_source_dijkstra(network, inside, target) for target in sorted(missing)]
            path: list[int] = min(found)[1]  # type: ignore[assignment]
            edges |= numbers(network, path)
            inside |= set(path)
        assert set(trees.edges_of(topic).tolist()) == edges


@settings(max_examples=60, deadline=None)
@given(case=cases(most=9), seed=LENGTHS)
def test_mehlhorn_costs_no_more_than_the_spanning_tree_of_distances(case: Case, seed: int) -> None:
    graph, demands = case
    length = random_lengths(graph, seed)
    trees, network = mehlhorn(graph, demands, length), net(graph, length)
    distance = dict(nx.all_pairs_dijkstra_path_length(network))
    for topic in range(demands.topics):
        members = demands.nodes_of(topic).tolist()
        closure: nx.Graph[int] = nx.Graph()
        closure.add_nodes_from(members)
        closure.add_weighted_edges_from((a, b, distance[a][b]) for a in members for b in members if a < b)
        cost = length[trees.edges_of(topic)].sum()
        assert cost <= nx.minimum_spanning_tree(closure).size("weight") + 1e-9
        assert cost <= 2 * (1 - 1 / len(members)) * optimum(graph, members, length) + 1e-9


@settings(max_examples=60, deadline=None)
@given(case=cases(most=9), seed=LENGTHS)
def test_cost_first_is_the_optimum_of_few_members_and_near_it_of_more(case: Case, seed: int) -> None:
    graph, demands = case
    length = random_lengths(graph, seed)
    for topic in range(demands.topics):
        members = demands.nodes_of(topic)
        best = optimum(graph, members, length)
        for exact in (64, 0):
            tree = frugal_tree(graph, members, length, exact=exact)
            assert tree is not None
            cost = float(length[tree].sum())
            assert cost == pytest.approx(best) if exact else cost <= 1.05 * best + 1e-9


def test_local_search_stays_within_five_percent_where_trees_are_larger() -> None:
    for case in range(30):
        rng = np.random.default_rng([7, case])
        graph = random_network(40, 80, rng)
        length, members = rng.uniform(1, 10, graph.edges), rng.choice(40, 8, replace=False).astype(np.int32)
        costs = [float(length[tree].sum()) for exact in (0, 64) if (tree := _tree(graph, members, length, exact)).any()]
        assert costs[0] <= 1.05 * costs[1], case


def _tree(graph: Graph, members: Ints, length: Floats, exact: int) -> Ints:
    tree = frugal_tree(graph, members, length, exact=exact)
    assert tree is not None
    return tree


@settings(max_examples=60, deadline=None)
@given(case=cases(), as_printed=st.booleans())
def test_sdnps_takes_widest_ways(case: Case, as_printed: bool) -> None:
    """The narrowest edge of the first topic's tree is as wide as that of any tree over its members can be; as printed,
    the tree is a part of the maximum spanning tree, whatever the sources."""
    graph, demands = case
    trees = sdnps(graph, demands, as_printed=as_printed)
    network = net(graph, -graph.capacity)
    spanning = nx.minimum_spanning_tree(network)
    members = demands.nodes_of(0).tolist()
    ways = [numbers(network, nx.shortest_path(spanning, members[0], node)) for node in members]
    widest = np.array(sorted(set().union(*ways)), np.int32)
    if as_printed:
        assert trees.edges_of(0).tolist() == [edge for edge in trees.edges_of(0) if edge in widest]
        assert len(trees.edges_of(0)) == len(widest)
    else:
        assert width(graph, trees.edges_of(0)) == width(graph, widest)


@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_a_child_holds_its_fathers_tree_as_printed_and_only_what_it_needs_when_mended(case: Case) -> None:
    graph, demands = case
    printed = sdnps(graph, demands, as_printed=True)
    for topic, father in enumerate(demands.father):
        if father >= 0:
            assert set(printed.edges_of(father).tolist()) <= set(printed.edges_of(topic).tolist())


def test_mehlhorns_trees_have_no_more_edges_than_those_of_the_textbook() -> None:
    """Where many paths are equally long, what counts is that the paths' nodes are spanned anew and pruned."""
    ours = textbook = 0
    for seed in range(12):
        network = nx.barabasi_albert_graph(150, 2, seed=seed)
        members = np.random.default_rng(seed).permutation(150)[:18].tolist()
        trees = mehlhorn(Graph.of(150, network.edges), Demands.of([members]))
        chosen = trees.edges_of(0)
        tree: nx.Graph[int] = nx.Graph(Graph.of(150, network.edges).ends[chosen].tolist())
        assert nx.is_tree(tree)
        assert {node for node in tree if tree.degree(node) == 1} <= set(members) <= set(tree)
        ours += len(chosen)
        textbook += steiner_tree(network, members, method="mehlhorn").number_of_edges()
    assert ours <= textbook
