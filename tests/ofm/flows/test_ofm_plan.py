"""Plans: on random networks every packet reaches every other member once, comes back once, and goes nowhere else."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.flows.plan import BROKER, COOKIE, Loopback, Ofm, Service, ours, plan
from saps.ofm.flows.tables import IN_PORT, Flow, Group, Match, Meter, Output, SetQueue, Tables
from saps.ofm.network.topology import Port
from saps.ofm.trees.tree import SharedTree, Tree
from tests.ofm.networks import (
    ADDRESS,
    BASELINE,
    OUTSIDER,
    broker_at,
    came_out,
    fabric_with,
    networks,
    ofms,
    sent_by,
    subsets,
    wanted,
)

LOOPBACK = Loopback("10.0.255.254", "02:ff:00:00:00:01")


@given(st.data(), st.booleans())
def test_every_packet_reaches_every_other_member_once_and_comes_back_once(data: st.DataObject, six: bool) -> None:
    network, ofm = data.draw(networks(six=six)), data.draw(ofms(six))
    made = plan(ofm, SharedTree().plan(network.topology, network.brokers), data.draw(subsets(network)))
    fabric = fabric_with(network.topology, made)
    for sender in network.brokers:
        packet = sent_by(sender, ofm)
        outcome = fabric.send(network.place(sender), packet)
        assert came_out(outcome) == wanted(made, sender, packet)
        assert outcome.to_controller == []
        # Each link of the tree is crossed once, in one direction; no other is.
        assert Counter(frozenset(ends) for ends in outcome.crossed.elements()) == Counter(
            frozenset(link) for link in made.tree.links
        )


@given(st.data())
def test_a_packet_from_anywhere_else_reaches_nobody(data: st.DataObject) -> None:
    network = data.draw(networks())
    ofm = structs.replace(data.draw(ofms()), per_port=True)
    members = network.members(data.draw(st.lists(st.integers(0, 7), max_size=3)))
    fabric = fabric_with(network.topology, plan(ofm, SharedTree().plan(network.topology, members)))
    for broker in network.brokers:
        packet = sent_by(broker, ofm)
        places = [Port(dpid, OUTSIDER) for dpid in network.topology.switches]
        if broker not in members:
            places.append(network.place(broker))
        for place in places:
            outcome = fabric.send(place, packet)
            assert (outcome.receiver, outcome.crossed) == ([], Counter())


@given(st.data())
def test_two_ofms_do_not_touch_each_other(data: st.DataObject) -> None:
    network = data.draw(networks())
    plans = []
    for number in (1, 2):
        ofm = Ofm(OfmAddress("239.77.0.9", 5000 + number), number, LOOPBACK)
        members = network.members(data.draw(st.lists(st.integers(0, 7), min_size=1)))
        plans.append(plan(ofm, SharedTree().plan(network.topology, members)))
    fabric = fabric_with(network.topology, *plans)
    for made in plans:
        for sender, place in made.tree.brokers.items():
            packet = sent_by(sender, made.ofm)
            assert came_out(fabric.send(place, packet)) == wanted(made, sender, packet)


@given(st.data())
def test_planning_does_not_depend_on_the_order_of_the_broker_list(data: st.DataObject) -> None:
    network, ofm = data.draw(networks()), data.draw(ofms())
    again = data.draw(st.permutations(network.brokers))
    assert plan(ofm, SharedTree().plan(network.topology, network.brokers)) == plan(
        ofm, SharedTree().plan(network.topology.copy(), again)
    )


@given(st.data())
def test_a_plan_costs_a_flow_per_link_end_and_broker_and_a_bucket_per_link_end_and_receiver(
    data: st.DataObject,
) -> None:
    network, ofm = data.draw(networks()), data.draw(ofms())
    tree = SharedTree().plan(network.topology, network.brokers)
    made = plan(ofm, tree, data.draw(subsets(network)))
    ends = {dpid: len(ports) for dpid, ports in tree.ports().items()}
    trunk_flows = sum(ends.values()) if ofm.per_port else sum(1 for count in ends.values() if count)
    assert made.entries == trunk_flows + len(tree.brokers)
    assert made.buckets == sum(ends.values()) + len(tree.brokers.keys() - made.silent)
    assert all(len(tables.groups) == 1 for tables in made.tables.values())


def test_a_priority_topic_is_marked_and_queued_on_its_whole_way() -> None:
    one, two = broker_at(1, 6000), broker_at(2, 6001)
    tree = Tree(frozenset(), {one: Port(1, 1), two: Port(1, 2)})
    ofm = Ofm(ADDRESS, 0, LOOPBACK, Service(dscp=46, queue=3))
    made = plan(ofm, tree)
    assert all(SetQueue(3) in flow.actions for flow in made.tables[1].flows.values())


def test_loopback_goes_out_of_the_reserved_port() -> None:
    one = broker_at(1, 6000)
    made = plan(Ofm(ADDRESS, 0, LOOPBACK), Tree(frozenset(), {one: Port(1, 1)}))
    (flow,) = made.tables[1].flows.values()
    assert flow.actions[-1] == Output(IN_PORT)


def test_a_broker_of_the_other_ip_version_is_refused() -> None:
    with pytest.raises(ValueError, match="another IP version"):
        plan(Ofm(ADDRESS, 0, LOOPBACK), Tree(frozenset(), {broker_at(1, 6000, six=True): Port(1, 1)}))
    with pytest.raises(ValueError, match="two IP versions"):
        Ofm(ADDRESS, 0, Loopback("fd00::1", "02:ff:00:00:00:01"))


@given(st.data())
def test_ours_is_what_was_planned_and_nothing_else(data: st.DataObject) -> None:
    network, ofm = data.draw(networks()), data.draw(ofms())
    made = plan(ofm, SharedTree().plan(network.topology, network.brokers))
    foreign = Tables.of(
        [
            Flow(BROKER, Match.of(udp_dst=1), (), cookie=7),
            Flow(BROKER, Match.of(udp_dst=2), (), cookie=COOKIE << 1 & (1 << 64) - 1),
        ],
        [Group(7, ())],
        [Meter(1, 5), Meter(0x7FFF_FFFF, 5), Meter(0xF000_0000, 5)],
    )
    for tables in made.tables.values():
        assert ours(foreign.with_(BASELINE).with_(tables)) == BASELINE.with_(tables)
