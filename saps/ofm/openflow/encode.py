"""Encodes requests as OpenFlow 1.3 messages (7.2, 7.3).

Frequent messages (entries, groups, questions for entries, packets) are packed here, since the codec's classes take ten
times as long. The codec writes rare ones. Tests compare the packed messages with the codec's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from saps.ofm.flows.tables import (
    WIDTHS,
    Action,
    Bucket,
    DropFlow,
    DropGroup,
    DropMeter,
    Flow,
    Group,
    Masked,
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
from saps.ofm.openflow.entries import KINDS, SIZES
from saps.ofm.openflow.ofp import datapath, ofproto, parser
from saps.ofm.openflow.requests import Request

OVS_ADD_OR_MODIFY = 0x8000
"""Open vSwitch's group command `OFPGC_ADD_OR_MOD` (openflow-1.1.h of its sources)."""

FIELDS: dict[str, int] = {field.name: field.num for field in ofproto.oxm_types if field.name in WIDTHS}
"""OXM class and field number of each match field."""
FULL: dict[str, int] = {name: (1 << width) - 1 for name, width in WIDTHS.items()}
"""Mask of each match field that covers all its bits."""
_HEAD, _HALVES = struct.Struct("!I"), struct.Struct("!HH")
_NUMBERED, _OUTPUT = struct.Struct("!HHI"), struct.Struct("!HHIH6x")
KIND_NUMBERS = {kind: number for number, kind in KINDS.items()}
"""Number of each kind of group."""


class UnencodableError(ValueError):
    """A request that no message can carry: it is longer than 65,535 bytes, or a number is too large for its field."""

    def __init__(self, request: Request, cause: Exception) -> None:
        text = repr(request)
        super().__init__(f"no message can carry {text[:200]}{'...' * (len(text) > 200)}: {cause}")
        self.request = request


def encode(request: Request, xid: int) -> bytes:
    """Return the message for a request, under the transaction id `xid`. Raises `UnencodableError`."""
    try:
        return _finish(_ENCODERS[type(request)](request), xid)
    except (struct.error, OverflowError) as error:
        raise UnencodableError(request, error) from None


def hello(xid: int) -> bytes:
    """Return the controller's hello: version 1.3 and no other (7.5.1). It is packed here, as the codec only reads this
    element."""
    bitmap = struct.pack("!HHI", ofproto.OFPHET_VERSIONBITMAP, 8, 1 << ofproto.OFP_VERSION)
    head = struct.pack(ofproto.OFP_HEADER_PACK_STR, ofproto.OFP_VERSION, ofproto.OFPT_HELLO, 8 + len(bitmap), xid)
    return head + bitmap


def echo_request(xid: int) -> bytes:
    """Return an echo request, which asks whether the peer is alive (7.5.2)."""
    return _finish(parser.OFPEchoRequest(datapath, b""), xid)


def echo_reply(xid: int, data: bytes) -> bytes:
    """Return an echo reply with the request's data (7.5.3)."""
    return _finish(parser.OFPEchoReply(datapath, data), xid)


def hello_failed(xid: int, text: str) -> bytes:
    """Return the error for the lack of a common version (7.5.1)."""
    code = ofproto.OFPHFC_INCOMPATIBLE
    return _finish(parser.OFPErrorMsg(datapath, ofproto.OFPET_HELLO_FAILED, code, text.encode("ascii")), xid)


def bad_version(xid: int, message: bytes) -> bytes:
    """Return the error for a message of another version than agreed. It carries the message's first 64 bytes
    (7.4.4)."""
    code = ofproto.OFPBRC_BAD_VERSION
    return _finish(parser.OFPErrorMsg(datapath, ofproto.OFPET_BAD_REQUEST, code, message[:64]), xid)


class _Written(NamedTuple):
    """A message without its header."""

    kind: int
    body: bytes


def _finish(message: Any, xid: int) -> bytes:
    if isinstance(message, _Written):
        length = 8 + len(message.body)
        return struct.pack(ofproto.OFP_HEADER_PACK_STR, ofproto.OFP_VERSION, message.kind, length, xid) + message.body
    message.set_xid(xid)
    message.serialize()
    return bytes(message.buf)


@lru_cache(1 << 14)
def _oxm(field: str, value: int, mask: int | None = None) -> bytes:
    """Return a match field (7.2.3.2). Results are cached, as flow entries differ in few fields."""
    size = SIZES[field]
    body = value.to_bytes(size, "big")
    if mask is None:
        return _HEAD.pack(FIELDS[field] << 9 | size) + body
    return _HEAD.pack(FIELDS[field] << 9 | 1 << 8 | 2 * size) + body + mask.to_bytes(size, "big")


@lru_cache(4096)
def set_field_bytes(action: SetField) -> bytes:
    """Return a set-field action, padded to 8 bytes (7.2.5)."""
    oxm = _oxm(action.field, action.value)
    length = (4 + len(oxm) + 7) // 8 * 8
    return _HALVES.pack(ofproto.OFPAT_SET_FIELD, length) + oxm + bytes(-(4 + len(oxm)) % 8)


