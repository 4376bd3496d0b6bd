"""The codec: our fast ways agree with the library's slow ones, and what a switch is told is what it would tell."""

from __future__ import annotations

import ipaddress
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.ofm.flows.tables import (
    WIDTHS,
    Bucket,
    Flow,
    Group,
    GroupKind,
    Masked,
    Match,
    Meter,
    Output,
    PutFlow,
    PutGroup,
    SetField,
    ToGroup,
    ipv4,
)
from saps.ofm.openflow import requests as r
from saps.ofm.openflow.decode import Part, decode
from saps.ofm.openflow.encode import UnencodableError, encode
from saps.ofm.openflow.entries import NOTHING_OF_OURS
from saps.ofm.openflow.ofp import datapath, ofproto, parser
from saps.ofm.openflow.values import FlowCount
from tests.ofm.openflow.table_strategies import flows, group_entries, meter_entries


def text(field: str, value: int) -> str | int:
    """A field's value as the library's users write it."""
    if field.startswith("ipv"):
        size = WIDTHS[field] // 8
        return str(ipaddress.ip_address(value.to_bytes(size, "big")))
    return value.to_bytes(6, "big").hex(":") if WIDTHS[field] == 48 else value


def user_match(match: Match) -> dict[str, object]:
    full = {field: (1 << width) - 1 for field, width in WIDTHS.items()}
    return {
        field: text(field, wanted.value)
        if wanted.mask == full[field]
        else (text(field, wanted.value), text(field, wanted.mask))
        for field, wanted in match.fields
    }


def user_actions(flow: Flow) -> list[object]:
    written: list[object] = []
    for action in flow.actions:
        match action:
            case SetField(field, value):
                written.append(parser.OFPActionSetField(**{field: text(field, value)}))
            case Output(port):
                written.append(parser.OFPActionOutput(port, ofproto.OFPCML_NO_BUFFER))
            case ToGroup(group):
                written.append(parser.OFPActionGroup(group))
            case other:
                written.append(parser.OFPActionSetQueue(other.queue))
    return written


@given(flows((5, 6), (7, 8)), st.integers(1, 0xFFFFFFFF))
def test_a_flow_mod_is_what_the_library_writes_from_texts(flow: Flow, xid: int) -> None:
    instructions = [] if flow.meter is None else [parser.OFPInstructionMeter(flow.meter)]
    if flow.actions:
        instructions.append(parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, user_actions(flow)))
    if flow.goto is not None:
        instructions.append(parser.OFPInstructionGotoTable(flow.goto))
    message = parser.OFPFlowMod(
        datapath, cookie=flow.cookie, table_id=flow.table, priority=flow.priority, out_port=ofproto.OFPP_ANY,
        out_group=ofproto.OFPG_ANY, match=parser.OFPMatch(**user_match(flow.match)),
        instructions=instructions,
    )  # fmt: skip
    message.set_xid(xid)
    message.serialize()
    assert encode(PutFlow(flow), xid) == bytes(message.buf)


def multipart(kind: int, body: bytes, flags: int = 0, xid: int = 1) -> bytes:
    return struct.pack("!BBHIHHxxxx", 4, ofproto.OFPT_MULTIPART_REPLY, 16 + len(body), xid, kind, flags) + body


def flow_stats(flow: Flow) -> bytes:
    """A flow as a switch tells of it: match and instructions stand in it as in the flow-mod (7.3.5.2, 7.3.4.1)."""
    tail = encode(PutFlow(flow), 1)[48:]
    head = struct.pack(ofproto.OFP_FLOW_STATS_0_PACK_STR, 48 + len(tail), flow.table, 3, 500_000_000, flow.priority,
                       0, 0, 0, flow.cookie, 7, 700)  # fmt: skip
    return head + tail


@given(st.lists(flows((5, 6), (7, 8))))
def test_flows_are_read_as_they_were_written(entries: list[Flow]) -> None:
    part = decode(multipart(ofproto.OFPMP_FLOW, b"".join(flow_stats(flow) for flow in entries)))
    assert part == Part(r.AskFlows, False, tuple(FlowCount(flow, 7, 700, 3.5) for flow in entries))


@given(st.lists(st.integers(1, 9).flatmap(group_entries)))
def test_groups_are_read_as_they_were_written(entries: list[Group]) -> None:
    kinds = {GroupKind.ALL: 0, GroupKind.SELECT: 1, GroupKind.INDIRECT: 2, GroupKind.FAST_FAILOVER: 3}
    body = b""
    for group in entries:
        buckets = encode(PutGroup(group), 1)[16:]
        body += struct.pack("!HBxI", 8 + len(buckets), kinds[group.kind], group.id) + buckets
    assert decode(multipart(ofproto.OFPMP_GROUP_DESC, body)) == Part(r.AskGroups, False, tuple(entries))


def meter_config(meter: Meter) -> bytes:
    """A meter as a switch tells of it: as in the meter-mod, but for the length (7.3.5.13, 7.3.4.4)."""
    tail = encode(r.AddMeter(meter), 1)[10:]
    return struct.pack("!H", 2 + len(tail)) + tail


