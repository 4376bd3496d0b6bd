"""Encodes a switch's answers as OpenFlow 1.3 messages (OpenFlow 1.3.5, 7.2 to 7.4). Pure; the layouts are the
codec's."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from saps.ofm.flows.tables import (
    Flow,
    Group,
    GroupKind,
    Match,
    Meter,
)
from saps.ofm.openflow.decode import ERROR_PREFIXES
from saps.ofm.openflow.encode import KIND_NUMBERS, bucket_bytes, instruction_bytes, match_bytes
from saps.ofm.openflow.entries import NO_COUNT
from saps.ofm.openflow.ofp import ofproto
from saps.ofm.openflow.values import Features, PortChange, PortInfo, RoleState
from saps.ofm.switch.counters import Count, MeterCount, PortCount

LONGEST = 60_000
"""Most bytes of a list in one message; longer lists are divided."""
QUOTED = 64
"""Most bytes of a refused message that the error repeats (7.4.4)."""
NO_BUFFER = 0xFFFFFFFF
_CODES: dict[str, tuple[int, int]] = {
    name: (kind, getattr(ofproto, name))
    for kind, prefix in ERROR_PREFIXES.items()
    for name in dir(ofproto)
    if name.startswith(prefix + "_")
}


def message(kind: int, xid: int, body: bytes = b"") -> bytes:
    """Return a message with its header (7.1)."""
    return struct.pack(ofproto.OFP_HEADER_PACK_STR, ofproto.OFP_VERSION, kind, 8 + len(body), xid) + body


def refusal(xid: int, name: str, refused: bytes) -> bytes:
    """Return the error that answers a refused message, by the name of its code."""
    return message(ofproto.OFPT_ERROR, xid, struct.pack("!HH", *_CODES[name]) + refused[:QUOTED])


def features(xid: int, found: Features) -> bytes:
    """Return a features reply (7.3.1)."""
    able = ofproto.OFPC_FLOW_STATS | ofproto.OFPC_PORT_STATS | ofproto.OFPC_GROUP_STATS | ofproto.OFPC_TABLE_STATS
    body = struct.pack(ofproto.OFP_SWITCH_FEATURES_PACK_STR, found.dpid, 0, found.tables, found.auxiliary, able, 0)
    return message(ofproto.OFPT_FEATURES_REPLY, xid, body)


def config(xid: int, flags: int, length: int) -> bytes:
    """Return a configuration reply (7.3.2)."""
    return message(ofproto.OFPT_GET_CONFIG_REPLY, xid, struct.pack("!HH", flags, length))


def role(xid: int, state: RoleState) -> bytes:
    """Return a role reply (7.3.9)."""
    body = struct.pack(ofproto.OFP_ROLE_REQUEST_PACK_STR, state.role, state.generation)
    return message(ofproto.OFPT_ROLE_REPLY, xid, body)


def packet_in(port: int, cookie: int, frame: bytes, length: int) -> bytes:
    """Return a packet-in with at most `length` bytes of the frame (7.4.1). Copies come from the actions of entries,
    never from a table miss."""
    reason = ofproto.OFPR_ACTION
    head = struct.pack(ofproto.OFP_PACKET_IN_PACK_STR, NO_BUFFER, len(frame), reason, 0, cookie)
    return message(ofproto.OFPT_PACKET_IN, 0, head + match_bytes(Match.of(in_port=port)) + bytes(2) + frame[:length])


def port_status(change: PortChange, info: PortInfo) -> bytes:
    """Return a port status message (7.4.3)."""
    return message(ofproto.OFPT_PORT_STATUS, 0, struct.pack("!B7x", change.value) + port(info))


def parts(xid: int, kind: int, entries: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a multipart reply (7.3.5), divided into as many messages as needed."""
    body = b""
    for entry in entries:
        if body and len(body) + len(entry) > LONGEST:
            yield _part(xid, kind, body, more=True)
            body = b""
        body += entry
    yield _part(xid, kind, body, more=False)


def _part(xid: int, kind: int, body: bytes, *, more: bool) -> bytes:
    head = struct.pack("!HH4x", kind, ofproto.OFPMPF_REPLY_MORE if more else 0)
    return message(ofproto.OFPT_MULTIPART_REPLY, xid, head + body)


# ---- entries of multipart replies


