"""Decodes entries of OpenFlow 1.3 messages into values: ports, flows, groups, meters, their counters, matches and
actions.

Lists are walked here, within the message's own bounds, since the codec's loops do not end on an entry of length zero.
Layouts and match fields come from the codec. Every reader takes the message and the bounds of its entry, and raises
`MalformedError` or `struct.error`. What the types of `saps.ofm.flows.tables` cannot express is read as
`NOTHING_OF_OURS`, which differs from every plan.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from saps.ofm.flows.tables import (
    WIDTHS,
    Action,
    Bucket,
    Flow,
    Group,
    GroupKind,
    Masked,
    Match,
    Meter,
    Output,
    SetField,
    SetQueue,
    ToGroup,
)
from saps.ofm.openflow import values as v
from saps.ofm.openflow.ofp import ofproto

NOTHING_OF_OURS = Output(0)
"""An action that no plan contains: no port has the number 0."""

NO_COUNT = (1 << 64) - 1


class Instructions(NamedTuple):
    """The instructions of a flow entry: first its meter, then its actions, then the table to go to."""

    actions: tuple[Action, ...] = ()
    meter: int | None = None
    goto: int | None = None


class MalformedError(ValueError):
    """Bytes that are not a valid message; the text says why."""


def walk(data: bytes, start: int, end: int, least: int, at: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each entry between `start` and `end`. An entry's length stands `at` bytes behind its
    start, and is at least `least` bytes. Raises `MalformedError` for an impossible length."""
    while start < end:
        (length,) = struct.unpack_from("!H", data, start + at)
        if not least <= length <= end - start:
            raise MalformedError(f"an entry of {length} bytes where {least} to {end - start} are possible")
        yield start, start + length
        start += length


def read_text(padded: bytes) -> str:
    """Return a text up to its first zero byte."""
    return padded.split(b"\0", 1)[0].decode("utf-8", "replace")


def read_port(data: bytes, start: int, end: int) -> v.PortInfo:
    """Return a port (7.2.1)."""
    number, mac, name, config, state, _, _, _, _, speed, _ = struct.unpack_from(ofproto.OFP_PORT_PACK_STR, data, start)
    up = not (config & ofproto.OFPPC_PORT_DOWN or state & ofproto.OFPPS_LINK_DOWN)
    return v.PortInfo(number, read_text(name), int.from_bytes(mac, "big"), up, speed)


def read_port_count(data: bytes, start: int, end: int) -> v.PortCount:
    """Return the counters of a port (7.3.5.6). A counter of all ones, which the switch does not keep, becomes None."""
    port, *counts = struct.unpack_from(ofproto.OFP_PORT_STATS_PACK_STR, data, start)[:9]
    return v.PortCount(port, *(None if count == NO_COUNT else count for count in counts))


def read_group_count(data: bytes, start: int, end: int) -> v.GroupCount:
    """Return the counters of a group (7.3.5.9)."""
    _, group, flows, packets, count, _, _ = struct.unpack_from(ofproto.OFP_GROUP_STATS_PACK_STR, data, start)
    buckets = tuple(struct.iter_unpack("!QQ", data[start + 40 : end - (end - start - 40) % 16]))
    return v.GroupCount(group, flows, packets, count, buckets)


def read_flow_count(data: bytes, start: int, end: int) -> v.FlowCount | None:
    """Return a flow entry with its counters (7.3.5.2), or None if it matches on an unknown field."""
    table, sec, nsec, priority, idle, hard, cookie, packets, count = _FLOW_STATS.unpack_from(data, start)
    flow = _flow(table, priority, bool(idle or hard), cookie, data[start + 48 : end])
    return None if flow is None else v.FlowCount(flow, packets, count, sec + nsec / 1e9)


@lru_cache(1 << 15)
def _flow(table: int, priority: int, expires: bool, cookie: int, rest: bytes) -> Flow | None:
    """Return a flow entry, of which `rest` is the match and the instructions. Results are cached, as an OFM has the
    same entry at all switches that it enters by the same port."""
    match, instructions = read_match(rest, 0, len(rest))
    if match is None:
        return None
    found = read_instructions(rest, instructions, len(rest))
    told = Instructions((NOTHING_OF_OURS,)) if found is None or expires else found
    return Flow(priority, match, told.actions, table, cookie, told.meter, told.goto)


