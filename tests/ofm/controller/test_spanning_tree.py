"""The controller keeps the switches' own forwarding free of loops: over learning switches and random networks."""

from __future__ import annotations

import random
from collections import Counter
from itertools import permutations

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from saps.ofm.controller.events import Event, LinkChanged, LoopFound, PortChanged, SwitchGone
from saps.ofm.controller.saved import Saver
from saps.ofm.controller.spanning_tree import closed_in
from saps.ofm.flows.plan import CLOSED, COOKIE, ours
from saps.ofm.flows.tables import ETH_IPV4, ETH_IPV6, mac
from saps.ofm.network.topology import Port
from saps.ofm.openflow.base import BASE_FLOWS
from saps.ofm.switch.learning import Learning
from saps.ofm.switch.packets import Packet
from tests.ofm.controller.test_controller_planes import ring
from tests.ofm.controller.worlds import World, rules
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


def world_of(network: Network) -> World:
    """Switches that learn, and flood over all links, with a controller that closes loops."""

    def normal(dpid: int) -> Learning:
        ends = {end for link in network.topology.links for end in link} | set(map(network.place, network.brokers))
        return Learning({OUTSIDER, *(end.port for end in ends if end.dpid == dpid)})

    return World(network, rules(spanning_tree=True), normal=normal)


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


def lose(world: World, dpid: int) -> None:
    """A switch loses its controller for longer than it has to come back. It goes on forwarding."""
    world.disconnect(dpid)
    for link in [link for link in world.truth.links if dpid in (link.a.dpid, link.b.dpid)]:
        world.hear(LinkChanged(link, up=False))
    world.hear(SwitchGone(dpid))
    world.run()


@given(network=networks(), data=st.data())
@settings(deadline=None)
def test_a_broadcast_comes_once_to_each_host_whatever_fails(network: Network, data: st.DataObject) -> None:
    world = world_of(network)
    begin(world)
    check(world)
    world.intent("a", network.brokers)
    world.run()
    away: set[int] = set()
    for _ in range(data.draw(st.integers(0, 6))):
        links = [link for link in world.all_links if away.isdisjoint(end.dpid for end in link)]
        act = data.draw(st.sampled_from(["link", "lose", "back"]))
        if act == "link" and links:
            link = data.draw(st.sampled_from(links))
            world.set_link(link, up=not world.truth.carries(link))
        elif act == "lose" and len(away) < len(world.truth.switches):
            away.add(dpid := data.draw(st.sampled_from(sorted(set(world.truth.switches) - away))))
            lose(world, dpid)
        elif act == "back" and away:
            away.remove(dpid := min(away))
            world.connect(dpid)
            world.run()
            check(world)
            for event in world.discover():
                if not isinstance(event, LinkChanged) or away.isdisjoint(end.dpid for end in event.link):
                    world.hear(event)
        world.run()
        check(world)
        if not away:
            world.check_truth()


def test_what_was_closed_before_the_network_settled_opens_when_it_has() -> None:
    network = ring(4)
    world = world_of(network)
    world.appear()
    world.run()
    world.set_link(min(world.machine._spanning_tree._open), up=False)
    world.run()
    world.settle()
    world.run()
    check(world)


def test_without_room_there_are_no_entries_and_no_other_waits_for_them() -> None:
    network = ring(4)
    world = World(network, rules(spanning_tree=True), capacity=len(BASE_FLOWS) + 3)
    begin(world)
    cookies = [flow.cookie for switch in world.fabric.switches.values() for flow in switch.tables.flows.values()]
    assert COOKIE | CLOSED not in cookies
    world.tick(2.0)
    world.run()
    assert not world.todo


@given(network=networks(), saved=st.booleans(), seed=st.integers(0, 99))
@settings(deadline=None)
def test_a_restart_leaves_closed_links_closed(network: Network, saved: bool, seed: int) -> None:
    world = world_of(network)
    world.appear()
    world.run()
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
    news: list[int | Event] = [*world.truth.switches, *world.discover()]
    random.Random(seed).shuffle(news)
    for event in news:
        if isinstance(event, int):
            world.connect(event)
        else:
            world.hear(event)
        world.run()
        check(world)
    world.settle()
    world.run()
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
    for link in data.draw(st.lists(st.sampled_from(world.all_links), min_size=1, max_size=6)):
        world.set_link(link, up=not world.truth.carries(link))
        world.run()
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


def test_a_cable_between_two_ports_of_one_switch_is_closed_at_both_until_one_is_down() -> None:
    """A packet that floods out of either comes in by the other."""
    world = world_of(ring(3))
    for port in (7, 8):
        world.truth.port_status(1, port, up=True)
    begin(world)

    def closed() -> list[int]:
        return sorted(set(closed_in(ours(world.fabric.switches[1].tables))) & {7, 8})

    world.hear(LoopFound(Port(1, 7), Port(1, 8)))
    world.run()
    assert closed() == [7, 8]
    world.hear(PortChanged(Port(1, 8), up=False))
    world.run()
    assert closed() == []
