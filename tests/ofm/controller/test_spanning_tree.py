"""The controller keeps the switches' own forwarding free of loops: over learning switches and random networks."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import permutations

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_

from saps.ofm.controller.coded_pool import Coding
from saps.ofm.controller.saved import Saver
from saps.ofm.flows.plan import CLOSED
from saps.ofm.flows.tables import ETH_IPV4, ETH_IPV6, mac
from saps.ofm.network.topology import Port
from saps.ofm.switch.learning import Learning
from saps.ofm.switch.packets import Packet
from tests.ofm.controller.worlds import LOOPBACK, World, rules
from tests.ofm.networks import OUTSIDER, Network, came_out, networks

BROADCAST = 0xFFFFFFFFFFFF
ARP, RARP = 0x0806, 0x8035
SOLICITATION = Packet(2, 0x3333FF000001, 1, 0xFF02 << 112 | 0x1FF000001, 0, 0, eth_type=ETH_IPV6, ip_proto=58)
ALL_HEAR = [
    Packet(2, BROADCAST, 0, 0, 0, 0, eth_type=ARP),
    Packet(2, BROADCAST, 1, 0xFFFFFFFF, 67, 68, eth_type=ETH_IPV4),
    SOLICITATION,
]
"""Packets that all hosts get: each kind has an entry of its own at a closed port."""


def world_of(network: Network, *, coded: bool = False) -> World:
    """Switches that learn, and flood over all links, with a controller that closes loops."""
    chosen = rules(spanning_tree=True)
    if coded:
        chosen = replace(chosen, loopback=with_(LOOPBACK, ip="fd00::ffff"), coding=Coding())

    def normal(dpid: int) -> Learning:
        ends = {end for link in network.topology.links for end in link} | set(map(network.place, network.brokers))
        return Learning({OUTSIDER, *(end.port for end in ends if end.dpid == dpid)})

    return World(network, chosen, normal=normal)


def begin(world: World) -> None:
    world.appear()
    world.run()
    world.settle()
    world.run()


def pieces(world: World) -> dict[int, set[int]]:
    return {
        dpid: {other for other in world.truth.switches if world.truth.piece(other) == world.truth.piece(dpid)}
        for dpid in world.truth.switches
    }


def check(world: World) -> None:
    """Whatever a host sends to all comes once to each host that can be reached."""
    hosts = set(world.places.values()) | {Port(dpid, OUTSIDER) for dpid in world.truth.switches}
    for dpid, piece in pieces(world).items():
        at = Port(dpid, OUTSIDER)
        for packet in ALL_HEAR:
            came = Counter(arrival for arrival, _ in came_out(world.fabric.send(at, packet)).elements())
            assert came == Counter(host for host in hosts if host.dpid in piece and host != at)


@given(network=networks(), coded=st.booleans(), data=st.data())
@settings(deadline=None)
def test_a_broadcast_comes_once_to_each_host_whatever_links_fail(
    network: Network, coded: bool, data: st.DataObject
) -> None:
    world = world_of(network, coded=coded)
    begin(world)
    check(world)
    topic = "a"
    if not coded:
        world.intent(topic, network.brokers)
        world.run()
    for link in data.draw(st.lists(st.sampled_from(world.all_links), max_size=6) if world.all_links else st.just([])):
        world.set_link(link, up=not world.truth.carries(link))
        world.run()
        check(world)
        world.check_truth()


@given(network=networks(), saved=st.booleans(), seed=st.integers(0, 99))
@settings(deadline=None)
def test_a_restart_leaves_closed_links_closed(network: Network, saved: bool, seed: int) -> None:
    world = world_of(network)
    world.appear()
    for link in random.Random(seed).sample(world.all_links, len(world.all_links)):
        world.set_link(link, up=False)
        world.run()
        world.set_link(link, up=True)
        world.run()
    world.settle()
    world.run()
    held = {dpid: switch.tables for dpid, switch in world.fabric.switches.items()}
    world.start(Saver(world.machine).save() if saved else None)
    world.announced.clear()
    begin(world)
    assert world.announced == []
    assert {dpid: switch.tables for dpid, switch in world.fabric.switches.items()} == held


@given(network=networks(least=4), data=st.data())
@settings(deadline=None)
def test_hosts_find_each_other_at_once_after_a_change_as_they_are_announced(
    network: Network, data: st.DataObject
) -> None:
    world = world_of(network)
    begin(world)
    if not world.all_links:
        return
    machines = {broker.mac: place for broker, place in world.places.items()}

    def announce() -> None:
        assert set(world.announced) <= set(machines.items())
        while world.announced:
            host, at = world.announced.pop()
            world.fabric.send(at, Packet(mac(host), BROADCAST, 0, 0, 0, 0, eth_type=RARP))

    world.announced = [*machines.items()]
    announce()
    for link in data.draw(st.lists(st.sampled_from(world.all_links), min_size=1, max_size=4)):
        closed = {dpid: world.machine.network.switch_state(dpid).holds(CLOSED) for dpid in world.truth.switches}
        world.set_link(link, up=not world.truth.carries(link))
        world.run()
        after = {dpid: world.machine.network.switch_state(dpid).holds(CLOSED) for dpid in world.truth.switches}
        assert bool(world.announced) == (closed != after)
        if not world.announced:
            continue  # traffic over a link that nothing replaces is lost in any case
        announce()
        for (one, at), (other, there) in permutations(machines.items(), 2):
            if world.truth.piece(at.dpid) == world.truth.piece(there.dpid):
                came = world.fabric.send(at, Packet(mac(one), mac(other), 1, 2, 3, 4))
                assert came.at(there) or at == there


@given(network=networks())
@settings(deadline=None)
def test_what_is_closed_is_what_a_spanning_tree_leaves(network: Network) -> None:
    world = world_of(network)
    begin(world)
    graph = nx.Graph((link.a.dpid, link.b.dpid) for link in world.all_links)
    held = [switch_state.holds(CLOSED) for switch_state in world.machine.network.switch_states.values()]
    assert sum(tables.entries for tables in held) == 3 * 2 * (
        len(world.all_links) - len(nx.minimum_spanning_tree(graph).edges)
    )