def read_instructions(data: bytes, start: int, end: int) -> Instructions | None:
    """Return the instructions of a flow entry, at most one of each kind (7.2.4), or None if there are others."""
    actions: tuple[Action, ...] = ()
    meter = goto = None
    seen: set[int] = set()
    for first, last in walk(data, start, end, 8, 2):
        kind, _, number = struct.unpack_from("!HHI", data, first)
        if kind in seen:
            return None
        seen.add(kind)
        match kind:
            case ofproto.OFPIT_APPLY_ACTIONS:
                actions = read_actions(data, first + 8, last)
            case ofproto.OFPIT_METER:
                meter = number
            case ofproto.OFPIT_GOTO_TABLE:
                goto = number >> 24
            case _:
                return None
    return Instructions(actions, meter, goto)


def read_actions(data: bytes, start: int, end: int) -> tuple[Action, ...]:
    """Return a list of actions (7.2.5)."""
    return tuple([_action(data[first:last]) for first, last in walk(data, start, end, 8, 2)])


def _action(data: bytes) -> Action:
    return _short_action(data) if len(data) <= SHORT else _short_action.__wrapped__(data)


@lru_cache(1 << 14)
def _short_action(data: bytes) -> Action:
    """Return one action. Results are cached, as all switches of a network have the same few actions."""
    kind, _, number = struct.unpack_from("!HHI", data)
    if kind == ofproto.OFPAT_SET_FIELD:
        name, value, mask, _ = _oxm(data, 4, len(data))
        fits = name and mask is None and not value >> WIDTHS[name]
        return SetField(name, value) if fits else NOTHING_OF_OURS
    word = _ACTIONS.get(kind)
    return word(number) if word else NOTHING_OF_OURS


def read_group(data: bytes, start: int, end: int) -> Group:
    """Return a group (7.3.5.10)."""
    _, kind, group = struct.unpack_from(ofproto.OFP_GROUP_DESC_STATS_PACK_STR, data, start)
    buckets = tuple([read_bucket(data[first:last]) for first, last in walk(data, start + 8, end, 16, 0)])
    if kind not in KINDS:
        return Group(group, (*buckets, Bucket((NOTHING_OF_OURS,))))
    return Group(group, buckets, KINDS[kind])


def read_bucket(data: bytes) -> Bucket:
    """Return a bucket (7.3.4.2)."""
    return _short_bucket(data) if len(data) <= 4 * SHORT else _short_bucket.__wrapped__(data)


@lru_cache(1 << 14)
def _short_bucket(data: bytes) -> Bucket:
    """Return a bucket. Results are cached, as the groups of a switch share most of theirs."""
    _, weight, watch, _ = struct.unpack_from(ofproto.OFP_BUCKET_PACK_STR, data)
    return Bucket(read_actions(data, 16, len(data)), weight, None if watch == ofproto.OFPP_ANY else watch)


def read_meter(data: bytes, start: int, end: int) -> Meter:
    """Return a meter (7.3.5.13). Its rate is 0 unless it only drops packets above a rate in packets a second."""
    _, flags, meter = struct.unpack_from(ofproto.OFP_METER_CONFIG_PACK_STR, data, start)
    bands = [struct.unpack_from("!HHII", data, first) for first, _ in walk(data, start + 8, end, 16, 2)]
    ours = len(bands) == 1 and bands[0][0] == ofproto.OFPMBT_DROP
    if not ours or not flags & ofproto.OFPMF_PKTPS or flags & ofproto.OFPMF_KBPS:
        return Meter(meter, 0)
    _, _, rate, burst = bands[0]
    return Meter(meter, rate, burst if flags & ofproto.OFPMF_BURST else 0)