def maker(name: str, model: str, version: str, serial: str) -> bytes:
    """Return the entry of a description reply (7.3.5.1)."""
    texts = (text.encode()[:31] for text in (name, model, version, serial, ""))
    return struct.pack(ofproto.OFP_DESC_PACK_STR, *texts)


def port(info: PortInfo) -> bytes:
    """Return a port description (7.2.1)."""
    state = 0 if info.up else ofproto.OFPPS_LINK_DOWN
    mac, name = info.mac.to_bytes(6, "big"), info.name.encode()[:15]
    speeds = (0, 0, 0, 0, info.speed, info.speed)
    return struct.pack(ofproto.OFP_PORT_PACK_STR, info.number, mac, name, 0, state, *speeds)


def port_count(number: int, count: PortCount, dropped: int, seconds: float) -> bytes:
    """Return the counters of a port (7.3.5.6)."""
    received, sent = count.received, count.sent
    numbers = (received.packets, sent.packets, received.bytes, sent.bytes, dropped, 0, 0, 0, 0, 0, 0, 0)
    return struct.pack(ofproto.OFP_PORT_STATS_PACK_STR, number, *numbers, *_time(seconds))


def flow_count(flow: Flow, count: Count, seconds: float) -> bytes:
    """Return a flow entry with its counters (7.3.5.2)."""
    match = match_bytes(flow.match)
    apply = instruction_bytes(flow)
    head = struct.pack(
        ofproto.OFP_FLOW_STATS_0_PACK_STR,
        48 + len(match) + len(apply),
        flow.table,
        *_time(seconds),
        flow.priority,
        0,
        0,
        0,
        flow.cookie,
        count.packets,
        count.bytes,
    )
    return head + match + apply


def aggregate(counts: Iterable[Count]) -> bytes:
    """Return the summed counters of flow entries (7.3.5.3)."""
    found = list(counts)
    packets, size = sum(count.packets for count in found), sum(count.bytes for count in found)
    return struct.pack("!QQI4x", packets, size, len(found))


def table(number: int, active: int, matched: int, missed: int) -> bytes:
    """Return the counters of a table (7.3.5.4)."""
    return struct.pack(ofproto.OFP_TABLE_STATS_PACK_STR, number, active, matched + missed, matched)


def group(entry: Group) -> bytes:
    """Return a group description (7.3.5.10)."""
    buckets = b"".join(map(bucket_bytes, entry.buckets))
    return (
        struct.pack(ofproto.OFP_GROUP_DESC_STATS_PACK_STR, 8 + len(buckets), KIND_NUMBERS[entry.kind], entry.id)
        + buckets
    )


def group_count(entry: Group, users: int, count: Count) -> bytes:
    """Return the counters of a group (7.3.5.9). Every bucket of an ALL or INDIRECT group has received all packets of
    the group. Buckets of other groups are not counted."""
    each = (count.packets, count.bytes) if entry.kind in (GroupKind.ALL, GroupKind.INDIRECT) else (NO_COUNT, NO_COUNT)
    buckets = struct.pack("!QQ", *each) * len(entry.buckets)
    head = struct.pack(
        ofproto.OFP_GROUP_STATS_PACK_STR, 40 + len(buckets), entry.id, users, count.packets, count.bytes, 0, 0
    )
    return head + buckets


def meter(entry: Meter) -> bytes:
    """Return a meter's configuration (7.3.5.13)."""
    flags = ofproto.OFPMF_PKTPS | (ofproto.OFPMF_BURST if entry.burst else 0)
    band = struct.pack("!HHII4x", ofproto.OFPMBT_DROP, 16, entry.rate, entry.burst)
    return struct.pack(ofproto.OFP_METER_CONFIG_PACK_STR, 8 + len(band), flags, entry.id) + band


def meter_count(number: int, users: int, count: MeterCount) -> bytes:
    """Return the counters of a meter (7.3.5.12). Its duration is not kept."""
    head = struct.pack(ofproto.OFP_METER_STATS_PACK_STR, number, 56, users, count.came.packets, count.came.bytes, 0, 0)
    return head + struct.pack("!QQ", count.dropped.packets, count.dropped.bytes)


def _time(seconds: float) -> tuple[int, int]:
    """Return whole seconds and the remaining nanoseconds."""
    return int(seconds), int(seconds % 1 * 1e9)
