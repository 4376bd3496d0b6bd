"""Parallel links in the simulated network: each sender by one of them, all of them used, none missed if it fails."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from saps.ofm.controller.events import Intended
from saps.ofm.flows.tables import GroupKind
from saps.ofm.network.parallel import links_between, narrowed, shares, weights, widened
from saps.ofm.network.topology import BrokerAddress, Link, Port, Topology
from saps.ofm.planner.fitted import NetworkPlanner
from saps.ofm.trees.tree import SharedTree, Tree, pair_of
from tests.ofm.controller.worlds import World, rules
from tests.ofm.networks import Network, broker_at, networks, sent_by

TOPIC = "alert/fire"


def bridged(parallel: int, brokers: int) -> Network:
    """Two switches, so many links between them, and so many brokers on each."""
    topology = Topology()
    for number in range(1, parallel + 1):
        topology.link_up(Port(1, number), Port(2, number))
    made = [broker_at(number, 7000) for number in range(2 * brokers)]
    for number, broker in enumerate(made):
        topology.attach(broker, 1 + number % 2, 100 + number)
    return Network(topology, made)


def begun(network: Network, brokers: list[BrokerAddress], failover: bool = False) -> World:
    """A controller that spreads, or fails over, and a constructed OFM."""
    world = World(network, rules(spread=True, failover=failover))
    world.appear()
    world.settle()
    world.run()
    world.intent(TOPIC, brokers)
    world.run()
    world.check_truth()
    return world


def crossed(world: World, sender: BrokerAddress) -> Counter[Link]:
    """The links that a packet of this sender crosses."""
    plan = world.machine.records[TOPIC].plan
    assert plan is not None
    outcome = world.fabric.send(world.places[sender], sent_by(sender, plan.ofm))
    return Counter({Link.of(*ends): count for ends, count in outcome.crossed.items()})


def test_each_sender_keeps_to_one_link_and_together_they_use_all() -> None:
    network = bridged(3, 12)
    world = begun(network, network.brokers)
    ways = {sender: crossed(world, sender) for sender in network.brokers}
    assert all(sum(way.values()) == 1 for way in ways.values())
    assert {link for way in ways.values() for link in way} == set(network.topology.links)
    assert all(crossed(world, sender) == way for sender, way in ways.items())


def test_a_link_that_fails_is_left_out_before_the_controller_hears_of_it() -> None:
    network = bridged(2, 6)
    world = begun(network, network.brokers)
    ways = {sender: crossed(world, sender) for sender in network.brokers}
    first, second = network.topology.links
    applied = world.applied
    world.truth.port_status(*first.a, up=False)  # nobody tells the controller
    for sender, way in ways.items():
        assert crossed(world, sender) == Counter({second: 1}), way
        assert set(world.delivered(TOPIC, sender).values()) == {1}
    assert world.applied == applied
    world.check_truth()
    # It hears, and nobody is muted; when the link is back it is used again, by the same senders.
    for up in (False, True):
        world.set_link(first, up)
        while world.todo:
            world.step(min(world.todo))
            assert set(world.machine.records[TOPIC].state.brokers) == set(network.brokers)
            world.check_truth()
    assert {sender: crossed(world, sender) for sender in network.brokers} == ways


@given(network=networks(least=4), data=st.data())
def test_a_widened_tree_has_all_links_of_its_pairs_and_is_narrow_again(network: Network, data: st.DataObject) -> None:
    topology = network.topology
    members = data.draw(st.lists(st.sampled_from(network.brokers), min_size=1))
    tree = SharedTree().plan(topology, members)
    wide = widened(topology, tree)
    wide.validate()
    assert wide.intact(topology)
    assert wide.pairs.keys() == tree.pairs.keys()
    for pair, links in wide.pairs.items():
        assert (
            links == set(links_between(topology, pair))
            if pair in wide.anchors
            else len(links_between(topology, pair)) == 1
        )
    assert narrowed(topology, wide).pairs.keys() == tree.pairs.keys()
    assert widened(topology, narrowed(topology, wide), wide) == wide
    for pair, links in wide.pairs.items():
        assert abs(sum(shares(wide, lambda link: 1.0 + link.a.port)[link] for link in links) - 1) < 1e-9, pair
    gone = data.draw(st.frozensets(st.sampled_from(sorted(wide.brokers))))
    assert wide.without(gone).pairs.keys() == tree.without(gone).pairs.keys()


def test_with_failover_all_go_by_the_first_link_that_is_up_and_a_restarted_controller_changes_nothing() -> None:
    network = bridged(2, 3)
    world = begun(network, network.brokers, failover=True)
    first, second = network.topology.links
    for up, used in ((True, first), (False, second), (True, first)):
        world.truth.port_status(*first.a, up=up)  # nobody tells the controller
        world.truth.port_status(*first.b, up=up)
        assert all(crossed(world, sender) == Counter({used: 1}) for sender in network.brokers)
    [intent], applied = [record.intent for record in world.machine.records.values()], world.applied
    world.start(None)
    world.hear(Intended(TOPIC, intent))
    for dpid in world.truth.switches:
        world.connect(dpid)
    for event in world.discover():
        world.hear(event)
    world.run()
    world.settle()
    world.run()
    assert world.applied == applied
    world.check_truth()


def test_weights_are_the_capacities_in_small_whole_numbers() -> None:
    network = bridged(3, 1)
    links = network.topology.links
    tree = Tree(frozenset(links), spread=frozenset(links[:1]))
    for speeds, wanted in (
        ((1e9, 1e9, 1e9), {}),
        ((1e9, 10e9, 1e9), {links[1]: 10}),
        ((1e9, 2.5e9, 1e9), {links[0]: 2, links[1]: 5, links[2]: 2}),
        ((100e9, 1e8, 100e9), {links[0]: 100, links[2]: 100}),
    ):
        capacity = dict(zip(links, speeds, strict=True))
        assert dict(weights(tree, capacity.__getitem__)) == wanted


def test_the_planner_counts_a_share_of_the_traffic_on_each_link() -> None:
    network = bridged(2, 1)
    first, second = network.topology.links
    capacity = {first: 3.0, second: 1.0}
    planner = NetworkPlanner("balanced", capacity=capacity.__getitem__, rate=lambda topic: 2.0, spread=True)
    tree = planner.for_topic("a").plan(network.topology, network.brokers)
    wide = widened(network.topology, tree)
    planner.adopted("a", wide)
    assert [planner.load(link, but="b") for link in (first, second)] == [1.5, 0.5]
    assert planner.crowded() == ["a"]
    assert planner.better("a", network.topology) is None
    planner.adopted("a", None)
    assert [planner.load(link, but="b") for link in (first, second)] == [0, 0]


def test_a_tree_laid_over_one_link_stays_there_and_topics_are_not_spread_unless_that_is_wanted() -> None:
    network = bridged(2, 1)
    world = World(network, rules())
    world.appear()
    world.settle()
    world.intent(TOPIC, network.brokers)
    world.run()
    record = world.machine.records[TOPIC]
    assert record.plan is not None
    assert len(record.plan.tree.links) == 1
    kept = widened(network.topology, record.plan.tree, record.plan.tree)
    assert kept == record.plan.tree
    assert all(pair_of(link) == (1, 2) for link in kept.links)
    kinds = {group.kind for tables in record.plan.tables.values() for group in tables.groups.values()}
    assert kinds == {GroupKind.ALL}
