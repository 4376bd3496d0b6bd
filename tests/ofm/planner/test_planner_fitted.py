"""The planners as the controller uses them: the contract of `saps.ofm.trees.tree.Planner`, and what they are chosen
for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saps.ofm.network.topology import Link, Port, Topology
from saps.ofm.planner.aggregate import Aggregate
from saps.ofm.planner.fitted import CHOICES, NetworkPlanner
from saps.ofm.trees.growth import reachable
from saps.ofm.trees.tree import Tree, UnreachableError
from tests.ofm.networks import Network, broker_at, networks

pytestmark = pytest.mark.slow  # machine code of the planners

FITTED = [choice for choice in CHOICES if choice != "steiner"]


def ring(size: int, parallel: int = 1) -> Network:
    """Switches 1, 2, ... in a ring, `parallel` links between neighbours, a broker at each."""
    topology = Topology()
    for dpid in range(1, size + 1):
        topology.switch_up(dpid, [90, *range(1, 2 * parallel + 1)])
    for dpid in range(1, size + 1):
        for i in range(parallel):
            topology.link_up(Port(dpid, 1 + i), Port(dpid % size + 1, 1 + parallel + i))
    brokers = [broker_at(dpid, 5000) for dpid in range(1, size + 1)]
    for dpid, broker in enumerate(brokers, start=1):
        topology.attach(broker, dpid, 90)
    return Network(topology, brokers)


@pytest.mark.parametrize("choice", FITTED)
@settings(max_examples=25, deadline=None)
@given(network=networks(least=2), data=st.data())
def test_trees_grow_shrink_and_mend_as_the_controller_expects(
    choice: str, network: Network, data: st.DataObject
) -> None:
    topology, all_planners = network.topology, NetworkPlanner(choice)  # type: ignore[arg-type]
    for topic in "ab":
        planner = all_planners.for_topic(topic)
        members = network.members(data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=5)))
        tree = planner.plan(topology, members)
        assert set(tree.brokers) == set(members)
        assert tree == planner.plan(topology, members)
        joining = network.members([data.draw(st.integers(0, 50))])[0]
        joined = planner.join(topology, tree, joining)
        assert joined.links >= tree.links
        left = joined.without(members[:1])
        assert left.links <= joined.links
        for found in (tree, joined, left):
            found.validate()
            assert found.intact(topology)
        all_planners.adopted(topic, left)
        if left.links:
            broken = topology.copy()
            broken.link_down(*data.draw(st.sampled_from(sorted(left.links))))
            if reachable(broken, left.brokers.keys()) < left.brokers.keys():
                with pytest.raises(UnreachableError):
                    planner.mend(broken, left)
            else:
                mended = planner.mend(broken, left)
                mended.validate()
                assert mended.intact(broken)
                assert mended.brokers == left.brokers


def test_balanced_topics_go_both_ways_round_a_ring_and_over_all_parallel_links() -> None:
    network = ring(4, parallel=2)
    planners, used = NetworkPlanner("balanced"), list[frozenset[Link]]()
    for topic in "abcd":
        tree = planners.for_topic(topic).plan(network.topology, [network.brokers[0], network.brokers[2]])
        planners.adopted(topic, tree)
        used.append(tree.links)
    assert len(frozenset().union(*used)) == sum(map(len, used)) == 8


def test_what_is_no_more_is_no_load() -> None:
    network = ring(4)
    planners = NetworkPlanner("balanced")
    ends = [network.brokers[0], network.brokers[2]]
    first = planners.for_topic("a").plan(network.topology, ends)
    planners.adopted("a", first)
    second = planners.for_topic("b").plan(network.topology, ends)
    assert second.links.isdisjoint(first.links)
    planners.adopted("a", None)
    assert planners.for_topic("b").plan(network.topology, ends) == first


@pytest.mark.parametrize("choice", FITTED)
def test_a_switch_to_be_avoided_is_not_passed(choice: str) -> None:
    network = ring(4)
    planners = NetworkPlanner(choice, avoid=lambda topic: {2})  # type: ignore[arg-type]
    planner = planners.for_topic("a")
    tree = planner.plan(network.topology, [network.brokers[0], network.brokers[2]])
    assert tree.switches == {1, 3, 4}
    with pytest.raises(UnreachableError):
        planner.join(network.topology, tree, network.brokers[1])


@pytest.mark.parametrize("choice", FITTED)
def test_brokers_apart_are_named(choice: str) -> None:
    network = ring(4)
    planner = NetworkPlanner(choice).for_topic("a")  # type: ignore[arg-type]
    for link in [link for link in network.topology.links if 3 in (link.a.dpid, link.b.dpid)]:
        network.topology.link_down(*link)
    with pytest.raises(UnreachableError) as error:
        planner.plan(network.topology, network.brokers)
    assert error.value.brokers == (network.brokers[2],)
    assert planner.plan(network.topology, network.brokers[:2]).links
    assert planner.plan(network.topology, []) == Tree()


def test_clusters_are_nodes_and_trunks_are_summed() -> None:
    network = ring(4, parallel=3)
    whole = Aggregate.of(network.topology, lambda link: 10.0, {1: "west", 2: "west", 3: "east", 4: "east"})
    assert whole.names == ("east", "west")
    assert whole.graph.capacity.tolist() == [60.0]
    assert len(whole.trunks[0]) == 6
    assert {whole.names[node] for node in whole.node_of.values()} == {"east", "west"}
