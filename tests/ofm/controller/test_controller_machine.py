"""The controller machine under everything that can happen, in any order: switches, links, hosts, intents, restarts."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from saps.ofm.controller.events import HostMoved, Intended, Intent, LinkChanged, SwitchGone
from saps.ofm.controller.saved import Saver
from saps.ofm.flows.plan import CLOSED, COOKIE
from saps.ofm.flows.tables import Tables
from saps.ofm.network.topology import BrokerAddress, Port
from saps.ofm.northbound.schema import Status
from saps.ofm.openflow.base import BASE_FLOWS
from tests.ofm.controller.worlds import AMPLE, World, rules
from tests.ofm.networks import OUTSIDER, Network, networks

pytestmark = pytest.mark.slow

TOPICS = ["alert/fire", "air/ward1", "a"]


class Life(RuleBasedStateMachine):
    """Anything may happen between any two changes of any two switches."""

    world: World

    @initialize(
        network=networks(least=4),
        entries=st.sampled_from([1000, 8]),
        capacity=st.sampled_from([None, None, None, 9]),
        limit=st.sampled_from([0, AMPLE]),
        most_meters=st.sampled_from([None, None, 0, 1]),
        spread=st.booleans(),
        closes=st.booleans(),
    )
    def begin(
        self,
        network: Network,
        entries: int,
        capacity: int | None,
        limit: int,
        most_meters: int | None,
        spread: bool,
        closes: bool,
    ) -> None:
        """`entries`: the budget; `capacity`: what a switch takes, which may be less, as of meters; `closes`: whether
        the controller closes loops."""
        chosen = rules(entries, limit=limit, spread=spread, spanning_tree=closes)
        self.world = World(network, chosen, capacity, most_meters)
        self.world.appear()

    def chosen(self, data: st.DataObject, least: int = 0) -> frozenset[BrokerAddress]:
        return data.draw(st.frozensets(st.sampled_from(self.world.network.brokers), min_size=least))

    @rule(data=st.data(), topic=st.sampled_from(TOPICS), priority=st.sampled_from([None, 7]))
    def intent(self, data: st.DataObject, topic: str, priority: int | None) -> None:
        brokers = self.chosen(data, least=1)
        senders = self.chosen(data) - brokers
        self.world.hear(Intended(topic, Intent(brokers, senders, priority)))

    @rule(topic=st.sampled_from(TOPICS))
    def forget(self, topic: str) -> None:
        self.world.forget(topic)

    @precondition(lambda self: self.world.todo)
    @rule(data=st.data(), steps=st.integers(1, 8))
    def work(self, data: st.DataObject, steps: int) -> None:
        for _ in range(steps):
            if self.world.todo:
                self.world.step(data.draw(st.sampled_from(sorted(self.world.todo))))

    @rule()
    def finish(self) -> None:
        self.world.run()

    @rule(data=st.data())
    def lose_or_restart_switch(self, data: st.DataObject) -> None:
        world = self.world
        dpid = data.draw(st.sampled_from(world.truth.switches))
        if dpid in world.connected:
            world.disconnect(dpid)
            if data.draw(st.booleans()):
                world.fabric.restart(dpid)
        else:
            world.connect(dpid)

    @precondition(lambda self: len(self.world.connected) < len(self.world.truth.switches))
    @rule(data=st.data())
    def give_up_switch(self, data: st.DataObject) -> None:
        away = [dpid for dpid in self.world.truth.switches if dpid not in self.world.connected]
        self.world.hear(SwitchGone(data.draw(st.sampled_from(away))))

    @precondition(lambda self: self.world.all_links)
    @rule(data=st.data())
    def toggle_link(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(self.world.all_links))
        self.world.set_link(link, not self.world.truth.carries(link))

    @rule(data=st.data(), seen=st.booleans())
    def host(self, data: st.DataObject, seen: bool) -> None:
        broker = data.draw(st.sampled_from(self.world.network.brokers))
        self.world.hear(HostMoved(broker.mac, self.world.places[broker] if seen else None))

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        broker = data.draw(st.sampled_from(self.world.network.brokers))
        free = [Port(dpid, OUTSIDER) for dpid in self.world.truth.switches]
        self.world.move(broker.mac, data.draw(st.sampled_from(sorted({*free, *self.world.places.values()}))))

    @precondition(lambda self: self.world.truth.links)
    @rule(data=st.data(), seen=st.booleans())
    def probes(self, data: st.DataObject, seen: bool) -> None:
        """Those of a link come through again, or some are lost, although it works."""
        self.world.hear(LinkChanged(data.draw(st.sampled_from(self.world.truth.links)), seen))

    @rule()
    def settle(self) -> None:
        self.world.settle()

    @rule(data=st.data(), kept=st.booleans())
    def restart_controller(self, data: st.DataObject, kept: bool) -> None:
        world = self.world
        state = Saver(world.machine).save()
        world.start(state if kept else None)
        news = [*world.truth.switches, *world.discover()]
        for event in data.draw(st.permutations(news)):
            if isinstance(event, int):
                world.connect(event)
            else:
                world.hear(event)

    @invariant()
    def nothing_arrives_twice_and_what_is_told_is_true(self) -> None:
        if hasattr(self, "world"):
            self.world.check_truth()

    def desired(self, dpid: int) -> Tables:
        """What all OFMs want of a switch."""
        return self.world.machine.ledger.desired(dpid)

    def teardown(self) -> None:
        """When everything has come back, everything is as it shall be."""
        if not hasattr(self, "world"):
            return
        world = self.world
        for dpid in set(world.truth.switches) - world.connected:
            world.connect(dpid)
        for link in world.all_links:
            world.set_link(link, up=True)
        for event in world.discover():
            world.hear(event)
        world.settle()
        world.run()
        for dpid, switch in world.fabric.switches.items():
            every = Tables.of(BASE_FLOWS).with_(world.machine.network.baseline)
            wanted = every.with_(self.desired(dpid))
            # A switch that has refused a meter is used without any.
            flows = (flow for flow in switch.tables.flows.values() if flow.cookie != COOKIE | CLOSED)
            held = Tables.of(flows, switch.tables.groups.values(), switch.tables.meters.values())
            assert held in ([wanted] if switch.meters.most is None else [wanted, wanted.unmetered()])
        world.check_budget()
        for topic, record in world.machine.records.items():
            assert record.state == world.told[topic]
            assert record.state.status in (Status.CONSTRUCTED, Status.REFUSED)
            assert (record.state.status is Status.REFUSED) == (record.state.reason is not None)
        assert all(
            state.status is Status.NONE for topic, state in world.told.items() if topic not in world.machine.records
        )


class Membership(RuleBasedStateMachine):
    """Brokers join and leave; the network is well."""

    world: World

    @initialize(
        network=networks(least=4),
        entries=st.sampled_from([1000, 12]),
        buckets=st.sampled_from([1000, 12]),
        spread=st.booleans(),
    )
    def begin(self, network: Network, entries: int, buckets: int, spread: bool) -> None:
        self.world = World(network, rules(entries, buckets, spread=spread))
        self.world.appear()
        self.world.run()
        self.world.settle()

    @rule(data=st.data(), topic=st.sampled_from(TOPICS))
    def intent(self, data: st.DataObject, topic: str) -> None:
        brokers = st.frozensets(st.sampled_from(self.world.network.brokers), min_size=1)
        self.world.intent(topic, data.draw(brokers))

    @rule(topic=st.sampled_from(TOPICS))
    def forget(self, topic: str) -> None:
        self.world.forget(topic)

    @precondition(lambda self: self.world.todo)
    @rule(data=st.data(), steps=st.integers(1, 8))
    def work(self, data: st.DataObject, steps: int) -> None:
        for _ in range(steps):
            if self.world.todo:
                self.world.step(data.draw(st.sampled_from(sorted(self.world.todo))))
                self.hold()

    @rule()
    def finish(self) -> None:
        self.world.run()

    @invariant()
    def hold(self) -> None:
        if hasattr(self, "world"):
            self.world.check_truth()
            self.world.check_budget()
            self.world.check_limits()
            for record in self.world.machine.records.values():
                if record.state.status is Status.UPDATING and record.former is not None and record.plan is not None:
                    stay = record.former.tree.brokers.keys() & record.plan.tree.brokers.keys()
                    assert stay <= set(record.state.brokers), "who stays, stays connected"


@settings(phases=[Phase.generate], max_examples=60)
@given(st.data(), networks(least=4), st.booleans(), st.sampled_from([0, AMPLE]), st.booleans(), st.booleans())
def test_a_restarted_controller_finds_everything_in_place_and_changes_nothing(
    data: st.DataObject, network: Network, kept: bool, limit: int, spread: bool, failover: bool
) -> None:
    world = World(network, rules(limit=limit, spread=spread, failover=failover))
    world.appear()
    world.run()
    chosen = st.frozensets(st.sampled_from(network.brokers), min_size=1)
    for topic in TOPICS:
        for _ in range(data.draw(st.integers(1, 3))):  # some history, so that trees are not what a fresh plan would be
            world.intent(topic, data.draw(chosen), data.draw(chosen))
            world.run()
    intents = {topic: record.intent for topic, record in world.machine.records.items()}
    addresses = {topic: record.address for topic, record in world.machine.records.items()}
    state, applied = Saver(world.machine).save(), world.applied
    world.start(state if kept else None)
    if not kept:
        for topic, intent in intents.items():
            world.hear(Intended(topic, intent))
    news = [*world.truth.switches, *world.discover()]
    for event in data.draw(st.permutations(news)):
        if isinstance(event, int):
            world.connect(event)
        else:
            world.hear(event)
        if data.draw(st.booleans()) and world.todo:
            world.step(min(world.todo))
    world.run()
    world.settle()
    world.run()
    if addresses == {topic: record.address for topic, record in world.machine.records.items()}:
        assert world.applied == applied
    assert all(record.state.status is Status.CONSTRUCTED for record in world.machine.records.values())
    world.check_truth()
    world.check_limits()


# No shrinking: it takes minutes here, and the steps of a failing life are short enough to read.
TestMembership = Membership.TestCase
TestMembership.settings = settings(stateful_step_count=30, max_examples=60, phases=[Phase.generate])
TestLife = Life.TestCase
TestLife.settings = settings(stateful_step_count=40, max_examples=60, phases=[Phase.generate])
