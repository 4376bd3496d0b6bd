"""Stateless delivery in the controller's machine, over software switches and random networks with loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv6Address

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from saps.ofm.controller.admission import Rules
from saps.ofm.controller.saved import Replica, Saver
from saps.ofm.flows.budget import Budget
from saps.ofm.flows.plan import PLANES, Loopback
from saps.ofm.flows.switch_state import part_of
from saps.ofm.flows.tables import ETH_IPV6, Change, PutFlow, mac
from saps.ofm.network.topology import BrokerAddress, Link, Port, Topology
from saps.ofm.northbound.schema import OfmState, Status
from saps.ofm.stateless.address import EVERY_TOPIC, Receivers, bits_of
from saps.ofm.switch.packets import Packet
from saps.ofm.switch.switch import RefusedError
from tests.ofm.controller.worlds import World
from tests.ofm.networks import Network, broker_at, came_out, networks

LOOPBACK = Loopback("fd00::ffff", "02:ff:00:00:00:01")


def rules(entries: int = 1000, planes: int = 3) -> Rules:
    return Rules("[ff05:77::/120]:5000-5003", LOOPBACK, Budget(entries, 10_000), planes=planes)


def world_of(network: Network, wanted: Rules | None = None, capacity: int | None = None) -> World:
    """Everything is there, and found; nothing is wished for yet."""
    world = World(network, wanted or rules(), capacity=capacity)
    world.appear()
    world.run()
    world.settle()
    world.run()
    return world


def state(world: World) -> OfmState:
    return world.machine.state(EVERY_TOPIC)


def places(told: OfmState) -> dict[BrokerAddress, tuple[int, int]]:
    return {
        broker: (number, position)
        for number, members in enumerate(told.sets)
        for position, broker in enumerate(members)
        if broker is not None
    }


def delivered(world: World, sender: BrokerAddress, receivers: Receivers) -> Counter[tuple[Port, Packet]]:
    return came_out(world.fabric.send(world.places[sender], packet(sender, receivers)))


def packet(sender: BrokerAddress, receivers: Receivers) -> Packet:
    to = int(receivers.address)
    return Packet(
        mac(sender.mac), 0x3333 << 32 | to & 0xFFFFFFFF, int(IPv6Address(sender.ip)), to, sender.port, 7400,
        b"hello", ETH_IPV6,
    )  # fmt: skip


def check(world: World) -> None:
    """What is told holds: by each plane that may be used each broker reaches each, and itself, once."""
    told = state(world)
    at = places(told)
    for plane in told.planes:
        for sender in told.brokers:
            named = [broker for broker in told.brokers if at[broker][0] == at[sender][0]]
            receivers = Receivers(at[sender][0], plane, bits_of(at[broker][1] for broker in named))
            sent, came = packet(sender, receivers), delivered(world, sender, receivers)
            assert came == Counter(
                (world.places[broker], _received(broker, sent, back=world.places[broker] == world.places[sender]))
                for broker in named
            )


def _received(broker: BrokerAddress, sent: Packet, *, back: bool) -> Packet:
    came = replace(sent, eth_dst=mac(broker.mac), ip_dst=int(IPv6Address(broker.ip)), udp_dst=broker.port)
    if back:
        came = replace(came, eth_src=mac(LOOPBACK.mac), ip_src=int(IPv6Address(LOOPBACK.ip)))
    return came


@settings(max_examples=12, phases=[Phase.generate])
@given(networks(six=True, least=2), st.data())
def test_brokers_come_and_go_and_links_fail_and_what_is_told_holds(network: Network, data: st.DataObject) -> None:
    world = world_of(network)
    chosen = st.frozensets(st.sampled_from(network.brokers), min_size=1)
    down: list[Link] = []
    before: dict[BrokerAddress, tuple[int, int]] = {}
    for _ in range(4):
        act = data.draw(st.sampled_from(["reach", "link", "link", "up", "steps"]))
        if act == "reach" or not before:
            world.intent(EVERY_TOPIC, data.draw(chosen))
        elif act == "link" and world.truth.links:
            link = data.draw(st.sampled_from(world.truth.links))
            down.append(link)
            world.set_link(link, up=False)
        elif act == "up" and down:
            world.set_link(down.pop(), up=True)
        for _ in range(data.draw(st.integers(0, 30))):
            if world.todo:
                world.step(data.draw(st.sampled_from(sorted(world.todo))))
        if act != "steps":
            world.run()
            check(world)
        now = places(state(world))
        assert all(now[broker] == at for broker, at in before.items() if broker in now), "a broker keeps its bit"
        before = now or before
    while down:
        world.set_link(down.pop(), up=True)
    world.run()
    check(world)
    assert state(world).status is Status.CONSTRUCTED
    assert frozenset(state(world).brokers) == world.machine.planes.brokers
    world.forget(EVERY_TOPIC)
    world.run()
    assert state(world).status is Status.NONE
    assert {switch.tables.entries for switch in world.fabric.switches.values()} == {5}, "the base flows, and the guard"


@settings(max_examples=12, phases=[Phase.generate])
@given(networks(six=True, least=3), st.booleans())
def test_a_restarted_controller_finds_its_planes_and_changes_nothing(network: Network, kept: bool) -> None:
    world = world_of(network)
    world.intent(EVERY_TOPIC, network.brokers[1:])
    world.run()
    world.intent(EVERY_TOPIC, network.brokers)
    world.run()
    before, applied, saved = state(world), world.applied, Saver(world.machine).save()
    assert before.status is Status.CONSTRUCTED
    world.start(saved if kept else None)
    world.appear()
    world.run()
    if not kept:
        world.intent(EVERY_TOPIC, network.brokers)
    world.settle()
    world.run()
    assert state(world).status is Status.CONSTRUCTED
    check(world)
    if kept:
        assert world.applied == applied
        assert (state(world).sets, state(world).planes) == (before.sets, before.planes)


def test_planes_begin_when_all_is_there_and_do_not_wait_until_nothing_more_can_come() -> None:
    network = ring(6)
    world = World(network, rules())
    world.intent(EVERY_TOPIC, network.brokers)
    saved = Saver(world.machine).save()
    world.start(saved)
    world.connect(1)
    world.run()
    assert (state(world).status, state(world).planes) == (Status.CONSTRUCTING, []), "those of the earlier run were none"
    world.start(saved)
    world.appear()
    world.run()
    assert (state(world).status, len(state(world).planes)) == (Status.CONSTRUCTED, 3)
    check(world)


@pytest.mark.parametrize("wished", ["before", "after"])
def test_a_standby_that_has_not_heard_of_the_last_broker_gives_nobody_another_bit(wished: str) -> None:
    """OFGate wishes again, before or after the standby has found all switches."""
    network = ring(6)
    world = world_of(network)
    world.intent(EVERY_TOPIC, network.brokers[1:])
    world.run()
    copy = Replica.of(Saver(world.machine).save())
    world.intent(EVERY_TOPIC, network.brokers)
    world.run()
    before = state(world)
    world.start(copy.data)
    world.appear()
    if wished == "after":
        world.settle()
        world.run()
        check(world)
    world.intent(EVERY_TOPIC, network.brokers)
    world.settle()
    world.run()
    assert (state(world).status, state(world).sets) == (Status.CONSTRUCTED, before.sets)
    assert state(world).planes == before.planes
    check(world)


def test_topics_change_no_entry_and_planes_are_kept_beside_their_trees() -> None:
    network = ring(6)
    world = world_of(network)
    world.intent(EVERY_TOPIC, network.brokers)
    world.run()
    world.intent("a/b", network.brokers[:3])
    world.run()
    assert world.machine.state("a/b").status is Status.CONSTRUCTED
    world.check_truth()
    check(world)
    world.forget("a/b")
    world.run()
    check(world)


def test_a_link_that_fails_leaves_the_other_planes_as_they_are() -> None:
    network = ring(6)
    world = world_of(network)
    world.intent(EVERY_TOPIC, network.brokers)
    world.run()
    assert state(world).planes == [0, 1, 2]
    layout = world.machine.planes.layout
    assert layout is not None
    link = min(layout.planes[0].links - layout.planes[1].links)
    world.set_link(link, up=False)
    hit = [number for number, plane in enumerate(layout.planes) if link in plane.links]
    assert state(world).planes == [number for number in range(3) if number not in hit], "before any switch answers"
    check(world)
    world.run()
    assert state(world).planes == [0, 1, 2]
    check(world)
    now = world.machine.planes.layout
    assert now is not None
    assert all(now.planes[number].links == layout.planes[number].links for number in range(3) if number not in hit)


def test_what_does_not_fit_is_refused_with_the_reason_and_leaves_nothing() -> None:
    network = ring(6)
    world = world_of(network, rules(entries=10))
    world.intent(EVERY_TOPIC, network.brokers)
    world.run()
    assert state(world).status is Status.REFUSED
    assert "flow entries; its budget is 10" in (state(world).reason or "")
    assert {switch.tables.entries for switch in world.fabric.switches.values()} == {5}
    world = world_of(network, rules(planes=0))
    world.intent(EVERY_TOPIC, network.brokers)
    assert state(world).reason == "the controller has no planes (--planes 0, or coded addresses)"


def test_planes_that_had_no_room_are_laid_when_trees_have_gone() -> None:
    network = ring(6)
    world = world_of(network)
    world.intent(EVERY_TOPIC, network.brokers)
    world.run()
    needed = max(switch.tables.entries for switch in world.fabric.switches.values()) - 5
    network = ring(6)
    world = world_of(network, rules(entries=max(needed, 12)))
    topics = [f"t/{number}" for number in range(4)]
    for topic in topics:
        world.intent(topic, network.brokers)
        world.run()
    world.intent(EVERY_TOPIC, network.brokers)
    world.run()
    assert state(world).status is Status.REFUSED
    for topic in topics:
        world.forget(topic)
        world.run()
    world.tick(2.0)
    world.run()
    assert state(world).status is Status.CONSTRUCTED
    check(world)


def test_while_a_switch_has_few_tables_topics_go_by_their_trees() -> None:
    network = ring(6)
    world = world_of(network)

    def replace_switch(tables: int) -> None:
        world.disconnect(2)
        world.table_counts[2] = tables
        world.connect(2)
        world.run()

    replace_switch(2)
    world.intent(EVERY_TOPIC, network.brokers)
    world.intent("air/ward1", network.brokers)
    world.run()
    assert state(world).status is Status.REFUSED
    assert "tables and has 2" in (state(world).reason or "")
    assert all(flow.table == 0 for switch in world.fabric.switches.values() for flow in switch.tables.flows.values())
    assert world.machine.state("air/ward1").status is Status.CONSTRUCTED
    replace_switch(254)
    assert state(world).status is Status.CONSTRUCTED
    check(world)


def test_a_switch_without_room_for_the_planes_has_all_of_them_refused() -> None:
    network = ring(6)
    world = world_of(network, capacity=12)
    world.intent(EVERY_TOPIC, network.brokers)
    world.run()
    assert state(world).status is Status.REFUSED
    assert "OFPFMFC_TABLE_FULL" in (state(world).reason or "")
    assert {switch.tables.entries for switch in world.fabric.switches.values()} == {5}


def test_a_broker_that_fits_is_added_although_old_and_new_entries_together_do_not() -> None:
    """The number of a table is part of an entry's name, so a new broker at a switch renames entries of others."""
    world, brokers = small(None)
    world.intent(EVERY_TOPIC, brokers)
    world.run()
    needed = world.machine.ledger.used(1).entries
    assert world.fabric.switches[1].tables.entries == needed + 5
    world, brokers = small(needed)
    for chosen in (brokers[1:], brokers):
        world.intent(EVERY_TOPIC, chosen)
        while world.todo:
            world.step(min(world.todo))
            check(world)
        assert (state(world).status, state(world).brokers) == (Status.CONSTRUCTED, chosen)
    assert world.machine.ledger.used(1).entries == needed