def read_meter_count(data: bytes, start: int, end: int) -> v.MeterCount:
    """Return the counters of a meter (7.3.5.12)."""
    meter, _, flows, packets, count, _, _ = struct.unpack_from(ofproto.OFP_METER_STATS_PACK_STR, data, start)
    dropped = struct.unpack_from("!Q", data, start + 40)[0] if end - start >= 56 else 0
    return v.MeterCount(meter, flows, packets, count, dropped)


def read_match(data: bytes, start: int, end: int) -> tuple[Match | None, int]:
    """Return a match, or None if it has an unknown field; and its end."""
    fields, known, after = read_fields(data, start, end)
    return (Match(tuple(sorted(fields.items()))) if known else None), after


def read_fields(data: bytes, start: int, end: int) -> tuple[dict[str, Masked], bool, int]:
    """Return the known fields of a match, whether these are all, and the end of the match with its padding."""
    kind, length = _HALVES.unpack_from(data, start)
    stop, after = start + length, start + (length + 7) // 8 * 8
    if kind != ofproto.OFPMT_OXM or length < 4 or after > end:
        raise MalformedError(f"a match of type {kind} and {length} bytes")
    known = True
    fields = {}
    start += 4
    while start < stop:
        if start + 4 > stop:
            raise MalformedError(f"a match field of {stop - start} bytes")
        after_field = start + 4 + data[start + 3]
        name, masked = _field(data[start : min(after_field, stop)])
        start = after_field
        if masked is None:
            known = False
        else:
            fields[name] = masked
    return fields, known, after


@lru_cache(1 << 14)
def _field(data: bytes) -> tuple[str, Masked | None]:
    """Return the name and value of a match field; None as value for an unknown field. Results are cached, as flow
    entries differ in few fields."""
    name, value, mask, _ = _oxm(data, 0, len(data))
    return name, Masked(value, (1 << WIDTHS[name]) - 1 if mask is None else mask) if name else None


def _oxm(data: bytes, start: int, end: int) -> tuple[str, int, int | None, int]:
    """Return a match field (7.2.3.2): its name ("" for an unknown field), value, mask, and end."""
    (head,) = _HEAD.unpack_from(data, start)
    size, first = head & 0xFF, start + 4
    stop = first + size
    if stop > end:
        raise MalformedError(f"a match field of {4 + size} bytes where {end - start} are possible")
    name = _FIELDS.get(head >> 9, "")
    if not name:
        return "", 0, None, stop
    width = size // 2 if head & 0x100 else size
    if width != SIZES[name] or size != (2 * width if head & 0x100 else width):
        raise MalformedError(f"a value of {size} bytes for {name}")
    mask = int.from_bytes(data[first + width : stop], "big") if head & 0x100 else None
    return name, int.from_bytes(data[first : first + width], "big"), mask, stop


_HEAD, _HALVES = struct.Struct("!I"), struct.Struct("!HH")
_FLOW_STATS = struct.Struct("!2xBxIIHHH6xQQQ")
"""What is told of a flow entry before its match (`ofp_flow_stats`), without its length and flags."""
SHORT = 64
"""Longest action that is cached, in bytes; a rewritten IPv6 address takes 24."""
SIZES: dict[str, int] = {name: (bits + 7) // 8 for name, bits in WIDTHS.items()}
"""Length of each match field in bytes."""
_FIELDS: dict[Any, str] = {field.num: field.name for field in ofproto.oxm_types if field.name in WIDTHS}
KINDS = {
    ofproto.OFPGT_ALL: GroupKind.ALL,
    ofproto.OFPGT_SELECT: GroupKind.SELECT,
    ofproto.OFPGT_FF: GroupKind.FAST_FAILOVER,
    ofproto.OFPGT_INDIRECT: GroupKind.INDIRECT,
}
"""Kinds of groups by their numbers."""
_ACTIONS: dict[int, Callable[[int], Action]] = {
    ofproto.OFPAT_OUTPUT: Output,
    ofproto.OFPAT_GROUP: ToGroup,
    ofproto.OFPAT_SET_QUEUE: SetQueue,
}
