"""A controller whose addresses are codes: one entry serves a subtree, and nothing goes where it should not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.controller.admission import Rules
from saps.ofm.controller.coded_pool import CodedPool, CodeName, Coding
from saps.ofm.controller.saved import Saver
from saps.ofm.flows.budget import Budget
from saps.ofm.flows.plan import Loopback
from saps.ofm.flows.shared_budget import SharedLedger
from saps.ofm.flows.tables import Tables
from saps.ofm.network.topology import BrokerAddress, Port, Topology
from saps.ofm.northbound.schema import Status
from saps.ofm.openflow.base import BASE_FLOWS
from saps.ofm.topics.registry import Quota, TopicRefusedError
from tests.ofm.controller.test_controller_machine import Life, Membership
from tests.ofm.controller.worlds import World
from tests.ofm.networks import OUTSIDER, Network, broker_at, came_out, networks, sent_by

LOOPBACK = Loopback("fd00::ffff", "02:ff:00:00:00:01")
TOPICS = ["a", "a/b", "a/b/c", "a/d", "e", "e/f/g", "e/f/h"]
NAMES: list[CodeName] = ["delimited", "published"]


def rules(code: CodeName = "delimited", entries: int = 1000, buckets: int = 10_000, **more: Any) -> Rules:
    return Rules("", LOOPBACK, Budget(entries, buckets), coding=Coding(code, **more))


def line(brokers: int = 3) -> Network:
    """Switches in a row, a broker at each."""
    topology = Topology()
    for dpid in range(1, brokers + 1):
        topology.switch_up(dpid, [1, 2, 9, OUTSIDER])
    for dpid in range(1, brokers):
        topology.link_up(Port(dpid, 1), Port(dpid + 1, 2))
    there = [broker_at(dpid, 5000, six=True) for dpid in range(1, brokers + 1)]
    for dpid, broker in enumerate(there, start=1):
        topology.attach(broker, dpid, 9)
    return Network(topology, there)


class CodedWorld(World):
    """What is checked of a world, for topics that share entries."""

    def ready(self) -> CodedWorld:
        self.appear()
        self.run()
        self.settle()
        return self

    def ours(self, dpid: int) -> Tables:
        """What OFMs hold of a switch."""
        base = {flow.name for flow in BASE_FLOWS} | self.machine.network.baseline.flows.keys()
        tables = self.fabric.switches[dpid].tables
        return Tables({name: flow for name, flow in tables.flows.items() if name not in base}, tables.groups)

    def check_outsiders(self) -> None:
        """A broker that is not in an OFM's tree reaches nobody with its address, and gets nothing back."""
        for record in self.machine.records.values():
            if record.plan is not None and record.state.status is Status.CONSTRUCTED:
                for broker in self.places.keys() - record.plan.tree.brokers.keys():
                    packet = sent_by(broker, record.plan.ofm)
                    assert not came_out(self.fabric.send(self.places[broker], packet)), record.topic


def intended(world: World, trees: dict[str, Iterable[BrokerAddress]]) -> None:
    for topic, brokers in trees.items():
        world.intent(topic, brokers)
        world.run()
    assert {state.status for state in world.told.values()} == {Status.CONSTRUCTED}


def test_one_entry_for_each_place_where_packets_come_in_serves_a_whole_subtree() -> None:
    network = line()
    world = CodedWorld(network, rules()).ready()
    below = [f"city/ward{ward}/{kind}" for ward in range(20) for kind in ("air", "noise")]
    intended(world, dict.fromkeys(["city", *below], network.brokers))
    middle = world.ours(2)
    assert (middle.entries, len(middle.groups)) == (3, 1)  # two trunks and a broker
    assert {len(list(flow.match.fields)) for flow in middle.flows.values()} == {5, 7}
    assert [world.ours(dpid).entries for dpid in (1, 3)] == [2, 2]
    assert world.machine.ledger.used(2).entries == 3 * 41
    assert world.machine.ledger.taken(2).entries == 3
    world.check_truth()


@pytest.mark.parametrize("code", NAMES)
def test_a_topic_in_the_middle_of_others_goes_its_own_way_and_no_other(code: CodeName) -> None:
    network = line(4)
    world = CodedWorld(network, rules(code)).ready()
    west, east = network.brokers[:2], network.brokers[2:]
    intended(world, {f"city/{number}": west for number in range(8)})
    intended(world, {"city/8": east, "city/9": network.brokers, "city/3/x": [west[0]]})
    world.check_truth()
    world.check_outsiders()
    for topic in ("city/9", "city/8", "city/3"):
        world.forget(topic)
        world.run()
        world.check_truth()
        world.check_outsiders()


def test_a_burst_of_topics_is_refused_with_its_reason_and_leaves_room_when_it_is_over() -> None:
    network = line()
    quotas = (Quota("city", topics=3, open=True), Quota("city/ward", levels=1, open=True))
    world = CodedWorld(network, rules(quotas=quotas, topics=("city",))).ready()
    for topic in ("city/a", "city/b", "city/c", "city/d", "village/a"):
        world.intent(topic, network.brokers)
        world.run()
    assert world.told["city/c"].status is Status.CONSTRUCTED
    assert world.machine.state("city/d").status is Status.REFUSED
    assert world.told["city/d"].reason == "'city/d': 3 topics are allowed below 'city'"
    assert world.told["village/a"].reason == "'village/a' is not registered"
    world.forget("city/b")
    world.run()
    assert world.told["city/d"].status is Status.CONSTRUCTED
    world.check_truth()