def small(entries: int | None) -> tuple[World, list[BrokerAddress]]:
    """Two switches, three brokers at switch 1, which have room for so many entries beside the base flows and the
    guard."""
    topology, brokers = Topology(), [broker_at(number, 6000, six=True) for number in range(4)]
    for dpid in (1, 2):
        topology.switch_up(dpid, range(1, 9))
    topology.link_up(Port(1, 8), Port(2, 8))
    for number, broker in enumerate(brokers, 1):
        topology.attach(broker, 2 if number == 4 else 1, number)
    world = world_of(Network(topology, brokers), rules(entries or 1000), entries and entries + 5)
    return world, brokers


def test_planes_that_a_switch_refuses_are_not_tried_again_for_a_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    network = ring(6)
    world, refused = world_of(network), list[Change]()
    switch = world.fabric.switches[1]
    apply = switch.apply

    def refuse(changes: Sequence[Change]) -> None:
        if any(part_of(change) == PLANES and isinstance(change, PutFlow) for change in changes):
            refused.extend(changes)
            raise RefusedError("OFPBMC_BAD_MASK")
        apply(changes)

    monkeypatch.setattr(switch, "apply", refuse)
    world.intent(EVERY_TOPIC, network.brokers[:5])
    world.run()
    assert state(world).status is Status.REFUSED
    before = len(refused)
    world.intent("a/b", network.brokers[5:])
    world.move(network.brokers[5].mac, Port(6, 8))
    world.run()
    assert (state(world).status, len(refused)) == (Status.REFUSED, before)


