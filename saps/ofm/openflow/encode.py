"""Requests as OpenFlow 1.3 messages (7.2, 7.3), by the classes of the codec.

Matches and set-field actions are written from integers by the codec's field writer: the way through its texts
("10.0.0.1") takes most of the time of a flow-mod.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from saps.ofm.flows.tables import (
    WIDTHS,
    Action,
    Bucket,
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
    SetField,
    SetQueue,
    ToGroup,
)
from saps.ofm.openflow import requests as r
from saps.ofm.openflow.ofp import datapath, ofproto, parser
from saps.ofm.openflow.requests import Request

OVS_ADD_OR_MODIFY = 0x8000
"""Open vSwitch's group command `OFPGC_ADD_OR_MOD` (openflow-1.1.h of its sources)."""

FIELDS: dict[str, int] = {field.name: field.num for field in ofproto.oxm_types if field.name in WIDTHS}
"""OXM class and field of each match field."""
SIZES: dict[str, int] = {name: (bits + 7) // 8 for name, bits in WIDTHS.items()}
"""Bytes of each match field."""

_KINDS = {GroupKind.ALL: ofproto.OFPGT_ALL, GroupKind.SELECT: ofproto.OFPGT_SELECT}


class UnencodableError(ValueError):
    """A request that no message can carry: longer than 65,535 bytes, or a number too large for its field."""

    def __init__(self, request: Request, cause: Exception) -> None:
        text = repr(request)
        super().__init__(f"no message can carry {text[:200]}{'...' * (len(text) > 200)}: {cause}")
        self.request = request


def encode(request: Request, xid: int) -> bytes:
    """The message for a request, under the transaction id `xid`. Raises `UnencodableError`."""
    try:
        return _finish(_ENCODERS[type(request)](request), xid)
    except (struct.error, OverflowError) as error:
        raise UnencodableError(request, error) from None


def hello(xid: int) -> bytes:
    """Our hello: version 1.3 and no other (7.5.1). The codec reads the element but does not write it."""
    bitmap = struct.pack("!HHI", ofproto.OFPHET_VERSIONBITMAP, 8, 1 << ofproto.OFP_VERSION)
    head = struct.pack(ofproto.OFP_HEADER_PACK_STR, ofproto.OFP_VERSION, ofproto.OFPT_HELLO, 8 + len(bitmap), xid)
    return head + bitmap


def echo_request(xid: int) -> bytes:
    """A question whether the peer lives (7.5.2)."""
    return _finish(parser.OFPEchoRequest(datapath, b""), xid)


def echo_reply(xid: int, data: bytes) -> bytes:
    """The answer to an echo request: its data (7.5.3)."""
    return _finish(parser.OFPEchoReply(datapath, data), xid)


def hello_failed(xid: int, text: str) -> bytes:
    """The error that says that there is no common version (7.5.1)."""
    code = ofproto.OFPHFC_INCOMPATIBLE
    return _finish(parser.OFPErrorMsg(datapath, ofproto.OFPET_HELLO_FAILED, code, text.encode("ascii")), xid)


def bad_version(xid: int, message: bytes) -> bytes:
    """The error that answers a message of another version than agreed; it carries the first 64 bytes (7.4.4)."""
    code = ofproto.OFPBRC_BAD_VERSION
    return _finish(parser.OFPErrorMsg(datapath, ofproto.OFPET_BAD_REQUEST, code, message[:64]), xid)


def _finish(message: Any, xid: int) -> bytes:
    message.set_xid(xid)
    message.serialize()
    return bytes(message.buf)


class _Match(parser.OFPMatch):  # type: ignore[misc]  # the codec has no types
    """A match that is written from our own words."""

    def __init__(self, match: Match) -> None:
        self.wanted = match

    def serialize(self, buf: bytearray, offset: int) -> int:
        """Write the match, padded to 8 bytes. Returns its bytes."""
        match = match_bytes(self.wanted)
        _write(buf, offset, match)
        return len(match)


class _SetField(parser.OFPActionSetField):  # type: ignore[misc]  # the codec has no types
    """A set-field action that is written from our own words."""

    def __init__(self, action: SetField) -> None:
        self.wanted = action

    def serialize(self, buf: bytearray, offset: int) -> int:
        """Write the action, padded to 8 bytes. Returns its bytes, which `len` has as well: os-ken wants them there."""
        action = set_field_bytes(self.wanted)
        self.len = len(action)
        _write(buf, offset, action)
        return self.len


def _write(buf: bytearray, offset: int, data: bytes) -> None:
    """Append at `offset`. The codec writes actions before the header in front of them: there may be a gap."""
    buf += bytes(offset - len(buf)) + data


def _bytes(field: str, value: int) -> bytes:
    return value.to_bytes(SIZES[field], "big")


def set_field_bytes(action: SetField) -> bytes:
    """The action, padded to 8 bytes (7.2.5)."""
    oxm = bytearray()
    ofproto.oxm_serialize(FIELDS[action.field], _bytes(action.field, action.value), None, oxm, 0)
    length = (4 + len(oxm) + 7) // 8 * 8
    return struct.pack("!HH", ofproto.OFPAT_SET_FIELD, length) + oxm + bytes(-(4 + len(oxm)) % 8)


@lru_cache(1024)
def match_bytes(match: Match) -> bytes:
    """The match (7.2.3.1). In the order of their numbers, fields come after those they require (7.2.3.8)."""
    body = bytearray()
    for name, masked in sorted(match.fields, key=lambda entry: FIELDS[entry[0]]):
        full = masked.mask == (1 << WIDTHS[name]) - 1
        mask = None if full else _bytes(name, masked.mask)
        ofproto.oxm_serialize(FIELDS[name], _bytes(name, masked.value), mask, body, len(body))
    length = 4 + len(body)
    return struct.pack("!HH", ofproto.OFPMT_OXM, length) + body + bytes(-length % 8)


def _action(action: Action) -> Any:
    match action:
        case Output(port):
            return parser.OFPActionOutput(port, ofproto.OFPCML_NO_BUFFER)
        case SetField():
            return _SetField(action)
        case ToGroup(group):
            return parser.OFPActionGroup(group)
        case SetQueue(queue):
            return parser.OFPActionSetQueue(queue)


def _actions(actions: Iterable[Action]) -> list[Any]:
    return [_action(action) for action in actions]


def _flow_mod(command: int, flow: Flow, mask: int = 0) -> Any:
    instructions = [] if flow.meter is None else [parser.OFPInstructionMeter(flow.meter)]
    if flow.actions:
        instructions.append(parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, _actions(flow.actions)))
    return parser.OFPFlowMod(
        datapath,
        cookie=flow.cookie,
        cookie_mask=mask,
        table_id=flow.table,
        command=command,
        priority=flow.priority,
        out_port=ofproto.OFPP_ANY,
        out_group=ofproto.OFPG_ANY,
        match=_Match(flow.match),
        instructions=instructions,
    )


