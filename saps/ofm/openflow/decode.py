"""Decodes the OpenFlow 1.3 messages of a switch into values (7.3 to 7.5).

Only the layouts come from the codec: its own parsers loop forever on some malformed messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from saps.ofm.openflow import requests as r
from saps.ofm.openflow import values as v
from saps.ofm.openflow.entries import (
    MalformedError,
    read_fields,
    read_flow_count,
    read_group,
    read_group_count,
    read_meter,
    read_meter_count,
    read_port,
    read_port_count,
    read_text,
    walk,
)
from saps.ofm.openflow.ofp import ofproto
from saps.ofm.openflow.requests import Question


@dataclass(frozen=True, slots=True)
class Hello:
    """The peer's offer: the versions it speaks; None without a bitmap. `highest` is the version in the header."""

    highest: int
    versions: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class EchoRequest:
    """An echo request, to be answered with its data (7.5.2)."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Part:
    """One message of a multipart reply (7.3.5)."""

    question: type[Question] | None
    """Type of the question that it answers; None: the controller never asks this question."""
    more: bool
    entries: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """A single message that answers a question."""

    question: type[Question]
    value: v.Features | v.RoleState | None


@dataclass(frozen=True, slots=True)
class Unheeded:
    """A message that the controller ignores: an echo reply, a removed flow, an experimenter's message."""

    type: int


Incoming: TypeAlias = Hello | EchoRequest | Part | Reply | v.SwitchError | v.PacketIn | v.PortStatus | Unheeded


def decode(message: bytes) -> Incoming:
    """Return the value of a complete message. The version in its header is not checked. Raises `MalformedError` and
    nothing else."""
    decoder = _DECODERS.get(message[1])
    try:
        return decoder(message) if decoder else Unheeded(message[1])
    except struct.error:
        raise MalformedError(f"message of type {message[1]} is too short") from None
    except AssertionError:
        raise MalformedError(f"message of type {message[1]} has a match field without a value") from None


# ---- single messages


def _hello(message: bytes) -> Hello:
    start, end = 8, len(message)
    while start < end:
        kind, length = struct.unpack_from("!HH", message, start)
        if not 4 <= length <= end - start:
            raise MalformedError(f"a hello element of {length} bytes")
        if kind == ofproto.OFPHET_VERSIONBITMAP:
            words = struct.unpack_from(f"!{(length - 4) // 4}I", message, start + 4)
            versions = {32 * i + bit for i, word in enumerate(words) for bit in range(32) if word >> bit & 1}
            return Hello(message[0], frozenset(versions))
        start += (length + 7) // 8 * 8
    return Hello(message[0], None)


def _error(message: bytes) -> v.SwitchError:
    kind, code = struct.unpack_from("!HH", message, 8)
    return v.SwitchError(kind, code, _error_name(kind, code), message[12:])


def _error_name(kind: int, code: int) -> str:
    prefix = ERROR_PREFIXES.get(kind)
    return _ERROR_NAMES.get((prefix, code)) or f"error type {kind} code {code}"


def _features(message: bytes) -> Reply:
    dpid, _, tables, auxiliary, _, _ = struct.unpack_from(ofproto.OFP_SWITCH_FEATURES_PACK_STR, message, 8)
    return Reply(r.AskFeatures, v.Features(dpid, tables, auxiliary))


def _role(message: bytes) -> Reply:
    role, generation = struct.unpack_from(ofproto.OFP_ROLE_REQUEST_PACK_STR, message, 8)
    if role not in _ROLES:
        raise MalformedError(f"role {role}")
    return Reply(r.AskRole, v.RoleState(v.Role(role), generation))


def _packet_in(message: bytes) -> v.PacketIn:
    _, _, _, _, cookie = struct.unpack_from(ofproto.OFP_PACKET_IN_PACK_STR, message, 8)
    fields, _, end = read_fields(message, 24, len(message))
    if "in_port" not in fields:
        raise MalformedError("a packet-in without a port")
    return v.PacketIn(fields["in_port"].value, cookie, message[end + 2 :])


def _port_status(message: bytes) -> v.PortStatus:
    (change,) = struct.unpack_from("!B", message, 8)
    if change not in _CHANGES:
        raise MalformedError(f"port status reason {change}")
    return v.PortStatus(v.PortChange(change), read_port(message, 16, len(message)))


# ---- multipart replies


def _part(message: bytes) -> Part:
    kind, flags = struct.unpack_from("!HH", message, 8)
    question, read = _PARTS.get(kind, (None, None))
    return Part(question, bool(flags & ofproto.OFPMPF_REPLY_MORE), tuple(read(message)) if read else ())