def test_a_budget_counts_what_topics_take_together() -> None:
    network = line()
    world = CodedWorld(network, rules(entries=6, buckets=12)).ready()
    intended(world, {f"city/{number}": network.brokers for number in range(20)})
    for topic in ("other", "city/5/x"):
        world.intent(topic, network.brokers[:2])
        world.run()
    assert world.told["other"].status is Status.CONSTRUCTED
    assert "flow entries" in str(world.told["city/5/x"].reason)
    world.check_truth()


@settings(max_examples=12, deadline=None)
@given(network=networks(six=True, least=4), data=st.data())
def test_a_restarted_controller_gives_the_same_addresses_and_changes_nothing(
    network: Network, data: st.DataObject
) -> None:
    world = CodedWorld(network, rules()).ready()
    for _ in range(6):
        topic = data.draw(st.sampled_from(TOPICS))
        if data.draw(st.integers(0, 3)):
            world.intent(topic, data.draw(st.frozensets(st.sampled_from(network.brokers), min_size=1)))
        else:
            world.forget(topic)
        world.run()
    addresses = {topic: record.state.address for topic, record in world.machine.records.items()}
    state, applied = Saver(world.machine).save(), world.applied
    world.start(state)
    world.ready().run()
    assert {topic: record.state.address for topic, record in world.machine.records.items()} == addresses
    assert world.applied == applied
    world.check_truth()
    world.check_outsiders()


class CodedLife(Life):
    """Anything may happen, to topics above and beside each other."""

    @initialize(network=networks(six=True, least=4), entries=st.sampled_from([1000, 8]), code=st.sampled_from(NAMES))
    def begin(self, network: Network, entries: int, code: CodeName) -> None:
        self.world = CodedWorld(network, rules(code, entries))
        self.world.appear()

    def desired(self, dpid: int) -> Tables:
        ledger = self.world.machine.ledger
        assert isinstance(ledger, SharedLedger)
        return ledger.desired(dpid, self.world.fabric.switches[dpid].tables.groups)


class CodedMembership(Membership):
    """Brokers join and leave topics that share entries: who stays loses no packet."""

    @initialize(network=networks(six=True, least=4), code=st.sampled_from(NAMES))
    def begin(self, network: Network, code: CodeName) -> None:
        self.world = CodedWorld(network, rules(code)).ready()

    @invariant()
    def nobody_else_gets_through(self) -> None:
        if hasattr(self, "world"):
            assert isinstance(self.world, CodedWorld)
            self.world.check_outsiders()


TestCodedLife = CodedLife.TestCase
TestCodedLife.settings = settings(
    max_examples=12, stateful_step_count=25, deadline=None, phases=[Phase.explicit, Phase.generate]
)
TestCodedMembership = CodedMembership.TestCase
TestCodedMembership.settings = settings(
    max_examples=12, stateful_step_count=25, deadline=None, phases=[Phase.explicit, Phase.generate]
)


@given(operations=st.lists(st.tuples(st.sampled_from(TOPICS), st.booleans(), st.booleans()), max_size=30))
@pytest.mark.parametrize("code", NAMES)
def test_owners_have_different_addresses_for_as_long_as_they_hold_them(
    code: CodeName, operations: list[tuple[str, bool, bool]]
) -> None:
    pool = CodedPool(Coding(code))
    for topic, second, take in operations:
        owner = f"{topic}\0" if second else topic
        before = dict(pool.held)
        if take:
            assert pool.allocate(owner) == pool.held[owner]
        else:
            assert pool.release(owner) == before.pop(owner, None)
        assert {each: pool.held[each] for each in before} == before
        assert len(set(pool.held.values())) == len(pool.held) == len(pool.words)
        assert len({pool.number(address) for address in pool.held.values()}) == len(pool.held)
        if code == "delimited":
            again = CodedPool(Coding(code))
            for each, address in pool.held.items():
                if not each.endswith("\0"):
                    again.reserve(each, address)
            assert again.held == {each: at for each, at in pool.held.items() if not each.endswith("\0")}


def test_an_address_that_is_no_code_of_its_topic_is_refused() -> None:
    pool = CodedPool(Coding(topics=("a", "b")))
    first = pool.allocate("a")
    for owner, address in (
        ("b", first),
        ("b", replace_port(first, 5001)),
        ("c", OfmAddress("ff05::1", 5000)),
        ("a/x", replace_port(first, 5002)),
    ):
        with pytest.raises(ValueError, match=r"\S"):
            pool.reserve(owner, address)
    with pytest.raises(TopicRefusedError):
        CodedPool(Coding(topics=("a/b", "a/c"), quotas=(Quota("a", topics=1),)))


def replace_port(address: OfmAddress, port: int) -> OfmAddress:
    return address._replace(port=port)


def test_what_is_forgotten_with_the_state_is_made_anew() -> None:
    network = line()
    world = CodedWorld(network, rules()).ready()
    intended(world, dict.fromkeys(TOPICS, network.brokers))
    world.start()
    world.ready().run()
    assert all(not world.ours(dpid).entries for dpid in (1, 2, 3))
    intended(world, dict.fromkeys(reversed(TOPICS), network.brokers))
    world.check_truth()
