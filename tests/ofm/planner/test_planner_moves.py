"""Trees move to other links while in use: the load gets even, nobody misses a packet, and not too many move."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from msgspec import structs

from saps.config import SettingError
from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.controller.admission import Rules
from saps.ofm.controller.controller import Controller
from saps.ofm.controller.driver.settings import ControllerSettings
from saps.ofm.controller.events import GoneOn, Intended, Intent, PolicyChanged, PortChanged, SwitchGone, SwitchUp, Tick
from saps.ofm.controller.saved import Saver
from saps.ofm.network.topology import BrokerAddress, Link, Port, Topology
from saps.ofm.network.traffic import CAPACITY, RATE, Traffic, with_capacities
from saps.ofm.network.traffic_files_io import TrafficFiles
from saps.ofm.northbound.schema import Status
from saps.ofm.planner.command.files import network_of
from saps.ofm.planner.fitted import NetworkPlanner
from saps.policy.model import Policy, Verdict
from tests.ofm.controller.test_controller_coded import rules as coded_rules
from tests.ofm.controller.test_controller_machine import Life
from tests.ofm.controller.worlds import World, rules
from tests.ofm.networks import Network, broker_at, came_out, networks, received_by, sent_by

OVERLAP = 20.0


class BusyWorld(World):
    """A controller that knows what links can carry and topics need, and evens it out."""

    def __init__(self, network: Network, wanted: Rules | None = None, capacity: int | None = None) -> None:
        super().__init__(network, replace(wanted or rules(), move_overlap=OVERLAP), capacity)

    def controller(self) -> Controller:
        links = dict.fromkeys(self.truth.links, 10e6)
        self.traffic = Traffic(links)
        planner = NetworkPlanner("balanced", capacity=self.traffic.capacity, rate=self.traffic.rate)
        return Controller(self.rules, planner, self.traffic)

    def demand(self, topic: str, brokers: Iterable[BrokerAddress], rate: float) -> None:
        self.hear(Intended(topic, Intent(frozenset(brokers), rate=rate)))

    def check_addresses(self, topic: str) -> None:
        """Whoever sends to an address that is told, the present or the former one, reaches all."""
        state = self.told[topic]
        record = self.machine.records[topic]
        assert record.plan is not None
        for text in filter(None, (state.address, state.former)):
            ofm = structs.replace(record.plan.ofm, address=OfmAddress.parse(text))
            for sender in state.brokers:
                packet = sent_by(sender, ofm)
                came = came_out(self.fabric.send(self.places[sender], packet))
                assert came == {
                    (place, received_by(broker, packet, ofm, returned=broker == sender)): 1
                    for broker, place in record.plan.tree.brokers.items()
                }


def two_ways(switches: int = 4, six: bool = False) -> Network:
    """Switches in a ring, brokers at the first and at the one opposite."""
    topology = Topology()
    for dpid in range(1, switches + 1):
        topology.switch_up(dpid, [1, 2, 9])
    for dpid in range(1, switches + 1):
        topology.link_up(Port(dpid, 1), Port(dpid % switches + 1, 2))
    brokers = [broker_at(dpid, 5000, six) for dpid in (1, 1 + switches // 2)]
    for broker, dpid in zip(brokers, (1, 1 + switches // 2), strict=True):
        topology.attach(broker, dpid, 9)
    return Network(topology, brokers)


def crowded(topics: int, rate: float = 4e6, coded: bool = False) -> BusyWorld:
    """All trees are on the one way round, because there was no other; now there is."""
    world = BusyWorld(two_ways(six=coded), coded_rules() if coded else None)
    world.appear()
    world.settle()
    blocked = min(world.all_links)
    world.set_link(blocked, up=False)
    for number in range(topics):
        world.demand(f"t{number}", world.network.brokers, rate / topics)
        world.run()
    world.set_link(blocked, up=True)
    world.run()
    assert len({world.links_of(topic) for topic in world.told}) == 1
    return world


@pytest.mark.parametrize("coded", [False, True], ids=["allocated", "coded"])
def test_of_two_trees_on_one_trunk_one_moves_and_no_packet_is_lost(coded: bool) -> None:
    world = crowded(2, 8e6, coded)
    before = {topic: world.told[topic].address for topic in ("t0", "t1")}
    world.tick(100.0)
    assert world.todo
    while world.todo:
        world.step(min(world.todo))
        for topic in before:
            world.check_addresses(topic)
    assert world.links_of("t0").isdisjoint(world.links_of("t1"))
    [moved] = [topic for topic in before if world.told[topic].address != before[topic]]
    assert world.told[moved].former == before[moved]
    assert world.told[moved].status is Status.CONSTRUCTED
    for now in (100.0 + OVERLAP - 0.1, 100.0 + OVERLAP):
        world.tick(now)
        world.run()
        world.check_addresses(moved)
    assert world.told[moved].former is None
    assert [plan.ofm.address for plan in world.machine.ledger].count(OfmAddress.parse(str(before[moved]))) == 0
    world.check_truth()
    world.tick(1000.0)
    assert not world.todo, "it is even"


def test_no_more_than_the_share_of_trees_moves_in_a_minute_until_the_load_is_even() -> None:
    world = crowded(40, rate=9e6)
    moves: list[float] = []
    seen = {topic: state.address for topic, state in world.told.items()}
    for now in range(0, 600, 5):
        world.tick(float(now))
        world.run()
        for topic, state in world.told.items():
            if state.address != seen[topic]:
                seen[topic] = state.address
                moves.append(float(now))
        assert len([at for at in moves if at > now - 60]) <= 4
    ways = [world.links_of(topic) for topic in world.told]
    assert min(ways.count(way) for way in set(ways)) >= 15
    world.check_truth()


def test_a_share_of_nothing_moves_nothing() -> None:
    world = crowded(2, rate=8e6)
    world.machine.moves._moderation.share = 0.0
    world.tick(100.0)
    assert not world.todo


@pytest.mark.parametrize("rate", [1e6, 2e6])
def test_a_load_that_is_no_trouble_moves_nothing(rate: float) -> None:
    world = crowded(2, rate=rate)
    world.tick(100.0)
    assert not world.todo


def test_a_move_ends_when_its_topic_does_or_its_new_tree_breaks() -> None:
    for end in ("forget", "break", "join"):
        world = crowded(2, rate=8e6)
        world.tick(100.0)
        [second] = world.machine.moves.owners
        topic = second[:-1]
        if end == "forget":
            world.forget(topic)
        elif end == "break":
            world.set_link(min(world.all_links), up=False)
        else:
            world.demand(topic, world.network.brokers[:1], 4e6)
        world.run()
        for now in (102.0, 100.0 + 2 * OVERLAP, 200.0):
            world.tick(now)
            world.run()
        world.check_truth()
        if end == "break":
            assert len({world.links_of(topic) for topic in ("t0", "t1")}) == 1
            assert {state.status for state in world.told.values()} == {Status.CONSTRUCTED}
        every = [f"{plan.ofm.address}" for plan in world.machine.ledger]
        told = [state.address for state in world.told.values() if state.status is Status.CONSTRUCTED]
        assert sorted(every) == sorted(filter(None, told))


def test_a_policy_that_names_unknown_switches_stops_no_clock() -> None:
    world = crowded(2, rate=8e6)
    policy = Policy(1, {f"t{number}": Verdict(frozenset({"nowhere"})) for number in range(2)})
    world.machine.handle(PolicyChanged(policy), 0)  # the trees follow in slices
    world.machine.handle(Tick(100.0), 0)
    world.hear(GoneOn())
    world.run()
    assert {state.status for state in world.told.values()} == {Status.REFUSED}


def test_a_restart_in_the_middle_of_a_move_keeps_what_was_told() -> None:
    world = crowded(2, rate=8e6)
    world.tick(100.0)
    world.run()
    state, addresses = Saver(world.machine).save(), {topic: told.address for topic, told in world.told.items()}
    world.start(state)
    world.appear()
    world.run()
    world.settle()
    world.run()
    assert {topic: told.address for topic, told in world.told.items()} == addresses
    world.check_truth()
    assert all(world.traffic.rate(topic) == 4e6 for topic in addresses)


class BusyLife(Life):
    """Trees move while all else happens."""

    @initialize(network=networks(least=4), entries=st.sampled_from([1000, 20]), capacity=st.sampled_from([None, 12]))
    def begin(self, network: Network, entries: int, capacity: int | None) -> None:
        self.now = 0.0
        self.world = BusyWorld(network, rules(entries), capacity)
        self.world.appear()

    @rule(seconds=st.sampled_from([1.0, OVERLAP, 60.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.world.tick(self.now)

    @rule(rate=st.sampled_from([1e5, 5e6, 9e6]), topic=st.sampled_from(["alert/fire", "a"]))
    def measure(self, rate: float, topic: str) -> None:
        assert isinstance(self.world, BusyWorld)
        self.world.demand(topic, self.world.network.brokers, rate)


TestBusyLife = BusyLife.TestCase
TestBusyLife.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)


# -- what is known of links and topics


def test_a_link_is_as_fast_as_its_slower_end_unless_the_operator_says_otherwise() -> None:
    a, b, c = Port(1, 1), Port(2, 1), Port(3, 1)
    one, other = Link.of(a, b), Link.of(Port(2, 2), c)
    traffic = Traffic({other: 5e6})
    assert traffic.capacity(one) == CAPACITY
    traffic.hear(SwitchUp(1, {1: True}, {1: 1_000_000}))
    traffic.hear(SwitchUp(2, {1: True, 2: True}, {1: 100_000, 2: 10_000_000}))
    assert (traffic.capacity(one), traffic.capacity(other)) == (1e8, 5e6)
    traffic.hear(PortChanged(b, up=True, speed=10_000))
    assert traffic.capacity(one) == 1e7
    traffic.hear(PortChanged(b, up=None))
    assert traffic.capacity(one) == 1e9, "by the speed of the other end"
    traffic.hear(SwitchUp(1, {2: True}, {2: 10_000_000}))
    assert traffic.capacity(one) == CAPACITY
    version = traffic.version
    traffic.hear(SwitchGone(1))
    traffic.hear(SwitchGone(2))
    assert (traffic._speeds, traffic.version) == ({}, version + 2)
    topology = two_ways().topology
    links = with_capacities(topology.to_json(), traffic)["links"]
    assert {link["capacity"] for link in links} == {traffic.capacity(link) for link in topology.links}


def test_operators_files_are_read_and_refused(tmp_path: Path) -> None:
    end = {"dpid": f"{1:016x}", "port": 1}
    capacities, demands = tmp_path / "capacities.json", tmp_path / "demands.json"
    link = {"a": end, "b": {"dpid": f"{2:016x}", "port": 7}, "capacity": 2e9}
    capacities.write_bytes(msgspec.json.encode({"links": [link]}))
    rows = [{"topic": "a", "rate": 5e6}, {"topic": "b", "messages": 100, "size": 890}]
    demands.write_bytes(msgspec.json.encode(rows))
    files = TrafficFiles.of(ControllerSettings(capacities=capacities, demands=demands))
    traffic = files.traffic()
    assert traffic.capacity(Link.of(Port(1, 1), Port(2, 7))) == 2e9
    assert [traffic.rate(topic) for topic in "abc"] == [5e6, 800_000, RATE]
    traffic.intended("a", 1.0)
    traffic.intended("c", 7.0)
    assert (traffic.rate("a"), traffic.rate("c")) == (5e6, 7.0)
    for name, file, bad in (
        ("capacities", capacities, {"links": [link | {"capacity": 0}]}),
        ("demands", demands, [{"topic": "a"}]),
        ("demands", demands, {"a": -1}),
    ):
        file.write_bytes(msgspec.json.encode(bad))
        with pytest.raises(SettingError, match=name):
            TrafficFiles.of(structs.replace(ControllerSettings(), **{name: file}))


def test_a_plan_goes_by_the_capacities_that_the_controller_tells() -> None:
    topology = two_ways().topology
    slow, *_ = topology.links
    told = with_capacities(topology.to_json(), Traffic({slow: 5.0}))
    network = network_of(told)
    assert sorted(trunk.capacity for trunk in network.links) == [5.0, CAPACITY, CAPACITY, CAPACITY]
    assert {trunk.capacity for trunk in network_of(topology.to_json(), capacity=7.0).links} == {7.0}