@given(st.lists(meter_entries))
def test_meters_are_read_as_they_were_written(entries: list[Meter]) -> None:
    body = b"".join(map(meter_config, entries))
    assert decode(multipart(ofproto.OFPMP_METER_CONFIG, body)) == Part(r.AskMeters, False, tuple(entries))


def test_a_meter_that_does_something_else_is_no_meter_of_ours() -> None:
    sound = bytearray(meter_config(Meter(7, 5)))
    kilobits, remark = bytearray(sound), bytearray(sound)
    kilobits[3], remark[9] = ofproto.OFPMF_KBPS, ofproto.OFPMBT_DSCP_REMARK
    two = struct.pack("!H", len(sound) + 16) + sound[2:] + sound[8:]
    part = decode(multipart(ofproto.OFPMP_METER_CONFIG, bytes(kilobits + remark + two)))
    assert part == Part(r.AskMeters, False, (Meter(7, 0),) * 3)


def foreign(flow: Flow) -> bytes:
    """As `flow_stats`, but with a metadata field in the match, which we have no word for."""
    field = bytes.fromhex("80000408") + bytes(8)
    tail = struct.pack("!HH", 1, 4 + len(field)) + field
    head = struct.pack(ofproto.OFP_FLOW_STATS_0_PACK_STR, 48 + len(tail), 0, 0, 0, flow.priority, 0, 0, 0, 1, 0, 0)
    return head + tail


def test_a_flow_with_a_foreign_match_is_no_flow_of_ours() -> None:
    part = decode(multipart(ofproto.OFPMP_FLOW, foreign(Flow(1, Match(), ()))))
    assert isinstance(part, Part)
    assert part.entries == (None,)


@pytest.mark.parametrize(
    "instructions",
    [
        pytest.param("0001 0008 02000000 0001 0008 03000000", id="two gotos"),
        pytest.param("0004 0018 00000000 0010 0010 00000001 00000000 00000000", id="pop-vlan"),
        pytest.param("0005 0008 00000000 0001 0008 02000000", id="clear and goto"),
        pytest.param("0006 0008 00000001 0006 0008 00000002", id="two meters"),
        pytest.param("0002 0018 00000000 0000000000000001 0000000000000001", id="metadata"),
    ],
)
def test_foreign_instructions_differ_from_every_plan(instructions: str) -> None:
    tail = struct.pack("!HHxxxx", 1, 4) + bytes.fromhex(instructions)
    body = struct.pack(ofproto.OFP_FLOW_STATS_0_PACK_STR, 48 + len(tail), 0, 0, 0, 9, 0, 0, 0, 1, 0, 0) + tail
    part = decode(multipart(ofproto.OFPMP_FLOW, body))
    assert isinstance(part, Part)
    [count] = part.entries
    assert isinstance(count, FlowCount)
    assert NOTHING_OF_OURS in count.flow.actions


def test_an_entry_that_will_time_out_differs_from_every_plan() -> None:
    for times in [(5, 0), (0, 5)]:
        tail = encode(PutFlow(Flow(9, Match(), (Output(1),))), 1)[48:]
        head = struct.pack(ofproto.OFP_FLOW_STATS_0_PACK_STR, 48 + len(tail), 0, 0, 0, 9, *times, 0, 1, 0, 0)
        part = decode(multipart(ofproto.OFPMP_FLOW, head + tail))
        assert isinstance(part, Part)
        [count] = part.entries
        assert isinstance(count, FlowCount)
        assert NOTHING_OF_OURS in count.flow.actions


def test_a_group_of_a_foreign_kind_differs_from_every_plan() -> None:
    kind = 128  # for experimenters (7.3.4.2)
    buckets = encode(PutGroup(Group(1, (Bucket((Output(1),)),))), 1)[16:]
    part = decode(multipart(ofproto.OFPMP_GROUP_DESC, struct.pack("!HBxI", 8 + len(buckets), kind, 1) + buckets))
    assert isinstance(part, Part)
    [group] = part.entries
    assert isinstance(group, Group)
    assert Bucket((NOTHING_OF_OURS,)) in group.buckets


def test_a_group_holds_818_buckets_of_three_rewrites_and_an_output() -> None:
    rewrites = (SetField("eth_dst", 1), SetField("ipv4_dst", ipv4("10.0.0.1")), SetField("udp_dst", 9), Output(1))
    buckets = (Bucket(rewrites),) * 818
    assert len(encode(PutGroup(Group(1, buckets)), 1)) == 16 + 818 * 80
    with pytest.raises(UnencodableError, match=r"no message can carry PutGroup\(group=Group\(id=1"):
        encode(PutGroup(Group(1, (*buckets, buckets[0]))), 1)


def test_a_number_too_large_for_its_field_is_named() -> None:
    with pytest.raises(UnencodableError, match="Output"):
        encode(PutFlow(Flow(1, Match(), (Output(1 << 32),))), 1)


def test_masks_are_written_only_where_they_say_something() -> None:
    exact = encode(PutFlow(Flow(1, Match.of(ipv4_dst=Masked(5, 0xFFFFFFFF)), ())), 1)
    assert exact == encode(PutFlow(Flow(1, Match.of(ipv4_dst=5), ())), 1)


def test_the_codec_comes_without_eventlet() -> None:
    check = "import saps.ofm.openflow.driver.server, sys; sys.exit('eventlet' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60, check=False).returncode == 0