def _fixed(size: int, read: Callable[[bytes, int, int], object]) -> Callable[[bytes], Iterator[object]]:
    """Return a reader of a list of entries of `size` bytes each."""

    def entries(message: bytes) -> Iterator[object]:
        if (len(message) - 16) % size:
            raise MalformedError(f"{len(message) - 16} bytes are no list of entries of {size} bytes")
        for start in range(16, len(message), size):
            yield read(message, start, start + size)

    return entries


def _sized(least: int, read: Callable[[bytes, int, int], object]) -> Callable[[bytes], Iterator[object]]:
    """Return a reader of a list of entries that begin with their length."""

    def entries(message: bytes) -> Iterator[object]:
        for start, end in walk(message, 16, len(message), least, 0):
            yield read(message, start, end)

    return entries


def _meter_counts(message: bytes) -> Iterator[object]:
    for start, end in walk(message, 16, len(message), 40, 4):
        yield read_meter_count(message, start, end)


def _flow_total(message: bytes) -> Iterator[object]:
    yield struct.unpack_from("!QQI", message, 16)[2]


def _maker(message: bytes) -> Iterator[object]:
    maker, model, _, _, _ = struct.unpack_from(ofproto.OFP_DESC_PACK_STR, message, 16)
    yield read_text(maker)
    yield read_text(model)


_ROLES = {role.value for role in v.Role}
_CHANGES = {change.value for change in v.PortChange}
ERROR_PREFIXES: dict[int, str] = {
    ofproto.OFPET_HELLO_FAILED: "OFPHFC",
    ofproto.OFPET_BAD_REQUEST: "OFPBRC",
    ofproto.OFPET_BAD_ACTION: "OFPBAC",
    ofproto.OFPET_BAD_INSTRUCTION: "OFPBIC",
    ofproto.OFPET_BAD_MATCH: "OFPBMC",
    ofproto.OFPET_FLOW_MOD_FAILED: "OFPFMFC",
    ofproto.OFPET_GROUP_MOD_FAILED: "OFPGMFC",
    ofproto.OFPET_PORT_MOD_FAILED: "OFPPMFC",
    ofproto.OFPET_TABLE_MOD_FAILED: "OFPTMFC",
    ofproto.OFPET_QUEUE_OP_FAILED: "OFPQOFC",
    ofproto.OFPET_SWITCH_CONFIG_FAILED: "OFPSCFC",
    ofproto.OFPET_ROLE_REQUEST_FAILED: "OFPRRFC",
    ofproto.OFPET_METER_MOD_FAILED: "OFPMMFC",
    ofproto.OFPET_TABLE_FEATURES_FAILED: "OFPTFFC",
}
"""Prefix of the names of an error type's codes."""
_ERROR_NAMES: dict[tuple[str | None, int], str] = {
    (name.partition("_")[0], getattr(ofproto, name)): name
    for name in dir(ofproto)
    if name.partition("_")[0] in set(ERROR_PREFIXES.values())
}
_PARTS: dict[int, tuple[type[Question], Callable[[bytes], Iterator[object]]]] = {
    ofproto.OFPMP_DESC: (r.AskMaker, _maker),
    ofproto.OFPMP_PORT_DESC: (r.AskPorts, _fixed(64, read_port)),
    ofproto.OFPMP_PORT_STATS: (r.AskPortCounts, _fixed(112, read_port_count)),
    ofproto.OFPMP_FLOW: (r.AskFlows, _sized(56, read_flow_count)),
    ofproto.OFPMP_AGGREGATE: (r.AskFlowTotal, _flow_total),
    ofproto.OFPMP_GROUP_DESC: (r.AskGroups, _sized(8, read_group)),
    ofproto.OFPMP_GROUP: (r.AskGroupCounts, _sized(40, read_group_count)),
    ofproto.OFPMP_METER_CONFIG: (r.AskMeters, _sized(8, read_meter)),
    ofproto.OFPMP_METER: (r.AskMeterCounts, _meter_counts),
}
_DECODERS: dict[int, Callable[[bytes], Incoming]] = {
    ofproto.OFPT_HELLO: _hello,
    ofproto.OFPT_ERROR: _error,
    ofproto.OFPT_ECHO_REQUEST: lambda message: EchoRequest(message[8:]),
    ofproto.OFPT_FEATURES_REPLY: _features,
    ofproto.OFPT_PACKET_IN: _packet_in,
    ofproto.OFPT_PORT_STATUS: _port_status,
    ofproto.OFPT_MULTIPART_REPLY: _part,
    ofproto.OFPT_BARRIER_REPLY: lambda _: Reply(r.AskBarrier, None),
    ofproto.OFPT_ROLE_REPLY: _role,
}
