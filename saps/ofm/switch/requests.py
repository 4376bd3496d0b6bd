"""Decodes a controller's messages to a switch into values (OpenFlow 1.3.5, 7.2 and 7.3). Pure.

A message that a switch must refuse raises `RefusedError` with the name of the specification's error code; so does a
malformed one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from saps.ofm.flows.tables import Action, Flow, Group, Match, Meter
from saps.ofm.openflow.entries import (
    KINDS,
    NOTHING_OF_OURS,
    Instructions,
    MalformedError,
    read_actions,
    read_bucket,
    read_instructions,
    read_match,
    walk,
)
from saps.ofm.openflow.entries import read_meter as _read_meter
from saps.ofm.openflow.ofp import ofproto
from saps.ofm.openflow.values import Role
from saps.ofm.switch.switch import TABLES, RefusedError

ANY = 0xFFFFFFFF
"""`OFPP_ANY`, `OFPG_ANY` and `OFP_NO_BUFFER`."""
ALL_GROUPS = 0xFFFFFFFC
"""`OFPG_ALL`."""
ALL_METERS = 0xFFFFFFFF
"""`OFPM_ALL`."""
ALL_TABLES = 0xFF
EVERYTHING = Match()


@dataclass(frozen=True, slots=True)
class Which:
    """The flow entries that a request selects (6.4). They match `match` non-strictly, and their cookies equal `cookie`
    in the bits of `mask`. Some action outputs to `port` and some action to `group`, unless these are `ANY`."""

    table: int = ALL_TABLES
    match: Match = EVERYTHING
    cookie: int = 0
    mask: int = 0
    port: int = ANY
    group: int = ANY


@dataclass(frozen=True, slots=True)
class FlowMod:
    """Change flow entries (7.3.4.1)."""

    command: int
    flow: Flow
    which: Which
    reset: bool
    """Whether the counters are reset."""


@dataclass(frozen=True, slots=True)
class GroupMod:
    """Change groups (7.3.4.2); `group.id` may be `ALL_GROUPS` to delete."""

    command: int
    group: Group


@dataclass(frozen=True, slots=True)
class MeterMod:
    """Change meters (7.3.4.4)."""

    command: int
    meter: Meter


@dataclass(frozen=True, slots=True)
class PacketOut:
    """Send a frame (7.3.6)."""

    port: int
    actions: tuple[Action, ...]
    frame: bytes


@dataclass(frozen=True, slots=True)
class SetConfig:
    """Set the length of packets in packet-ins (7.3.2)."""

    flags: int
    length: int


@dataclass(frozen=True, slots=True)
class AskRole:
    """Ask for a role (7.3.9)."""

    role: Role
    generation: int


@dataclass(frozen=True, slots=True)
class Multipart:
    """Request a list (7.3.5). `which` selects flow entries; `number` selects a port, group or meter."""

    kind: int
    which: Which = field(default_factory=Which)
    number: int = ANY


@dataclass(frozen=True, slots=True)
class Plain:
    """A message whose body does not matter: hello, echo reply, features, configuration or barrier request."""

    kind: int


@dataclass(frozen=True, slots=True)
class Echo:
    """An echo request, to be answered with its data."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error that the controller reports (7.4.4)."""

    kind: int
    code: int


Intent: TypeAlias = (
    FlowMod | GroupMod | MeterMod | PacketOut | SetConfig | AskRole | Multipart | Plain | Echo | Complaint
)


def read(message: bytes) -> Intent:
    """Return what a complete message asks for. Raises `RefusedError`, and nothing else."""
    reader = _READERS.get(message[1])
    if reader is None:
        raise RefusedError("OFPBRC_BAD_TYPE")
    try:
        return reader(message)
    except (struct.error, MalformedError, AssertionError):
        raise RefusedError("OFPBRC_BAD_LEN") from None


def _flow_mod(message: bytes) -> FlowMod:
    cookie, mask, table, command, idle, hard, priority, buffer, port, group, flags = struct.unpack_from(
        ofproto.OFP_FLOW_MOD_PACK_STR0, message, 8
    )
    match, end = _match(message, 48)
    if command not in _COMMANDS:
        raise RefusedError("OFPFMFC_BAD_COMMAND")
    deletes = command in (ofproto.OFPFC_DELETE, ofproto.OFPFC_DELETE_STRICT)
    if table >= TABLES and not (deletes and table == ALL_TABLES):
        raise RefusedError("OFPFMFC_BAD_TABLE_ID")
    if idle or hard:
        raise RefusedError("OFPFMFC_BAD_TIMEOUT")
    if flags & (ofproto.OFPFF_SEND_FLOW_REM | ofproto.OFPFF_CHECK_OVERLAP) and not deletes:
        raise RefusedError("OFPFMFC_BAD_FLAGS")
    if buffer != ANY and not deletes:
        raise RefusedError("OFPBRC_BUFFER_UNKNOWN")
    told = Instructions() if deletes else _instructions(message, end, table)
    which = Which(table, match, cookie, mask, *((port, group) if deletes else (ANY, ANY)))
    flow = Flow(priority, match, told.actions, table, cookie, told.meter, told.goto)
    return FlowMod(command, flow, which, bool(flags & ofproto.OFPFF_RESET_COUNTS))


def _instructions(message: bytes, start: int, table: int) -> Instructions:
    """Return the instructions of a flow of a table. Raises `RefusedError` for unsupported ones."""
    found = read_instructions(message, start, len(message))
    if found is None:
        raise RefusedError("OFPBIC_UNSUP_INST")
    if found.goto is not None and not table < found.goto < TABLES:
        raise RefusedError("OFPBIC_BAD_TABLE_ID")
    _understood(found.actions)
    return found


