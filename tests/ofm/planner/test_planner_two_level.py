"""Trees on two levels: each cluster is entered once, by border switches, and is a matter of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saps.config import SettingError
from saps.ofm.controller.driver.settings import ControllerSettings
from saps.ofm.controller.program import planners
from saps.ofm.network.topology import Link, Port, Topology
from saps.ofm.network.traffic import Traffic
from saps.ofm.network.traffic_files_io import TrafficFiles
from saps.ofm.planner.two_level import TwoLevelPlanner
from saps.ofm.trees.growth import reachable
from saps.ofm.trees.tree import Tree, UnreachableError
from tests.ofm.networks import Network, broker_at, networks


def sites(count: int, inside: int = 3, trunks: int = 2) -> tuple[Network, dict[int, str]]:
    """Clusters in a ring, each a ring of switches, with parallel trunks between neighbours; a broker at each switch."""
    topology, cluster_of = Topology(), dict[int, str]()
    number = {(site, i): 10 * (site + 1) + i for site in range(count) for i in range(inside)}
    used = dict.fromkeys(number.values(), 0)

    def port(dpid: int) -> Port:
        used[dpid] += 1
        return Port(dpid, used[dpid])

    for (site, _), dpid in number.items():
        topology.switch_up(dpid, [*range(1, 9), 90])
        cluster_of[dpid] = f"site{site}"
    for site in range(count):
        for i in range(inside):
            topology.link_up(port(number[site, i]), port(number[site, (i + 1) % inside]))
        for _ in range(trunks):
            topology.link_up(port(number[site, 0]), port(number[(site + 1) % count, 1]))
    brokers = [broker_at(dpid, 5000) for dpid in number.values()]
    for broker, dpid in zip(brokers, number.values(), strict=True):
        topology.attach(broker, dpid, 90)
    return Network(topology, brokers), cluster_of


def crossing(tree: Tree, cluster_of: dict[int, str]) -> list[Link]:
    return [link for link in tree.links if len({cluster_of[end.dpid] for end in link}) > 1]


def check_levels(tree: Tree, cluster_of: dict[int, str]) -> None:
    """Contracted to clusters it is a tree, and what is inside a cluster is connected."""
    tree.validate()
    clusters = {cluster_of[dpid] for dpid in tree.switches}
    assert len(crossing(tree, cluster_of)) == len(clusters) - 1
    for cluster in clusters:
        switches = {dpid for dpid in tree.switches if cluster_of[dpid] == cluster}
        own = [link for link in tree.links if {cluster_of[end.dpid] for end in link} == {cluster}]
        assert len(own) == len(switches) - 1


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_tree_enters_each_cluster_once_however_it_grows_and_shrinks(data: st.DataObject) -> None:
    network, cluster_of = sites(data.draw(st.integers(2, 5)), data.draw(st.integers(2, 4)), 2)
    everything = TwoLevelPlanner(cluster_of)
    planner = everything.for_topic("a")
    chosen = st.lists(st.sampled_from(network.brokers), min_size=1, max_size=5, unique=True)
    members = data.draw(chosen)
    tree = planner.plan(network.topology, members)
    check_levels(tree, cluster_of)
    for broker in data.draw(chosen):
        grown = planner.join(network.topology, tree, broker)
        assert grown.links >= tree.links
        check_levels(grown, cluster_of)
        tree = grown
    everything.adopted("a", tree)
    if crossing(tree, cluster_of):
        network.topology.link_down(*data.draw(st.sampled_from(sorted(crossing(tree, cluster_of)))))
        mended = planner.mend(network.topology, tree)
        check_levels(mended, cluster_of)
        assert mended.intact(network.topology)
    tree.without(members[:1]).validate()


@settings(max_examples=25, deadline=None)
@given(network=networks(least=2), data=st.data())
def test_whatever_the_clusters_are_there_is_a_tree_where_there_can_be_one(
    network: Network, data: st.DataObject
) -> None:
    """Clusters that are in pieces, or have no border towards each other, included; and trees of another planner."""
    names = st.sampled_from(["a", "b", "c", None])
    drawn = {dpid: data.draw(names) for dpid in network.topology.switches}
    planner = TwoLevelPlanner({dpid: name for dpid, name in drawn.items() if name}).for_topic("t")
    members = network.members(data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=5)))
    tree = planner.plan(network.topology, members)
    tree.validate()
    assert set(tree.brokers) == set(members)
    other = TwoLevelPlanner({}).for_topic("t").plan(network.topology, members)
    joining = network.members([data.draw(st.integers(0, 50))])[0]
    for before in (tree, other):
        joined = planner.join(network.topology, before, joining)
        joined.validate()
        assert joined.links >= before.links
        if before.links:
            broken = network.topology.copy()
            broken.link_down(*data.draw(st.sampled_from(sorted(before.links))))
            if reachable(broken, before.brokers) < before.brokers.keys():
                with pytest.raises(UnreachableError):
                    planner.mend(broken, before)
            else:
                mended = planner.mend(broken, before)
                mended.validate()
                assert mended.intact(broken)


def test_topics_between_two_clusters_are_split_over_their_parallel_trunks() -> None:
    network, cluster_of = sites(2, 3, 3)
    planner, used = TwoLevelPlanner(cluster_of), list[Link]()
    ends = [network.brokers[0], network.brokers[-1]]
    for topic in "abcdef":
        tree = planner.for_topic(topic).plan(network.topology, ends)
        planner.adopted(topic, tree)
        used += crossing(tree, cluster_of)
    assert len(used) == 6
    assert all(used.count(link) == 1 for link in used)


def test_clusters_are_a_setting(tmp_path: Path) -> None:
    file = tmp_path / "clusters.json"
    file.write_text(json.dumps({f"{1:016x}": "west"}))
    chosen = ControllerSettings(clusters=file, planner="balanced")
    assert isinstance(planners(chosen, TrafficFiles.of(chosen), Traffic()), TwoLevelPlanner)
    plain = ControllerSettings(clusters=file)
    with pytest.raises(SettingError, match="balanced"):
        planners(plain, TrafficFiles.of(plain), Traffic())
    file.write_text("[]")
    with pytest.raises(SettingError, match="clusters"):
        TrafficFiles.of(chosen)
