"""The software switch by itself, and several of them in a fabric. What Open vSwitch does is in test_ofm_oracle."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from saps.ofm.flows.tables import (
    CONTROLLER,
    ETH_IPV4,
    ETH_IPV6,
    IN_PORT,
    NORMAL,
    Action,
    Bucket,
    Change,
    DropFlow,
    DropGroup,
    DropMeter,
    Flow,
    Group,
    GroupKind,
    Masked,
    Match,
    Meter,
    Output,
    PutFlow,
    PutGroup,
    PutMeter,
    SetField,
    SetQueue,
    Tables,
    ToGroup,
)
from saps.ofm.network.topology import Port, Topology
from saps.ofm.switch.counters import Count, MeterCount
from saps.ofm.switch.learning import Learning
from saps.ofm.switch.packets import Packet
from saps.ofm.switch.switch import RefusedError, Switch
from tests.ofm.fabric import Fabric, LoopError
from tests.ofm.networks import broker_at

PACKET = Packet(eth_src=2, eth_dst=4, ip_src=1, ip_dst=2, udp_src=1, udp_dst=2, payload=b"12345")


def switch(*actions: Action, groups: list[Group] | None = None) -> Switch:
    """A switch that does this to every packet."""
    made = Switch()
    made.apply(PutGroup(group) for group in groups or [])
    made.apply([PutFlow(Flow(1, Match(), actions))])
    return made


fields = st.fixed_dictionaries(
    {},
    optional={
        "in_port": st.integers(1, 2),
        "eth_type": st.sampled_from([ETH_IPV4, ETH_IPV6]),
        "ipv4_dst": st.builds(Masked, st.integers(0, 7), st.integers(0, 7)),
        "ipv6_dst": st.builds(Masked, st.integers(0, 7), st.integers(0, 7)),
        "udp_dst": st.builds(Masked, st.integers(0, 7), st.integers(0, 7)),
    },
)


@given(
    st.lists(st.tuples(fields, st.booleans()), min_size=1, max_size=30),
    st.integers(1, 2),
    st.integers(0, 7),
    st.integers(0, 7),
    st.booleans(),
)
def test_the_flow_of_highest_priority_that_matches_is_found(
    entries: list[tuple[dict[str, int | Masked], bool]], port: int, ip: int, udp: int, six: bool
) -> None:
    packet = replace(PACKET, ip_dst=ip, udp_dst=udp, eth_type=ETH_IPV6 if six else ETH_IPV4)
    present = {"in_port": port, "eth_type": packet.eth_type, "ipv6_dst" if six else "ipv4_dst": ip, "udp_dst": udp}
    made, best = Switch(), 0
    for priority, (match, stays) in enumerate(entries, 1):
        flow = Flow(priority, Match.of(**match), (Output(100 + priority),))
        made.apply([PutFlow(flow)] if stays else [PutFlow(flow), DropFlow(flow)])
        fits = all(
            name in present and present[name] & masked.mask == masked.value for name, masked in flow.match.fields
        )
        best = priority if fits and stays else best
    assert made.receive(port, packet) == ([(100 + best, packet)] if best else [])
    assert made.missed[0] == (not best)


def test_what_a_group_rewrites_is_not_seen_after_it() -> None:
    group = Group(1, (Bucket((SetField("udp_dst", 9), Output(2))), Bucket((Output(3),))))
    made = switch(SetField("ip_dscp", 5), ToGroup(1), SetField("udp_src", 7), Output(4), groups=[group])
    marked = replace(PACKET, ip_dscp=5)
    assert made.receive(1, PACKET) == [(2, replace(marked, udp_dst=9)), (3, marked), (4, replace(marked, udp_src=7))]


def test_nothing_goes_back_where_it_came_from_but_by_in_port() -> None:
    group = Group(1, (Bucket((Output(1),)), Bucket((Output(2),))))
    made = switch(ToGroup(1), Output(1), Output(IN_PORT), groups=[group])
    assert made.receive(1, PACKET) == [(2, PACKET), (1, PACKET)]


def test_a_bucket_is_an_action_set() -> None:
    inner = Group(1, (Bucket((Output(5),)),))
    outer = Group(2, (Bucket((Output(2), SetField("udp_dst", 9), Output(3))), Bucket((ToGroup(1), Output(4)))))
    made = switch(ToGroup(2), groups=[inner, outer])
    assert made.receive(1, PACKET) == [(3, replace(PACKET, udp_dst=9)), (5, PACKET)]


def test_select_divides_flows_by_weight_and_keeps_each_together() -> None:
    buckets = (Bucket((Output(2),), weight=1), Bucket((Output(3),), weight=3), Bucket((Output(4),)))
    made = switch(ToGroup(1), groups=[Group(1, buckets, GroupKind.SELECT)])
    chosen: Counter[int] = Counter()
    for number in range(2000):
        packet = replace(PACKET, udp_src=number)
        first, again = made.receive(1, packet), made.receive(1, packet)
        assert len(first) == 1
        assert first == again
        chosen[first[0][0]] += 1
    assert chosen.keys() == {2, 3}
    assert 2.4 < chosen[3] / chosen[2] < 3.6
    assert switch(ToGroup(1), groups=[Group(1, (), GroupKind.SELECT)]).receive(1, PACKET) == []


def test_fast_failover_takes_the_first_that_is_up() -> None:
    up = {2, 3}
    made = Switch(alive=up.__contains__)
    buckets = tuple(Bucket((Output(port),), watch=port) for port in (2, 3))
    made.apply([PutGroup(Group(1, buckets, GroupKind.FAST_FAILOVER)), PutFlow(Flow(1, Match(), (ToGroup(1),)))])
    assert made.receive(1, PACKET) == [(2, PACKET)]
    up.discard(2)
    assert made.receive(1, PACKET) == [(3, PACKET)]
    up.discard(3)
    assert made.receive(1, PACKET) == []
    up.add(2)
    assert made.receive(1, PACKET) == [(2, PACKET)]


def test_everything_is_counted() -> None:
    group = Group(1, (Bucket((Output(1),)), Bucket((Output(2),))))
    made = switch(SetQueue(3), ToGroup(1), groups=[group])
    for _ in range(2):
        made.receive(1, PACKET)
    size = 14 + 20 + 8 + 5
    assert PACKET.size == size
    assert made.flow_counts == {(0, 1, Match()): Count(2, 2 * size)}
    assert made.group_counts == {1: Count(2, 2 * size)}
    assert (made.port_counts[1].received, made.port_counts[1].sent) == (Count(2, 2 * size), Count())
    assert made.port_counts[2].sent == Count(2, 2 * size)
    assert made.queued == {(2, 3): 2}
    made.apply([PutFlow(Flow(1, Match(), (Output(4),))), PutGroup(Group(1, ()))])
    assert made.flow_counts == {(0, 1, Match()): Count(2, 2 * size)}
    assert made.group_counts == {1: Count(2, 2 * size)}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (PutFlow(Flow(1, Match(), (ToGroup(9),))), "OFPBAC_BAD_OUT_GROUP"),
        (PutGroup(Group(3, (Bucket((ToGroup(9),)),))), "OFPBAC_BAD_OUT_GROUP"),
        (PutGroup(Group(1, (Bucket((ToGroup(2),)),))), "OFPGMFC_LOOP"),
        (PutGroup(Group(1, (Bucket((ToGroup(1),)),))), "OFPGMFC_LOOP"),
        (DropGroup(1), "OFPGMFC_CHAINED_GROUP"),
        (PutFlow(Flow(9, Match(), ())), "OFPFMFC_TABLE_FULL"),
        (PutFlow(Flow(1, Match(), (), meter=9)), "OFPMMFC_INVALID_METER"),
        (PutMeter(Meter(1, 5)), "OFPMMFC_OUT_OF_METERS"),
    ],
)
def test_what_a_switch_refuses_changes_nothing(change: Change, code: str) -> None:
    made = Switch(capacity=1, most_meters=0)
    made.apply([PutGroup(Group(1, ())), PutGroup(Group(2, (Bucket((ToGroup(1),)),))), PutFlow(Flow(1, Match(), ()))])
    before = made.tables
    with pytest.raises(RefusedError, match=code):
        made.apply([change])
    assert made.tables == before


@given(
    st.integers(1, 50),
    st.integers(0, 20),
    st.lists(st.tuples(st.fractions(0, 2, max_denominator=100), st.booleans()), max_size=60),
)
def test_a_meter_lets_a_burst_and_its_rate_through_and_no_more_in_any_time(
    rate: int, burst: int, packets: list[tuple[Fraction, bool]]
) -> None:
    now = Fraction(0)
    made = Switch(clock=lambda: now)  # type: ignore[arg-type, return-value]  # exact
    free, limited = Flow(1, Match(), (Output(2),)), Flow(1, Match(), (Output(2),), meter=7)
    made.apply([PutMeter(Meter(7, rate, burst)), PutFlow(limited)])
    room, came = burst or rate, 0
    passed: list[Fraction] = []
    for pause, metered in packets:
        now += pause
        made.apply([PutMeter(Meter(7, rate, burst)), PutFlow(limited if metered else free)])
        out = made.receive(1, PACKET)
        came += metered
        assert out or metered
        if metered and out:
            passed.append(now)
        elif metered:
            windows = ((now - first) * rate + room for first in passed)
            assert any(len(passed) - start + 1 > most for start, most in enumerate(windows)), "there was room for it"
    for start, first in enumerate(passed):
        for end, last in enumerate(passed[start:], 1):
            assert end <= room + (last - first) * rate
    assert made.meters.counts[7] == MeterCount(
        Count(came, came * PACKET.size), Count(came - len(passed), (came - len(passed)) * PACKET.size)
    )
    made.apply([DropMeter(7), DropMeter(7)])
    assert made.tables == (Tables() if not packets or packets[-1][1] else Tables.of([free]))


def test_deleting_a_group_takes_its_flows_along() -> None:
    made = switch(ToGroup(1), groups=[Group(1, ())])
    made.apply([DropGroup(1), DropGroup(1)])
    assert made.tables == Tables()


def test_only_the_flow_of_the_same_cookie_is_dropped() -> None:
    made = switch(Output(2))
    made.apply([DropFlow(Flow(1, Match(), (), cookie=8)), DropFlow(Flow(2, Match(), ()))])
    assert made.receive(1, PACKET) == [(2, PACKET)]


def test_a_rewrite_of_a_field_that_is_not_there_does_nothing() -> None:
    assert switch(SetField("ipv6_dst", 9), Output(2)).receive(1, PACKET) == [(2, PACKET)]
    other = replace(PACKET, eth_type=0x88CC)
    assert switch(SetField("udp_dst", 9), SetField("eth_dst", 9), Output(2)).receive(1, other) == [
        (2, replace(other, eth_dst=9))
    ]


# -- several switches


def line(*, ring: bool = False) -> Topology:
    """Three switches in a row, or in a ring."""
    topology = Topology()
    for dpid in (1, 2, 3):
        topology.switch_up(dpid, [9])
    topology.link_up(Port(1, 1), Port(2, 1))
    topology.link_up(Port(2, 2), Port(3, 1))
    if ring:
        topology.link_up(Port(3, 2), Port(1, 2))
    return topology


def test_unmatched_traffic_goes_the_switches_own_way() -> None:
    fabric = Fabric(line(), normal=lambda dpid: Learning({1, 2, 9} if dpid == 2 else {1, 9}))
    for made in fabric.switches.values():
        made.apply([PutFlow(Flow(0, Match(), (Output(NORMAL),)))])
    there, back = replace(PACKET, eth_src=2, eth_dst=4), replace(PACKET, eth_src=4, eth_dst=2)
    flooded = fabric.send(Port(1, 9), there)
    assert [(arrival.at, arrival.hops) for arrival in flooded.receiver] == [(Port(2, 9), 2), (Port(3, 9), 3)]
    assert [arrival.at for arrival in fabric.send(Port(3, 9), back).receiver] == [Port(1, 9)]
    assert [arrival.at for arrival in fabric.send(Port(1, 9), there).receiver] == [Port(3, 9)]
    assert fabric.links[Port(1, 1), Port(2, 1)] == Count(2, 2 * PACKET.size)
    assert (Port(2, 1), Port(1, 1)) in fabric.links


def test_only_so_many_stations_are_learnt_and_no_group_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saps.ofm.switch.learning.MOST", 2)
    learning, everyone = Learning({1, 2, 3}), 0xFFFFFFFFFFFF
    learning(3, replace(PACKET, eth_src=everyone, eth_dst=2))
    assert learning(1, replace(PACKET, eth_src=2, eth_dst=everyone)) == [2, 3]
    for station in (4, 2, 6):
        learning(2, replace(PACKET, eth_src=station, eth_dst=everyone))
    assert [len(learning(1, replace(PACKET, eth_src=2, eth_dst=to))) for to in (6, 4)] == [1, 2]


def test_a_loop_is_found_out() -> None:
    fabric = Fabric(line(ring=True))
    for made in fabric.switches.values():
        made.apply([PutFlow(Flow(0, Match(), (Output(1), Output(2))))])
    with pytest.raises(LoopError):
        fabric.send(Port(1, 9), PACKET)


def test_what_is_down_swallows_packets() -> None:
    topology = line()
    fabric = Fabric(topology)
    for made in fabric.switches.values():
        made.apply([PutFlow(Flow(0, Match(), (Output(1), Output(2), Output(9), Output(CONTROLLER))))])
    outcome = fabric.send(Port(1, 9), PACKET)
    assert outcome.at(Port(3, 9)) == [PACKET]
    assert [arrival.at.dpid for arrival in outcome.to_controller] == [1, 2, 3]
    topology.port_status(3, 1, up=False)
    assert [arrival.at for arrival in fabric.send(Port(1, 9), PACKET).receiver] == [Port(1, 2), Port(2, 9)]
    topology.port_status(2, 9, up=False)
    assert [arrival.at for arrival in fabric.send(Port(1, 9), PACKET).receiver] == [Port(1, 2)]
    topology.port_status(1, 9, up=False)
    assert fabric.send(Port(1, 9), PACKET).to_controller == []
    topology.switch_down(3)
    assert fabric.send(Port(3, 9), PACKET).to_controller == []


def test_a_restarted_switch_has_forgotten_everything() -> None:
    fabric = Fabric(line())
    fabric.switches[1].apply([PutFlow(Flow(0, Match(), (Output(1),)))])
    fabric.restart(1)
    assert fabric.switches[1].tables == Tables()
    assert fabric.send(Port(1, 9), PACKET).crossed == Counter()


def test_machines_have_addresses_of_their_own() -> None:
    assert len({broker_at(machine, 1).ip for machine in range(1000)}) == 1000
