"""Stateless delivery on random networks: each receiver once, nobody else, no loop, no forged sender."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from saps.ofm.flows.plan import ours
from saps.ofm.flows.reconcile import difference
from saps.ofm.flows.tables import ETH_IPV6, Tables, mac
from saps.ofm.network.topology import BrokerAddress, Port, Topology
from saps.ofm.stateless.address import BITS, Receivers, bits_of, read
from saps.ofm.stateless.decode import decode
from saps.ofm.stateless.planes import behind, crossed, lay_planes
from saps.ofm.stateless.tables import Layout, TooFewTablesError, assign, rollout, tables
from saps.ofm.switch.packets import Packet
from saps.ofm.trees.tree import UnreachableError
from tests.ofm.fabric import Fabric
from tests.ofm.networks import OUTSIDER, Network, broker_at, came_out, networks


@given(st.integers(0, 255), st.integers(0, 255), st.sets(st.integers(0, BITS - 1)))
def test_an_address_says_whom_it_names(number: int, plane: int, positions: set[int]) -> None:
    receivers = Receivers(number, plane, bits_of(positions))
    assert read(receivers.address) == receivers
    assert receivers.positions == sorted(positions)
    assert str(receivers.address).startswith("ff15:")


def test_the_address_of_the_design_is_written_as_in_the_documents() -> None:
    assert Receivers(2, 1, bits_of([0, 5, 95])).address == IPv6Address("ff15:201:8000::21")


@pytest.mark.parametrize("wrong", [Receivers(256, 0, 0), Receivers(0, -1, 0), Receivers(0, 0, 1 << BITS)])
def test_what_does_not_fit_is_no_address(wrong: Receivers) -> None:
    with pytest.raises(ValueError, match="no address"):
        _ = wrong.address


@pytest.mark.parametrize("other", ["ff18::1", "fd77::1", "ff14:ffff::"])
def test_other_addresses_name_nobody(other: str) -> None:
    assert read(IPv6Address(other)) is None


@st.composite
def layouts(draw: st.DrawFn, network: Network) -> Layout:
    """Brokers in one to three sets at any positions."""
    sets: list[list[BrokerAddress | None]] = [[None] * BITS for _ in range(draw(st.integers(1, 3)))]
    places = draw(
        st.lists(
            st.tuples(st.integers(0, len(sets) - 1), st.integers(0, BITS - 1)),
            min_size=len(network.brokers), max_size=len(network.brokers), unique=True,
        )
    )  # fmt: skip
    for broker, (number, position) in zip(network.brokers, places, strict=True):
        sets[number][position] = broker
    planes = lay_planes(network.topology, network.brokers, draw(st.integers(1, 4)))
    return Layout(tuple(map(tuple, sets)), tuple(planes))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Network, Layout]:
    network = draw(networks(six=True))
    return network, draw(layouts(network))


def switches_with(topology: Topology, made: dict[int, Tables]) -> Fabric:
    """Their own forwarding floods, so that nothing leaks unnoticed."""
    fabric = Fabric(topology, normal=lambda dpid: lambda port, packet: (1, 2, 3, OUTSIDER))
    for dpid, switch in fabric.switches.items():
        switch.apply(difference(Tables(), made.get(dpid, Tables())))
    return fabric


def packet_from(broker: BrokerAddress, receivers: Receivers) -> Packet:
    address = int(receivers.address)
    return Packet(
        eth_src=mac(broker.mac),
        eth_dst=0x3333 << 32 | address & 0xFFFFFFFF,
        ip_src=int(IPv6Address(broker.ip)),
        ip_dst=address,
        udp_src=broker.port,
        udp_dst=7401,
        payload=b"hello",
        eth_type=ETH_IPV6,
    )


def delivered(packet: Packet, layout: Layout, to: Iterable[BrokerAddress]) -> Counter[tuple[Port, Packet]]:
    return Counter(
        (
            layout.planes[0].brokers[broker],
            structs.replace(packet, eth_dst=mac(broker.mac), ip_dst=int(IPv6Address(broker.ip)), udp_dst=broker.port),
        )
        for broker in to
    )


@given(cases(), st.data())
def test_each_receiver_gets_it_once_and_nobody_else_anything(case: tuple[Network, Layout], data: st.DataObject) -> None:
    network, layout = case
    fabric = switches_with(network.topology, tables(layout))
    for _ in range(3):
        sender = data.draw(st.sampled_from(network.brokers))
        number = data.draw(st.integers(0, len(layout.sets) - 1))
        plane = data.draw(st.integers(0, len(layout.planes) - 1))
        positions = data.draw(st.sets(st.integers(0, BITS - 1), max_size=5)) | data.draw(
            st.sets(st.sampled_from([at for at, one in enumerate(layout.sets[number]) if one not in (None, sender)]))
            if any(one not in (None, sender) for one in layout.sets[number])
            else st.just(set())
        )
        named = [one for at in positions if (one := layout.sets[number][at]) not in (None, sender)]
        receivers = Receivers(number, plane, bits_of(at for at in positions if layout.sets[number][at] != sender))
        packet = packet_from(sender, receivers)
        outcome = fabric.send(network.place(sender), packet)
        assert came_out(outcome) == delivered(packet, layout, [one for one in named if one is not None])
        assert not outcome.to_controller
        # Each link carries it at most once, and just those that lead to someone named.
        expected = crossed(
            layout.planes[plane], layout.bits_at(number, layout.planes[plane]), network.place(sender).dpid,
            receivers.bits,
        )  # fmt: skip
        assert sorted(min(pair) for pair in outcome.crossed) == sorted(link.a for link in expected)
        assert set(outcome.crossed.values()) <= {1}
        told = decode(layout, (), receivers, sender.ip)
        assert [Port(int(link.a, 16), link.a_port) for link in told.links] == sorted(link.a for link in expected)
        assert {row.broker for row in told.receivers} - {None} == set(named)


@given(cases(), st.data())
def test_who_is_no_broker_or_says_to_be_another_reaches_nobody(
    case: tuple[Network, Layout], data: st.DataObject
) -> None:
    network, layout = case
    fabric = switches_with(network.topology, tables(layout))
    forged = data.draw(st.sampled_from(network.brokers))
    receivers = Receivers(data.draw(st.integers(0, 3)), data.draw(st.integers(0, 4)), (1 << BITS) - 1)
    packet = packet_from(forged, receivers)
    places = {Port(dpid, OUTSIDER) for dpid in network.topology.switches}
    places |= {place for broker in network.brokers if (place := network.place(broker)) != network.place(forged)}
    for place in sorted(places):
        outcome = fabric.send(place, packet)
        assert not outcome.receiver
        assert not outcome.crossed
    for other in (structs.replace(packet, udp_src=1), structs.replace(packet, ip_src=1)):
        assert not fabric.send(network.place(forged), other).receiver


@given(cases(), st.data())
def test_a_broker_addresses_nobody_whom_it_may_not(case: tuple[Network, Layout], data: st.DataObject) -> None:
    network, layout = case
    sender, other = data.draw(st.sampled_from(network.brokers)), data.draw(st.sampled_from(network.brokers))
    layout = replace(layout, barred={sender: frozenset({other})})
    fabric = switches_with(network.topology, tables(layout))
    number, _ = layout.receivers[other]
    packet = packet_from(sender, Receivers(number, 0, (1 << BITS) - 1))
    assert not fabric.send(network.place(sender), packet).receiver
    rest = [one for one in layout.sets[number] if one not in (None, sender, other)]
    bits = bits_of(layout.receivers[one][1] for one in rest if one is not None)
    packet = packet_from(sender, Receivers(number, 0, bits))
    found = came_out(fabric.send(network.place(sender), packet))
    assert found == delivered(packet, layout, [one for one in rest if one is not None])


@given(networks(six=True), st.integers(1, 8))
def test_planes_are_trees_over_all_brokers_and_no_two_are_the_same(network: Network, most: int) -> None:
    planes = lay_planes(network.topology, network.brokers, most)
    assert 1 <= len(planes) <= most
    assert len({plane.links for plane in planes}) == len(planes)
    for plane in planes:
        plane.validate()
        assert set(plane.brokers) == set(network.brokers)
    assert planes == lay_planes(network.topology, network.brokers[::-1], most)


@given(networks(six=True), st.data())
def test_a_link_that_is_needed_by_no_tree_is_in_not_all_planes(network: Network, data: st.DataObject) -> None:
    """After the failure of any link without which the brokers are still joined, some plane is whole."""
    planes = lay_planes(network.topology, network.brokers, 8)
    for link in network.topology.links:
        without = network.topology.copy()
        without.port_status(*link.a, up=False)
        try:
            lay_planes(without, network.brokers, 1)
        except UnreachableError:
            continue
        assert any(link not in plane.links for plane in planes), link


def test_a_leaf_spine_network_has_a_plane_for_each_spine() -> None:
    topology = Topology()
    brokers = []
    for leaf in range(8):
        for spine in range(4):
            topology.link_up(Port(100 + leaf, spine + 1), Port(1 + spine, leaf + 1))
        brokers.append(broker_at(leaf, 6000, six=True))
        topology.attach(brokers[-1], 100 + leaf, 9)
    planes = lay_planes(topology, brokers, 8)
    assert [plane.switches & {1, 2, 3, 4} for plane in planes[:4]] == [{1}, {2}, {3}, {4}]
    assert all(len(plane.links) == 8 for plane in planes[:4])


def test_planes_over_brokers_in_another_piece_of_the_network_are_laid_anew() -> None:
    topology, brokers = Topology(), [broker_at(machine, 6000, six=True) for machine in range(5)]
    for a, b in ((1, 2), (3, 4), (4, 5)):
        topology.link_up(Port(a, 2), Port(b, 1))
    for dpid, broker in enumerate(brokers, 1):
        topology.attach(broker, dpid, 9)
    [before] = lay_planes(topology, brokers[:2])
    assert lay_planes(topology, brokers[2:], before=[before]) == lay_planes(topology, brokers[2:])


@given(cases(), st.data())
def test_while_planes_change_nothing_loops_or_arrives_twice(case: tuple[Network, Layout], data: st.DataObject) -> None:
    """Between any two layouts, the switches of a stage in any order, packets sent after each switch has changed."""
    network, before = case
    gone = data.draw(st.sets(st.sampled_from(network.brokers), max_size=len(network.brokers) - 1))
    changed = network.topology.copy()
    if links := network.topology.links:
        changed.port_status(*data.draw(st.sampled_from(links)).a, up=False)
    stay = [broker for broker in network.brokers if broker not in gone]
    try:
        planes = tuple(lay_planes(changed, stay, 3))
    except UnreachableError:
        planes = tuple(lay_planes(network.topology, stay, 1))
    after = Layout(assign(before.sets, stay), planes)
    fabric = switches_with(network.topology, tables(before))
    sender = data.draw(st.sampled_from(stay))
    for stage in rollout(before, after):
        for dpid in data.draw(st.permutations(sorted(stage))):
            switch = fabric.switches[dpid]
            for change in difference(ours(switch.tables), stage[dpid]):
                switch.apply([change])
            for plane in range(len(before.planes)):
                packet = packet_from(sender, Receivers(0, plane, (1 << BITS) - 1))
                outcome = fabric.send(network.place(sender), packet)
                assert set(came_out(outcome).values()) <= {1}
    assert {dpid: switch.tables for dpid, switch in fabric.switches.items() if switch.tables.flows} == {
        dpid: made for dpid, made in tables(after).items() if made.flows
    }


def test_a_switch_with_few_tables_is_told_of() -> None:
    topology = Topology()
    topology.switch_up(1)
    brokers = [broker_at(machine, 6000, six=True) for machine in range(9)]
    for number, broker in enumerate(brokers, 1):
        topology.attach(broker, 1, number)
    layout = Layout((tuple(brokers),), tuple(lay_planes(topology, brokers)))
    assert len(tables(layout, available={1: 11})[1].groups) == 9
    with pytest.raises(TooFewTablesError, match="needs 11 tables and has 10"):
        tables(layout, available={1: 10})


def test_who_has_a_position_keeps_it() -> None:
    brokers = [broker_at(machine, 6000, six=True) for machine in range(200)]
    first = assign((), brokers[:150])
    assert [len(members) for members in first] == [96, 54]
    second = assign(first, [*brokers[5:150], *brokers[150:160]])
    assert second[0][:5] == tuple(brokers[150:155])
    assert second[0][5:] == first[0][5:]
    assert second[1] == (*first[1], *brokers[155:160])


def test_what_can_be_no_layout() -> None:
    four, six = broker_at(1, 6000), broker_at(1, 6000, six=True)
    for sets in (((four,),), ((six,), (six,)), ((None,) * 97,)):
        with pytest.raises(ValueError, match=r"no IPv6 address|one set"):
            Layout(sets, ())


@given(cases())
def test_behind_the_two_ends_of_a_link_lie_all_bits(case: tuple[Network, Layout]) -> None:
    _, layout = case
    for plane in layout.planes:
        bits = layout.bits_at(0, plane)
        every = bits_of(at for at, broker in enumerate(layout.sets[0]) if broker is not None)
        lies = behind(plane, bits)
        for link in plane.links:
            assert lies[link.a] ^ lies[link.b] == every
            assert not lies[link.a] & lies[link.b]
