"""Trees: really trees, near the least cost, changed by one branch at a time, and never over what has failed."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.ofm.network.topology import Link, Port, Topology
from saps.ofm.trees.tree import SharedTree, Tree, UnreachableError
from tests.ofm.networks import Network, broker_at, networks


def least_cost(network: Network, costs: dict[Link, int]) -> float:
    """Of all trees over the brokers, by trying every set of switches in between."""
    graph: nx.Graph[Any] = nx.Graph()
    graph.add_nodes_from(network.topology.switches)
    for link, cost in costs.items():
        a, b = link.a.dpid, link.b.dpid
        graph.add_edge(a, b, weight=min(cost, graph.get_edge_data(a, b, {}).get("weight", cost)))
    homes = {network.place(broker).dpid for broker in network.brokers}
    others = sorted(set(graph) - homes)
    found: list[float] = []
    for size in range(len(others) + 1):
        for between in combinations(others, size):
            part = graph.subgraph(homes | set(between))
            if nx.is_connected(part):
                found.append(nx.minimum_spanning_tree(part).size(weight="weight"))
    return min(found)


@given(st.data(), networks())
def test_a_tree_joins_all_brokers_at_less_than_twice_the_least_cost(data: st.DataObject, network: Network) -> None:
    costs = {link: data.draw(st.integers(1, 9)) for link in network.topology.links}
    tree = SharedTree(costs.__getitem__).plan(network.topology, network.brokers)
    tree.validate()
    assert tree.brokers == {broker: network.place(broker) for broker in network.brokers}
    homes = len({place.dpid for place in tree.brokers.values()})
    least = least_cost(network, costs)
    assert least <= sum(costs[link] for link in tree.links) <= 2 * (1 - 1 / homes) * least


@given(st.data(), networks())
def test_joining_adds_a_branch_and_leaving_prunes_one(data: st.DataObject, network: Network) -> None:
    planner, tree = SharedTree(), Tree()
    for broker in data.draw(st.lists(st.sampled_from(network.brokers), max_size=20)):
        before = tree
        if broker in tree.brokers:
            tree = tree.without([broker])
            assert tree.links <= before.links
            assert tree.brokers.keys() == before.brokers.keys() - {broker}
        else:
            tree = planner.join(network.topology, tree, broker)
            assert tree.links >= before.links
            assert tree.brokers.keys() == before.brokers.keys() | {broker}
        tree.validate()
    assert tree.without(tree.brokers) == Tree()


@given(st.data(), networks())
def test_a_mended_tree_avoids_what_failed_and_keeps_what_it_can(data: st.DataObject, network: Network) -> None:
    topology, planner = network.topology, SharedTree()
    tree = planner.plan(topology, network.brokers)
    assert tree.intact(topology)
    assert planner.mend(topology, tree) == tree
    for link in data.draw(st.lists(st.sampled_from(sorted(tree.links)), max_size=2) if tree.links else st.just([])):
        topology.port_status(*data.draw(st.sampled_from(link)), up=False)
    graph: nx.Graph[Any] = nx.Graph((link.a.dpid, link.b.dpid) for link in topology.links)
    graph.add_nodes_from(topology.switches)
    inside = nx.node_connected_component(graph, network.place(min(network.brokers)).dpid)
    lost = [broker for broker in sorted(tree.brokers) if network.place(broker).dpid not in inside]
    if lost:
        with pytest.raises(UnreachableError) as caught:
            planner.mend(topology, tree)
        assert caught.value.brokers == tuple(lost)
        return
    mended = planner.mend(topology, tree)
    mended.validate()
    assert mended.intact(topology)
    assert mended.brokers == tree.brokers
    if tree.intact(topology):
        assert mended == tree


@given(networks(), st.integers())
def test_pieces_are_those_of_the_graph_and_the_core_is_the_one_with_most_brokers(network: Network, number: int) -> None:
    tree = SharedTree().plan(network.topology, network.brokers)
    links = sorted(tree.links)
    left = Tree(frozenset(link for place, link in enumerate(links) if not number >> place & 1), tree.brokers)
    graph: nx.Graph[Any] = nx.Graph((link.a.dpid, link.b.dpid) for link in left.links)
    graph.add_nodes_from(left.switches)
    assert sorted(map(sorted, left.pieces)) == sorted(map(sorted, nx.connected_components(graph)))
    assert left.connected is (len(left.pieces) < 2)
    at = [sum(place.dpid in piece for place in left.brokers.values()) for piece in left.pieces]
    assert left.core.connected
    assert len(left.core.brokers) == max(at, default=0)
    assert left.core.links == {link for link in left.links if left.core.switches & {link.a.dpid, link.b.dpid}}


def test_a_broker_that_moved_takes_its_branch_along() -> None:
    topology = Topology()
    for dpid in (1, 2, 3):
        topology.switch_up(dpid)
    topology.link_up(Port(1, 1), Port(2, 1))
    topology.link_up(Port(1, 2), Port(3, 1))
    fixed, mover = broker_at(1, 6000), broker_at(2, 6001)
    topology.attach(fixed, 1, 9)
    topology.attach(mover, 2, 9)
    tree = SharedTree().plan(topology, [fixed, mover])
    topology.attach(mover, 3, 9)
    assert not tree.intact(topology)
    moved = SharedTree().join(topology, tree, mover)
    moved.validate()
    assert moved == SharedTree().mend(topology, tree)
    assert moved.switches == {1, 3}


def test_mending_leaves_alone_what_works_even_if_there_is_a_shorter_way() -> None:
    topology = Topology()
    for dpid in (1, 2, 3):
        topology.switch_up(dpid)
    topology.link_up(Port(1, 1), Port(2, 1))
    topology.link_up(Port(2, 2), Port(3, 1))
    brokers = [broker_at(1, 6000), broker_at(2, 6001)]
    topology.attach(brokers[0], 1, 9)
    topology.attach(brokers[1], 3, 9)
    tree = SharedTree().plan(topology, brokers)
    topology.link_up(Port(1, 2), Port(3, 2))
    assert SharedTree().mend(topology, tree) == tree
    assert SharedTree().plan(topology, brokers).links == {Link.of(Port(1, 2), Port(3, 2))}


def test_brokers_out_of_reach_are_named() -> None:
    topology = Topology()
    topology.switch_up(1)
    topology.switch_up(2)
    here, there, nowhere = broker_at(1, 6000), broker_at(2, 6001), broker_at(3, 6002)
    topology.attach(here, 1, 1)
    topology.attach(there, 2, 1)
    with pytest.raises(UnreachableError, match=r"no path to <10\.0\.0\.4, 02:00:00:00:00:03, 6002>$"):
        SharedTree().plan(topology, [here, nowhere])
    with pytest.raises(UnreachableError) as caught:
        SharedTree().plan(topology, [here, there])
    assert caught.value.brokers == (there,)
    with pytest.raises(UnreachableError) as caught:
        SharedTree().join(topology, SharedTree().plan(topology, [here]), there)
    assert caught.value.brokers == (there,)


@pytest.mark.parametrize(
    ("links", "places"),
    [
        ([(1, 2), (2, 3), (3, 1)], [1, 2, 3]),  # a circle
        ([(1, 2), (3, 4)], [1, 2, 3, 4]),  # two pieces
        ([(1, 2)], [1]),  # a bare leaf
    ],
)
def test_what_is_no_tree_is_found_out(links: list[tuple[int, int]], places: list[int]) -> None:
    made = frozenset(Link.of(Port(a, b), Port(b, a)) for a, b in links)
    with pytest.raises(AssertionError):
        Tree(made, {broker_at(dpid, 6000): Port(dpid, 99) for dpid in places}).validate()
