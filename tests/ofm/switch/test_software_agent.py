"""The switch's side of OpenFlow against the controller's, byte for byte and without a socket."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from saps.ofm.flows.reconcile import difference
from saps.ofm.flows.tables import (
    CONTROLLER,
    NORMAL,
    Barrier,
    Bucket,
    Change,
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
from saps.ofm.openflow import requests as r
from saps.ofm.openflow.connection import Connection, State
from saps.ofm.openflow.events import Done, Event, Limits, Ready
from saps.ofm.openflow.values import MeterCount, PacketIn, PortChange, PortInfo, PortStatus, Role, RoleState
from saps.ofm.switch.bridge import Bridge, Handed
from saps.ofm.switch.openflow_agent import Agent
from saps.ofm.switch.packets import Packet
from saps.ofm.switch.switch import Switch
from tests.ofm.frames import encode
from tests.ofm.openflow.messages import message
from tests.ofm.openflow.table_strategies import COOKIE, COOKIE_MASK, tables

PORTS = [PortInfo(number, f"p{number}", number, True, 1000) for number in range(1, 51)]
PACKET = Packet(eth_src=2, eth_dst=4, ip_src=1, ip_dst=2, udp_src=1, udp_dst=2, payload=b"12345")


class Pair:
    """A controller's connection and a switch's agent, joined."""

    def __init__(self, capacity: int | None = None) -> None:
        self.bridge = Bridge(7, PORTS, set(range(1, 51)), capacity)
        self.sent: list[tuple[int, bytes]] = []
        self.agent = Agent(self.bridge, self.sent.extend)
        self.controller = Connection(Limits())
        self.events: list[Event] = []
        self.run()

    def run(self) -> None:
        """Carry bytes until nobody says any more."""
        while True:
            up, down = self.agent.take(), self.controller.take()
            if not up and not down:
                return
            self.agent.receive(down)
            self.events += self.controller.receive(up)

    def ask(self, question: r.Question) -> Any:
        return self.done(self.controller.ask(question)).answer

    def change(self, *mods: r.Mod) -> list[str]:
        """The names of the errors."""
        return [refusal.error.name for refusal in self.done(self.controller.transact(mods)).refusals]

    def done(self, ticket: int) -> Done:
        self.run()
        return next(event for event in self.events if isinstance(event, Done) and event.ticket == ticket)

    def tables(self) -> Tables:
        flows = (count.flow for count in self.ask(r.AskFlows(COOKIE, COOKIE_MASK)))
        return Tables.of(flows, self.ask(r.AskGroups()), self.ask(r.AskMeters()))


def portable(change: Change, known: set[int], meters: Collection[int]) -> r.Mod:
    """As `openflow.switch` says it to switches that are not Open vSwitch."""
    if isinstance(change, PutGroup):
        mod = r.ModifyGroup(change.group) if change.group.id in known else r.AddGroup(change.group)
        known.add(change.group.id)
        return mod
    if isinstance(change, PutMeter):
        return r.ModifyMeter(change.meter) if change.meter.id in meters else r.AddMeter(change.meter)
    return change  # type: ignore[return-value]


def test_the_handshake_tells_who_it_is() -> None:
    pair = Pair()
    ready = next(event for event in pair.events if isinstance(event, Ready))
    assert (ready.features.dpid, ready.maker, ready.ports) == (7, ("SAPS", "software switch"), tuple(PORTS))


@settings(max_examples=25)
@given(tables(), tables(), st.lists(st.integers(1, 50), min_size=1, max_size=4))
def test_tables_written_through_openflow_are_read_back_and_forward_as_the_switch_itself(
    first: Tables, second: Tables, ports: list[int]
) -> None:
    pair, direct = Pair(), Switch(normal=lambda port, packet: ())
    pair.bridge.switch.normal = lambda port, packet: ()
    known: set[int] = set()
    for before, wanted in ((Tables(), first), (first, second)):
        changes = [change for change in difference(before, wanted) if not isinstance(change, Barrier)]
        direct.apply(changes)
        assert pair.change(*(portable(change, known, before.meters) for change in changes)) == []
        known = set(pair.bridge.switch.tables.groups)
        assert pair.tables() == wanted == direct.tables
    for port in ports:
        sent, handed = pair.bridge.receive(port, encode(PACKET))
        expected = direct.receive(port, PACKET)
        assert [out for out, _ in sent] == [out for out, _ in expected if out in pair.bridge.ports]
        assert not handed
    assert {count.id: (count.packets, count.dropped) for count in pair.ask(r.AskMeterCounts())} == {
        id: (count.came.packets, count.dropped.packets) for id, count in direct.meters.counts.items()
    }
    counts = {count.flow.name: count.packets for count in pair.ask(r.AskFlows())}
    assert counts == {name: count.packets for name, count in direct.flow_counts.items()}


FLOW = Flow(5, Match.of(in_port=1), (SetField("eth_dst", 9), Output(2)), cookie=COOKIE)


@pytest.mark.parametrize(
    ("mod", "error"),
    [
        (PutFlow(Flow(1, Match(), (Output(99),))), "OFPBAC_BAD_OUT_PORT"),
        (PutFlow(Flow(1, Match(), (SetField("ip_dscp", 64),))), "OFPBAC_BAD_TYPE"),
        (PutFlow(Flow(1, Match(), (ToGroup(8),))), "OFPBAC_BAD_OUT_GROUP"),
        (PutFlow(Flow(1, Match(), (), table=254)), "OFPFMFC_BAD_TABLE_ID"),
        (PutFlow(Flow(5, Match.of(in_port=1), (), table=3, goto=3)), "OFPBIC_BAD_TABLE_ID"),
        (r.AddGroup(Group(2, (), GroupKind.INDIRECT)), "OFPGMFC_INVALID_GROUP"),
        (PutFlow(Flow(1, Match(), ())), "OFPFMFC_TABLE_FULL"),
        (r.ModifyGroup(Group(8, ())), "OFPGMFC_UNKNOWN_GROUP"),
        (r.AddGroup(Group(1, (), GroupKind.SELECT)), "OFPGMFC_GROUP_EXISTS"),
        (r.ModifyGroup(Group(1, (Bucket((ToGroup(1),)),))), "OFPGMFC_LOOP"),
        (PutGroup(Group(1, ())), "OFPGMFC_BAD_COMMAND"),
        (r.AddMeter(Meter(1, 5)), "OFPMMFC_METER_EXISTS"),
        (r.ModifyMeter(Meter(2, 5)), "OFPMMFC_UNKNOWN_METER"),
        (r.AddMeter(Meter(2, 0)), "OFPMMFC_BAD_BAND"),
        (r.AddMeter(Meter(0, 5)), "OFPMMFC_INVALID_METER"),
        (PutFlow(Flow(5, Match.of(in_port=1), (), cookie=COOKIE, meter=9)), "OFPMMFC_INVALID_METER"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name_and_changes_nothing(mod: r.Mod, error: str) -> None:
    pair = Pair(capacity=1)
    assert pair.change(PutFlow(FLOW), r.AddGroup(Group(1, ())), r.AddMeter(Meter(1, 100, 10))) == []
    before = pair.tables()
    assert pair.change(mod) == [error]
    assert pair.tables() == before
    assert pair.ask(r.AskMeters()) == (Meter(1, 100, 10),)


def test_entries_are_deleted_by_cookie_and_groups_with_their_users() -> None:
    pair = Pair()
    group = Group(3, (Bucket((Output(2),)),))
    other = Flow(6, Match(), (ToGroup(3),), cookie=1)
    assert pair.change(PutFlow(FLOW), r.AddGroup(group), PutFlow(other)) == []
    assert pair.change(r.DropFlows(COOKIE, COOKIE_MASK)) == []
    assert [count.flow for count in pair.ask(r.AskFlows())] == [other]
    assert [count.flows for count in pair.ask(r.AskGroupCounts())] == [1]
    assert pair.change(DropGroup(3)) == []
    assert pair.ask(r.AskFlows()) == pair.ask(r.AskGroups()) == ()


def test_a_meter_drops_what_is_too_much_until_time_has_passed() -> None:
    pair, frame = Pair(), encode(PACKET)
    assert pair.change(r.AddMeter(Meter(4, 10, 3)), PutFlow(replace(FLOW, meter=4))) == []
    assert [len(pair.bridge.receive(1, frame)[0]) for _ in range(5)] == [1, 1, 1, 0, 0]
    pair.bridge.now += 0.2
    assert [len(pair.bridge.receive(1, frame)[0]) for _ in range(3)] == [1, 1, 0]
    assert pair.ask(r.AskMeterCounts()) == (MeterCount(4, 1, 8, 8 * PACKET.size, 3),)
    assert pair.change(DropMeter(4)) == []
    assert pair.ask(r.AskFlows()) == pair.ask(r.AskMeters()) == ()


def test_long_lists_come_in_parts() -> None:
    pair = Pair()
    flows = [Flow(number, Match(), (Output(1),), cookie=COOKIE) for number in range(1, 1500)]
    assert pair.change(*map(PutFlow, flows)) == []
    assert sorted(count.flow.priority for count in pair.ask(r.AskFlows())) == list(range(1, 1500))


def test_packets_ports_and_roles() -> None:
    pair, frame = Pair(), encode(PACKET)
    assert pair.change(PutFlow(Flow(5, Match.of(in_port=1), (Output(CONTROLLER), Output(2)), cookie=COOKIE))) == []
    sent, handed = pair.bridge.receive(1, frame)
    pair.agent.hand(handed)
    pair.run()
    assert sent == [(2, frame)]
    assert [event for event in pair.events if isinstance(event, PacketIn)] == [PacketIn(1, COOKIE, frame)]
    pair.controller.tell(r.SendPacket(4, frame))
    pair.run()
    assert pair.sent == [(4, frame)]
    pair.controller.tell(r.SendPacket(NORMAL, frame, 3))
    pair.run()
    assert {port for port, _ in pair.sent[1:]} == set(pair.bridge.ports) - {3}, "flooded, as if it had come by port 3"
    counts = {count.port: (count.rx_packets, count.tx_packets) for count in pair.ask(r.AskPortCounts())}
    assert (counts[1], counts[2], counts[4]) == ((1, 1), (0, 2), (0, 2))
    down = PortInfo(1, "p1", 1, False, 1000)
    pair.bridge.ports[1] = down
    pair.agent.port_changed(down)
    pair.run()
    assert PortStatus(PortChange.MODIFIED, down) in pair.events
    assert pair.bridge.receive(1, frame) == ([], [])
    assert pair.ask(r.AskRole(Role.SLAVE, 5)) == RoleState(Role.SLAVE, 5)
    assert pair.change(PutFlow(FLOW)) == ["OFPBRC_IS_SLAVE"]
    stale = pair.done(pair.controller.ask(r.AskRole(Role.MASTER, 4)))
    assert [refusal.error.name for refusal in stale.refusals] == ["OFPRRFC_STALE"]
    assert pair.ask(r.AskRole(Role.MASTER, 6)) == RoleState(Role.MASTER, 6)
    assert pair.change(PutFlow(FLOW)) == []


@given(st.lists(st.tuples(st.integers(0, 40), st.binary(max_size=90)), max_size=8))
def test_no_message_of_a_controller_is_too_much_for_it(messages: list[tuple[int, bytes]]) -> None:
    pair = Pair()
    for kind, body in messages:
        pair.agent.receive(message(kind, body, xid=3))
    pair.agent.receive(message(20, xid=9))  # a barrier
    if pair.agent.lost is None:
        assert struct.pack("!BBHI", 4, 21, 8, 9) in pair.agent.take()


@pytest.mark.parametrize("hello", [message(0, version=1), message(2), b"\x04\x00\x00\x04\x00\x00\x00\x00"])
def test_who_speaks_no_openflow_1_3_is_told_and_left(hello: bytes) -> None:
    agent = Agent(Bridge(1, PORTS, set()), lambda frames: None)
    agent.receive(hello)
    assert agent.lost


def test_a_controller_that_is_silent_is_asked_and_then_left() -> None:
    pair = Pair()
    pair.agent.tick(6.0)
    pair.run()
    pair.agent.tick(9.0)
    assert pair.agent.lost is None, "it has answered"
    pair.agent.take()
    pair.agent.tick(20.0)
    assert pair.agent.lost is not None
    assert pair.controller.state is State.READY


def test_packet_ins_that_nobody_takes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that come together; what is answered to the controller still is."""
    monkeypatch.setattr("saps.ofm.switch.openflow_agent.MOST_WAITING", 2000)
    pair = Pair()
    for _ in range(30):
        pair.agent.hand([Handed(1, 0, bytes(64))] * 30)
    assert 2000 <= len(pair.agent._out) < 2000 + 200
    pair.run()
    came = len([event for event in pair.events if isinstance(event, PacketIn)])
    assert 0 < came < 30
    pair.agent.hand([Handed(1, 0, bytes(64))])
    pair.run()
    assert len([event for event in pair.events if isinstance(event, PacketIn)]) == came + 1