def match_bytes(match: Match) -> bytes:
    """Return a match (7.2.3.1). Fields are ordered by number, so they come after those they require (7.2.3.8)."""
    body = b"".join(
        [
            _oxm(name, masked.value, None if masked.mask == FULL[name] else masked.mask)
            for name, masked in sorted(match.fields, key=_number)
        ]
    )
    length = 4 + len(body)
    return _HALVES.pack(ofproto.OFPMT_OXM, length) + body + bytes(-length % 8)


def _number(entry: tuple[str, Masked]) -> int:
    return FIELDS[entry[0]]


def action_bytes(actions: Iterable[Action]) -> bytes:
    """Return a list of actions (7.2.5). Outputs to the controller send whole packets."""
    found = []
    for action in actions:
        match action:
            case SetField():
                found.append(set_field_bytes(action))
            case Output(port):
                found.append(_OUTPUT.pack(ofproto.OFPAT_OUTPUT, 16, port, ofproto.OFPCML_NO_BUFFER))
            case ToGroup(number):
                found.append(_NUMBERED.pack(ofproto.OFPAT_GROUP, 8, number))
            case SetQueue(number):
                found.append(_NUMBERED.pack(ofproto.OFPAT_SET_QUEUE, 8, number))
    return b"".join(found)


def bucket_bytes(bucket: Bucket) -> bytes:
    """Return a bucket (7.3.4.2)."""
    actions = action_bytes(bucket.actions)
    watch = ofproto.OFPP_ANY if bucket.watch is None else bucket.watch
    return struct.pack("!HHII4x", 16 + len(actions), bucket.weight, watch, ofproto.OFPG_ANY) + actions


def instruction_bytes(flow: Flow) -> bytes:
    """Return the instructions of a flow entry (7.2.4)."""
    found = b"" if flow.meter is None else _NUMBERED.pack(ofproto.OFPIT_METER, 8, flow.meter)
    if flow.actions:
        actions = action_bytes(flow.actions)
        found += _NUMBERED.pack(ofproto.OFPIT_APPLY_ACTIONS, 8 + len(actions), 0) + actions
    if flow.goto is not None:
        found += struct.pack("!HHB3x", ofproto.OFPIT_GOTO_TABLE, 8, flow.goto)
    return found


def _flow_mod(command: int, flow: Flow, mask: int = 0) -> _Written:
    """Return a flow modification (7.3.4.1)."""
    head = struct.pack(
        ofproto.OFP_FLOW_MOD_PACK_STR0,
        *(flow.cookie, mask, flow.table, command, 0, 0, flow.priority, ofproto.OFP_NO_BUFFER),
        *(ofproto.OFPP_ANY, ofproto.OFPG_ANY, 0),
    )
    return _Written(ofproto.OFPT_FLOW_MOD, head + match_bytes(flow.match) + instruction_bytes(flow))


def _group_mod(command: int, group: Group) -> _Written:
    """Return a group modification (7.3.4.2)."""
    head = struct.pack("!HBxI", command, KIND_NUMBERS[group.kind], group.id)
    return _Written(ofproto.OFPT_GROUP_MOD, head + b"".join(map(bucket_bytes, group.buckets)))


def _meter_mod(command: int, meter: Meter) -> Any:
    flags = ofproto.OFPMF_PKTPS | (ofproto.OFPMF_BURST if meter.burst else 0)
    return parser.OFPMeterMod(datapath, command, flags, meter.id, [parser.OFPMeterBandDrop(meter.rate, meter.burst)])


def _ask_flows(ask: r.AskFlows | r.AskFlowTotal) -> _Written:
    """Return a request for flow entries (7.3.5.2) or for their total (7.3.5.3)."""
    kind = ofproto.OFPMP_FLOW if isinstance(ask, r.AskFlows) else ofproto.OFPMP_AGGREGATE
    head = struct.pack(
        "!HH4xB3xII4xQQ", kind, 0, ofproto.OFPTT_ALL, ofproto.OFPP_ANY, ofproto.OFPG_ANY, ask.cookie, ask.mask
    )
    return _Written(ofproto.OFPT_MULTIPART_REQUEST, head + match_bytes(Match()))


def _drop_flows(drop: r.DropFlows) -> Any:
    flow = Flow(0, Match(), (), table=ofproto.OFPTT_ALL, cookie=drop.cookie)
    return _flow_mod(ofproto.OFPFC_DELETE, flow, drop.mask)


def _send_packet(send: r.SendPacket) -> _Written:
    """Return a packet-out (7.3.7)."""
    out = action_bytes([Output(send.port)])
    at = ofproto.OFPP_CONTROLLER if send.at is None else send.at
    head = struct.pack("!IIH6x", ofproto.OFP_NO_BUFFER, at, len(out))
    return _Written(ofproto.OFPT_PACKET_OUT, head + out + send.frame)


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
    r.AskFlowTotal: _ask_flows,
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