def _group_mod(command: int, group: Group) -> Any:
    return parser.OFPGroupMod(datapath, command, _KINDS[group.kind], group.id, [_bucket(b) for b in group.buckets])


def _bucket(bucket: Bucket) -> Any:
    watch = ofproto.OFPP_ANY if bucket.watch is None else bucket.watch
    return parser.OFPBucket(bucket.weight, watch, ofproto.OFPG_ANY, _actions(bucket.actions))


def _meter_mod(command: int, meter: Meter) -> Any:
    flags = ofproto.OFPMF_PKTPS | (ofproto.OFPMF_BURST if meter.burst else 0)
    return parser.OFPMeterMod(datapath, command, flags, meter.id, [parser.OFPMeterBandDrop(meter.rate, meter.burst)])


def _ask_flows(ask: r.AskFlows) -> Any:
    return parser.OFPFlowStatsRequest(datapath, cookie=ask.cookie, cookie_mask=ask.mask, match=_Match(Match()))


def _drop_flows(drop: r.DropFlows) -> Any:
    flow = Flow(0, Match(), (), table=ofproto.OFPTT_ALL, cookie=drop.cookie)
    return _flow_mod(ofproto.OFPFC_DELETE, flow, drop.mask)


def _send_packet(send: r.SendPacket) -> Any:
    out = [parser.OFPActionOutput(send.port)]
    return parser.OFPPacketOut(datapath, ofproto.OFP_NO_BUFFER, ofproto.OFPP_CONTROLLER, out, send.frame)


def _whole_packets(_: r.SendWholePackets) -> Any:
    return parser.OFPSetConfig(datapath, ofproto.OFPC_FRAG_NORMAL, ofproto.OFPCML_NO_BUFFER)


_ENCODERS: dict[type, Callable[[Any], Any]] = {
    PutFlow: lambda put: _flow_mod(ofproto.OFPFC_ADD, put.flow),
    DropFlow: lambda drop: _flow_mod(ofproto.OFPFC_DELETE_STRICT, drop.flow, (1 << 64) - 1),
    r.DropFlows: _drop_flows,
    r.AddGroup: lambda add: _group_mod(ofproto.OFPGC_ADD, add.group),
    r.ModifyGroup: lambda modify: _group_mod(ofproto.OFPGC_MODIFY, modify.group),
    PutGroup: lambda put: _group_mod(OVS_ADD_OR_MODIFY, put.group),
    DropGroup: lambda drop: _group_mod(ofproto.OFPGC_DELETE, Group(drop.id, ())),
    r.AddMeter: lambda add: _meter_mod(ofproto.OFPMC_ADD, add.meter),
    r.ModifyMeter: lambda modify: _meter_mod(ofproto.OFPMC_MODIFY, modify.meter),
    DropMeter: lambda drop: parser.OFPMeterMod(datapath, ofproto.OFPMC_DELETE, 0, drop.id),
    r.AskFeatures: lambda _: parser.OFPFeaturesRequest(datapath),
    r.AskMaker: lambda _: parser.OFPDescStatsRequest(datapath, 0),
    r.AskPorts: lambda _: parser.OFPPortDescStatsRequest(datapath, 0),
    r.AskFlows: _ask_flows,
    r.AskGroups: lambda _: parser.OFPGroupDescStatsRequest(datapath, 0),
    r.AskGroupCounts: lambda _: parser.OFPGroupStatsRequest(datapath, 0, ofproto.OFPG_ALL),
    r.AskPortCounts: lambda _: parser.OFPPortStatsRequest(datapath, 0, ofproto.OFPP_ANY),
    r.AskMeters: lambda _: parser.OFPMeterConfigStatsRequest(datapath, 0, ofproto.OFPM_ALL),
    r.AskMeterCounts: lambda _: parser.OFPMeterStatsRequest(datapath, 0, ofproto.OFPM_ALL),
    r.AskRole: lambda ask: parser.OFPRoleRequest(datapath, int(ask.role), ask.generation),
    r.AskBarrier: lambda _: parser.OFPBarrierRequest(datapath),
    r.SendPacket: _send_packet,
    r.SendWholePackets: _whole_packets,
}