def test_more_brokers_than_there_are_bits_are_refused_and_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saps.ofm.controller.planes.SETS", 1)
    world = world_of(ring(6))
    world.intent(EVERY_TOPIC, [broker_at(number, 6000, six=True) for number in range(97)])
    assert (state(world).status, state(world).reason) == (Status.REFUSED, "more than 96 brokers")
    assert world.machine.planes.sets == ()


def test_a_switch_with_255_tables_uses_them_all() -> None:
    topology, brokers = Topology(), [broker_at(number, 6000, six=True) for number in range(253)]
    topology.switch_up(1)
    for number, broker in enumerate(brokers, 1):
        topology.attach(broker, 1, number)
    world = World(Network(topology, brokers), rules(entries=10_000))
    world.table_counts[1] = 255
    world.appear()
    world.settle()
    world.intent(EVERY_TOPIC, brokers)
    world.run()
    assert state(world).status is Status.CONSTRUCTED


def ring(size: int) -> Network:
    """So many switches in a circle, and a broker at each."""
    topology = Topology()
    for dpid in range(1, size + 1):
        topology.switch_up(dpid, [9])
    for dpid in range(1, size + 1):
        topology.link_up(Port(dpid, 1), Port(dpid % size + 1, 2))
    brokers = [broker_at(number, 6000, six=True) for number in range(size)]
    for number, broker in enumerate(brokers):
        topology.attach(broker, number + 1, 9)
    return Network(topology, brokers)