def _actions(message: bytes, start: int, end: int) -> tuple[Action, ...]:
    return _understood(read_actions(message, start, end))


def _understood(actions: tuple[Action, ...]) -> tuple[Action, ...]:
    if NOTHING_OF_OURS in actions:
        raise RefusedError("OFPBAC_BAD_TYPE")
    return actions


def _match(message: bytes, start: int) -> tuple[Match, int]:
    match, end = read_match(message, start, len(message))
    if match is None:
        raise RefusedError("OFPBMC_BAD_FIELD")
    return match, end


def _group_mod(message: bytes) -> GroupMod:
    command, kind, number = struct.unpack_from(ofproto.OFP_GROUP_MOD_PACK_STR, message, 8)
    buckets = tuple(read_bucket(message[first:last]) for first, last in walk(message, 16, len(message), 16, 0))
    if command not in (ofproto.OFPGC_ADD, ofproto.OFPGC_MODIFY, ofproto.OFPGC_DELETE):
        raise RefusedError("OFPGMFC_BAD_COMMAND")
    if command == ofproto.OFPGC_DELETE:
        return GroupMod(command, Group(number, ()))
    if kind not in KINDS:
        raise RefusedError("OFPGMFC_BAD_TYPE")
    if number > ofproto.OFPG_MAX:
        raise RefusedError("OFPGMFC_INVALID_GROUP")
    for bucket in buckets:
        _understood(bucket.actions)
    return GroupMod(command, Group(number, buckets, KINDS[kind]))


def _meter_mod(message: bytes) -> MeterMod:
    command, flags, _ = struct.unpack_from(ofproto.OFP_METER_MOD_PACK_STR, message, 8)
    if command not in (ofproto.OFPMC_ADD, ofproto.OFPMC_MODIFY, ofproto.OFPMC_DELETE):
        raise RefusedError("OFPMMFC_BAD_COMMAND")
    meter = _read_meter(message, 8, len(message))
    if command == ofproto.OFPMC_DELETE:
        return MeterMod(command, meter)
    if flags not in (ofproto.OFPMF_PKTPS, ofproto.OFPMF_PKTPS | ofproto.OFPMF_BURST):
        raise RefusedError("OFPMMFC_BAD_FLAGS")
    if not 1 <= meter.id <= ofproto.OFPM_MAX:
        raise RefusedError("OFPMMFC_INVALID_METER")
    if not meter.rate:
        raise RefusedError("OFPMMFC_BAD_BAND")
    return MeterMod(command, meter)


def _packet_out(message: bytes) -> PacketOut:
    buffer, port, length = struct.unpack_from(ofproto.OFP_PACKET_OUT_PACK_STR, message, 8)
    if buffer != ANY:
        raise RefusedError("OFPBRC_BUFFER_UNKNOWN")
    if 24 + length > len(message):
        raise RefusedError("OFPBRC_BAD_LEN")
    return PacketOut(port, _actions(message, 24, 24 + length), message[24 + length :])


def _multipart(message: bytes) -> Multipart:
    (kind,) = struct.unpack_from("!H", message, 8)
    if kind in (ofproto.OFPMP_FLOW, ofproto.OFPMP_AGGREGATE):
        table, port, group, cookie, mask = struct.unpack_from(ofproto.OFP_FLOW_STATS_REQUEST_0_PACK_STR, message, 16)
        match, _ = _match(message, 48)
        return Multipart(kind, Which(table, match, cookie, mask, port, group))
    if kind in (ofproto.OFPMP_PORT_STATS, ofproto.OFPMP_GROUP, ofproto.OFPMP_METER, ofproto.OFPMP_METER_CONFIG):
        return Multipart(kind, number=struct.unpack_from("!I", message, 16)[0])
    return Multipart(kind)


def _role(message: bytes) -> AskRole:
    role, generation = struct.unpack_from(ofproto.OFP_ROLE_REQUEST_PACK_STR, message, 8)
    if role not in {known.value for known in Role}:
        raise RefusedError("OFPRRFC_BAD_ROLE")
    return AskRole(Role(role), generation)


_COMMANDS = range(ofproto.OFPFC_ADD, ofproto.OFPFC_DELETE_STRICT + 1)
_READERS: dict[int, Callable[[bytes], Intent]] = {
    ofproto.OFPT_HELLO: lambda message: Plain(message[1]),
    ofproto.OFPT_ERROR: lambda message: Complaint(*struct.unpack_from("!HH", message, 8)),
    ofproto.OFPT_ECHO_REQUEST: lambda message: Echo(message[8:]),
    ofproto.OFPT_ECHO_REPLY: lambda message: Plain(message[1]),
    ofproto.OFPT_FEATURES_REQUEST: lambda message: Plain(message[1]),
    ofproto.OFPT_GET_CONFIG_REQUEST: lambda message: Plain(message[1]),
    ofproto.OFPT_SET_CONFIG: lambda message: SetConfig(*struct.unpack_from("!HH", message, 8)),
    ofproto.OFPT_PACKET_OUT: _packet_out,
    ofproto.OFPT_FLOW_MOD: _flow_mod,
    ofproto.OFPT_GROUP_MOD: _group_mod,
    ofproto.OFPT_METER_MOD: _meter_mod,
    ofproto.OFPT_MULTIPART_REQUEST: _multipart,
    ofproto.OFPT_BARRIER_REQUEST: lambda message: Plain(message[1]),
    ofproto.OFPT_ROLE_REQUEST: _role,
}
