"""Reconciliation: whatever happens on the way, the same tables; and what members notice of it is nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.flows.plan import GUARD, Loopback, Ofm, Plan, plan, replanned
from saps.ofm.flows.reconcile import difference, rollout
from saps.ofm.flows.tables import (
    Action,
    Barrier,
    Bucket,
    Change,
    DropFlow,
    DropGroup,
    DropMeter,
    Flow,
    Group,
    GroupKind,
    Match,
    Meter,
    Output,
    PutFlow,
    PutGroup,
    PutMeter,
    SetField,
    Tables,
    ToGroup,
)
from saps.ofm.network.topology import BrokerAddress, Port
from saps.ofm.switch.packets import Packet
from saps.ofm.switch.switch import RefusedError, Switch
from saps.ofm.trees.tree import SharedTree, Tree
from tests.ofm.fabric import Fabric
from tests.ofm.networks import (
    BASELINE,
    Network,
    came_out,
    fabric_with,
    networks,
    ofms,
    received_by,
    sent_by,
    subsets,
    wanted,
)

pytestmark = pytest.mark.slow

LOOPBACK = Loopback("10.0.255.254", "02:ff:00:00:00:01")


@st.composite
def some_tables(draw: st.DrawFn) -> Tables:
    """Any tables: few names, so that two of them have much in common; groups that hand on to groups."""
    plain: list[Action] = [Output(1), Output(2), SetField("udp_dst", 9)]
    groups: list[Group] = []
    for id in draw(st.permutations([1, 2, 3, 4]))[: draw(st.integers(0, 4))]:
        known: list[Action] = [ToGroup(group.id) for group in groups]
        actions = st.lists(st.sampled_from(plain + known), max_size=3).map(tuple)
        kind = draw(st.sampled_from(GroupKind))
        least, most = (1, 1) if kind is GroupKind.INDIRECT else (0, 3)
        buckets = draw(st.lists(actions.map(Bucket), min_size=least, max_size=most))
        groups.append(Group(id, tuple(buckets), kind))
    meters = [Meter(id, draw(st.integers(1, 2))) for id in draw(st.sets(st.integers(1, 3)))]
    flows = []
    for port in draw(st.sets(st.integers(1, 4))):
        actions = st.lists(st.sampled_from(plain + [ToGroup(group.id) for group in groups]), max_size=3).map(tuple)
        meter = draw(st.sampled_from([None, *(meter.id for meter in meters)]))
        flows.append(Flow(1, Match.of(in_port=port), draw(actions), cookie=draw(st.integers(1, 2)), meter=meter))
    return Tables.of(flows, groups, meters)


def normal_form(tables: Tables) -> object:
    """What tables mean: the buckets of ALL have no order."""
    groups = {
        id: (group.kind, Counter(group.buckets) if group.kind is GroupKind.ALL else group.buckets)
        for id, group in tables.groups.items()
    }
    return dict(tables.flows), groups, dict(tables.meters)


def holding(tables: Tables) -> Switch:
    switch = Switch()
    switch.apply(difference(Tables(), tables))
    return switch


@given(some_tables(), some_tables())
def test_the_difference_makes_the_desired_tables_and_then_there_is_none(actual: Tables, desired: Tables) -> None:
    switch = holding(actual)
    assert normal_form(switch.tables) == normal_form(actual)
    switch.apply(difference(actual, desired))
    assert normal_form(switch.tables) == normal_form(desired)
    assert difference(switch.tables, desired) == []


@given(st.data(), some_tables(), some_tables(), some_tables())
def test_applied_partly_twice_or_late_it_converges(
    data: st.DataObject, first: Tables, second: Tables, desired: Tables
) -> None:
    switch = holding(first)
    late = difference(first, second)
    now = difference(first, desired)
    switch.apply(now[: data.draw(st.integers(0, len(now)))])
    switch.apply(difference(switch.tables, desired))
    switch.apply(difference(switch.tables, desired))
    # Something old arrives after all: the switch refuses it or does it, even in part.
    for change in late[data.draw(st.integers(0, len(late))) :]:
        with suppress(RefusedError):
            switch.apply([change])
    switch.apply(difference(switch.tables, desired))
    assert normal_form(switch.tables) == normal_form(desired)


@given(some_tables(), some_tables())
def test_a_repeated_difference_changes_nothing(actual: Tables, desired: Tables) -> None:
    switch = holding(actual)
    changes = difference(actual, desired)
    for _ in range(2):
        switch.apply(changes)
    assert normal_form(switch.tables) == normal_form(desired)


@given(some_tables(), some_tables())
def test_no_flow_is_ever_without_its_group_or_meter_and_steps_are_fenced(actual: Tables, desired: Tables) -> None:
    changes = difference(actual, desired)
    assert not changes or changes[-1] == Barrier()
    steps = {PutMeter: 0, PutGroup: 0, PutFlow: 1, DropFlow: 2, DropGroup: 3, DropMeter: 3}
    last = 0
    fenced = True
    for change in changes:
        if isinstance(change, Barrier):
            fenced = True
            continue
        step = steps[type(change)]
        assert step == last or (step > last and fenced)
        last, fenced = step, False


# -- from plan to plan


@st.composite
def moves(draw: st.DrawFn) -> tuple[Network, Plan, Plan]:
    """Two plans of one OFM: brokers leave and join one by one, or the tree goes other ways as well."""
    network, ofm = draw(networks(least=4)), draw(ofms())
    fates = [draw(st.sampled_from(["stays", "stays", "leaves", "joins", "apart"])) for _ in network.brokers]
    named = list(zip(network.brokers, fates, strict=True))
    tree = SharedTree().plan(network.topology, [broker for broker, fate in named if fate in ("stays", "leaves")])
    before = plan(ofm, tree, draw(subsets(network)))
    if draw(st.booleans()):
        for broker, fate in draw(st.permutations(named)):
            if fate == "leaves":
                tree = tree.without([broker])
            if fate == "joins":
                tree = SharedTree().join(network.topology, tree, broker)
    else:
        # What was in the tree is dear now, so that the next one differs.
        others = SharedTree(lambda link: 9 if link in before.tree.links else 1)
        tree = others.plan(network.topology, [broker for broker, fate in named if fate in ("stays", "joins")])
    return network, before, plan(ofm, tree, draw(subsets(network)))


def changes(before: Plan | None, after: Plan | None) -> list[dict[int, list[Change]]]:
    """The stages of a rollout by what is changed at each switch."""
    now = dict(before.tables) if before is not None else {}
    stages: list[dict[int, list[Change]]] = []
    for targets in rollout(before, after):
        stages.append({dpid: difference(now.get(dpid, Tables()), tables) for dpid, tables in targets.items()})
        now |= targets
    return stages


def single_steps(data: st.DataObject, stages: list[dict[int, list[Change]]]) -> list[tuple[int, Change]]:
    """The changes one by one: within a stage the switches take turns at random, each keeps its own order."""
    steps = []
    for stage in stages:
        turns = data.draw(st.permutations([dpid for dpid, changes in stage.items() for _ in changes]))
        queues = {dpid: iter(changes) for dpid, changes in stage.items()}
        steps += [(dpid, next(queues[dpid])) for dpid in turns]
    return steps


class Watch:
    """What must hold of any packet that is sent while one plan replaces another."""

    def __init__(self, before: Plan, after: Plan) -> None:
        self.ofm = before.ofm
        self.members = {*before.tree.brokers.items(), *after.tree.brokers.items()}
        self.stable = dict(before.tree.shared(after.tree).core.brokers)
        self.receivers = self.stable.keys() - before.silent - after.silent

    def check(self, sender: BrokerAddress, here: Port, packet: Packet, came: Counter[tuple[Port, Packet]]) -> None:
        """Nobody gets a copy twice, or somebody else's. Stable brokers, those of the largest part of the tree
        that stays, get theirs if the sender is one of them; and whoever sent it, if it comes back to its sender."""
        assert set(came.values()) <= {1}
        possible = {self.copy(broker, place, here, packet) for broker, place in self.members}
        if not self.ofm.per_port:  # then anyone may send, only without the marks of the broker's own flow
            possible |= {(place, replace(copy, ip_dscp=packet.ip_dscp)) for place, copy in possible}
        assert set(came) <= possible
        returned = self.copy(sender, here, here, packet)
        if self.stable.get(sender) == here:
            assert returned in came
        if returned in came:
            others = self.receivers - {sender}
            assert {self.copy(broker, self.stable[broker], here, packet) for broker in others} <= set(came)

    def copy(self, broker: BrokerAddress, place: Port, here: Port, packet: Packet) -> tuple[Port, Packet]:
        return place, received_by(broker, packet, self.ofm, returned=place == here)


def dropped(fabric: Fabric) -> int:
    """Packets to OFM addresses that belonged nowhere so far."""
    return sum(
        count.packets
        for switch in fabric.switches.values()
        for (_, priority, _), count in switch.flow_counts.items()
        if priority == GUARD
    )


def assert_holds(fabric: Fabric, after: Plan) -> None:
    for dpid, switch in fabric.switches.items():
        assert difference(switch.tables, BASELINE.with_(after.tables.get(dpid, Tables()))) == []


@given(st.data(), moves())
def test_packets_between_any_two_changes_arrive_once_and_loopback_packets_tell_the_truth(
    data: st.DataObject, move: tuple[Network, Plan, Plan]
) -> None:
    network, before, after = move
    fabric, watch = fabric_with(network.topology, before), Watch(before, after)
    for dpid, change in single_steps(data, changes(before, after)):
        fabric.switches[dpid].apply([change])
        for sender, here in sorted(watch.members):
            packet, ring_split = sent_by(sender, before.ofm), dropped(fabric)
            watch.check(sender, here, packet, came_out(fabric.send(here, packet)))
            if watch.stable.get(sender) == here:
                # No copy is ever sent to a switch that has no use for it.
                assert dropped(fabric) == ring_split
    assert_holds(fabric, after)


@given(st.data(), moves())
def test_packets_under_way_while_tables_change_arrive_once(
    data: st.DataObject, move: tuple[Network, Plan, Plan]
) -> None:
    network, before, after = move
    fabric, watch = fabric_with(network.topology, before), Watch(before, after)
    sent = []
    for number, (dpid, change) in enumerate(single_steps(data, changes(before, after))):
        for sender, here in sorted(watch.stable.items()):
            packet = sent_by(sender, before.ofm, payload=f"{number} {sender}".encode())
            sent.append((sender, here, packet))
            fabric.inject(here, packet)
        for _ in range(data.draw(st.integers(0, 6))):
            fabric.step()
        fabric.switches[dpid].apply([change])
    while fabric.step():
        pass
    came: dict[bytes, Counter[tuple[Port, Packet]]] = defaultdict(Counter)
    for entry, count in came_out(fabric.outcome()).items():
        came[entry[1].payload][entry] = count
    for sender, here, packet in sent:
        watch.check(sender, here, packet, came[packet.payload])


@given(st.data(), moves())
def test_a_rollout_cut_short_or_late_converges(data: st.DataObject, move: tuple[Network, Plan, Plan]) -> None:
    network, before, after = move
    fabric = fabric_with(network.topology, before)
    steps = single_steps(data, changes(before, after))
    for dpid, change in steps[: data.draw(st.integers(0, len(steps)))]:
        fabric.switches[dpid].apply([change])
    for dpid in data.draw(st.sets(st.sampled_from(network.topology.switches))):
        fabric.restart(dpid)
    for dpid, switch in fabric.switches.items():
        switch.apply(difference(switch.tables, BASELINE.with_(after.tables.get(dpid, Tables()))))
    assert_holds(fabric, after)
    for sender, place in after.tree.brokers.items():
        packet = sent_by(sender, after.ofm)
        assert came_out(fabric.send(place, packet)) == wanted(after, sender, packet)


@given(moves())
def test_no_switch_ever_holds_more_than_the_larger_of_the_two_plans(move: tuple[Network, Plan, Plan]) -> None:
    network, before, after = move
    fabric = fabric_with(network.topology, before)
    for stage in changes(before, after):
        for dpid, steps in stage.items():
            for change in steps:
                fabric.switches[dpid].apply([change])
                held = fabric.switches[dpid].tables
                both = [plan.tables.get(dpid, Tables()) for plan in (before, after)]
                assert held.entries - BASELINE.entries <= max(tables.entries for tables in both)
                assert held.buckets <= max(tables.buckets for tables in both)


@given(moves())
def test_a_new_ofm_and_one_that_ends(move: tuple[Network, Plan, Plan]) -> None:
    network, _, made = move
    fabric = fabric_with(network.topology)
    for stages, end in ((changes(None, made), made), (changes(made, None), plan(made.ofm, Tree()))):
        for stage in stages:
            for dpid, steps in stage.items():
                fabric.switches[dpid].apply(steps)
        assert_holds(fabric, end)
    assert rollout(None, None) == rollout(made, made) == []


@given(moves())
def test_a_plan_that_keeps_what_is_the_same_is_the_same_plan(move: tuple[Network, Plan, Plan]) -> None:
    _, before, after = move
    assert replanned(before, after.ofm, after.tree, after.silent) == after
    assert replanned(after, before.ofm, before.tree, before.silent) == before


def test_plans_of_two_ofms_are_not_mixed_up() -> None:
    one, other = (plan(Ofm(OfmAddress("239.77.0.9", 5000 + n), n, LOOPBACK), Tree()) for n in (1, 2))
    with pytest.raises(ValueError, match="two OFMs"):
        rollout(one, other)
