"""Defines the desired or actual content of a switch's tables, and its changes, as values (OpenFlow 1.3.5, section 5).

Planner, reconciler, software switch and OpenFlow channel share these types; none of them holds a wire structure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

Field: TypeAlias = str
"""A match field by its OXM name in lower case: in_port, eth_type, eth_src, eth_dst, ip_proto, ip_dscp, ipv4_src,
ipv4_dst, ipv6_src, ipv6_dst, udp_src, udp_dst (OpenFlow 1.3.5, 7.2.3.7)."""

WIDTHS: Mapping[Field, int] = {
    "in_port": 32, "eth_type": 16, "eth_src": 48, "eth_dst": 48, "ip_proto": 8, "ip_dscp": 6, "ipv4_src": 32,
    "ipv4_dst": 32, "ipv6_src": 128, "ipv6_dst": 128, "udp_src": 16, "udp_dst": 16,
}  # fmt: skip
"""Bits of each field's value."""


class Masked(msgspec.Struct, frozen=True, order=True, gc=False):
    """A field's value under a mask: it matches a packet whose bits equal `value` wherever `mask` has a 1."""

    value: int
    mask: int


class Match(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The match of a flow: every named field must fit. A match without fields fits every packet."""

    fields: tuple[tuple[Field, Masked], ...] = ()
    """The fields, ascending by name."""

    @classmethod
    def of(cls, **fields: int | Masked) -> Match:
        """Return a match, e.g. `Match.of(eth_type=0x0800, ipv4_dst=Masked(...))`. A bare integer is an exact match.
        Bits outside a mask are cleared.

        Raises `ValueError` for an unknown field, or a value or mask too wide for it."""
        found = []
        for name, wanted in sorted(fields.items()):
            width = WIDTHS.get(name)
            if width is None:
                raise ValueError(f"unknown match field {name!r}")
            full = (1 << width) - 1
            value, mask = (wanted.value, wanted.mask) if isinstance(wanted, Masked) else (wanted, full)
            if not 0 <= value <= full or not 0 <= mask <= full:
                raise ValueError(f"{name}: {value:#x}/{mask:#x} does not fit {width} bits")
            if mask:
                found.append((name, Masked(value & mask, mask)))
        return cls(tuple(found))


class Room(Enum):
    """The resource that a switch has run out of, or lacks altogether."""

    ENTRIES = "flow entries"
    GROUPS = "groups"
    PARTITIONS = "buckets"
    METERS = "meters"


class SetField(msgspec.Struct, frozen=True, gc=False):
    """Action: rewrite one field of the packet."""

    field: Field
    value: int


class Output(msgspec.Struct, frozen=True, gc=False):
    """Action: send the packet out of a port. A switch suppresses output to the port the packet came by, except as
    `IN_PORT`."""

    port: int


class ToGroup(msgspec.Struct, frozen=True, gc=False):
    """Action: hand the packet to a group."""

    group: int


class SetQueue(msgspec.Struct, frozen=True, gc=False):
    """Action: choose the egress queue of the outputs that follow."""

    queue: int


Action: TypeAlias = SetField | Output | ToGroup | SetQueue

ETH_IPV4, ETH_IPV6, UDP = 0x0800, 0x86DD, 17
"""Values of `eth_type` for IPv4 and IPv6, and of `ip_proto` for UDP."""

IN_PORT = 0xFFFFFFF8
"""Reserved port: back out of the port the packet came by."""
NORMAL = 0xFFFFFFFA
"""Reserved port: the switch's own, non-OpenFlow forwarding (hybrid mode)."""
CONTROLLER = 0xFFFFFFFD
"""Reserved port: to the controller as a packet-in."""
LOCAL = 0xFFFFFFFE
"""Reserved port: the switch's own host."""


class Bucket(msgspec.Struct, frozen=True, gc=False):
    """The actions on one copy of a packet that a group makes. `weight` counts in SELECT groups only, `watch` in SELECT
    and FAST_FAILOVER groups."""

    actions: tuple[Action, ...]
    weight: int = 0
    watch: int | None = None
    """The port that must be up for the bucket to be chosen (5.6.1, liveness); None: the bucket is always live."""


class GroupKind(Enum):
    """How a group chooses the buckets it executes."""

    ALL = "all"
    SELECT = "select"
    FAST_FAILOVER = "fast_failover"
    """The first bucket whose port is up."""
    INDIRECT = "indirect"
    """The group's only bucket: one rewrite that many flows share."""


class Group(msgspec.Struct, frozen=True, gc=False):
    """A group entry. The order of `buckets` has no meaning in an ALL group; plans sort them, so that equal plans are
    equal."""

    id: int
    buckets: tuple[Bucket, ...]
    kind: GroupKind = GroupKind.ALL


class Meter(msgspec.Struct, frozen=True, gc=False):
    """A rate limit shared by all flows that name it. It drops packets above the rate before any action (5.7)."""

    id: int
    rate: int
    """Packets a second. 0: a foreign meter, which limits something else than packets or does not drop."""
    burst: int = 0
    """Most packets at once; 0: the switch's own choice."""


FlowName: TypeAlias = "tuple[int, int, Match]"
"""The triple (table, priority, match)."""


class Flow(msgspec.Struct, frozen=True, gc=False):
    """A flow entry with apply-actions; `table`, `priority` and `match` name it (OpenFlow 1.3.5, 5.2)."""

    priority: int
    match: Match
    actions: tuple[Action, ...]
    table: int = 0
    cookie: int = 0
    """Identifies the installer; the reconciler touches only its own flows."""
    meter: int | None = None
    """The meter that matching packets pass first; None: no meter."""
    goto: int | None = None
    """The later table that looks matching packets up after the actions; None: no further table (5.9)."""

    @property
    def name(self) -> FlowName:
        """The key of this entry among those of its switch."""
        return (self.table, self.priority, self.match)


class Tables(msgspec.Struct, frozen=True, gc=False):
    """All flows, groups and meters of one switch that belong to SAPS."""

    flows: Mapping[FlowName, Flow] = {}
    groups: Mapping[int, Group] = {}
    meters: Mapping[int, Meter] = {}

    @classmethod
    def of(cls, flows: Iterable[Flow] = (), groups: Iterable[Group] = (), meters: Iterable[Meter] = ()) -> Tables:
        """Return tables with these entries. Of two with the same name, the later one counts."""
        return cls(
            {flow.name: flow for flow in flows},
            {group.id: group for group in groups},
            {meter.id: meter for meter in meters},
        )

    @classmethod
    def merged(cls, parts: Iterable[Tables]) -> Tables:
        """Return all entries of these tables. Of two with the same name, the later one counts."""
        every = list(parts)
        return cls.of(
            (flow for part in every for flow in part.flows.values()),
            (group for part in every for group in part.groups.values()),
            (meter for part in every for meter in part.meters.values()),
        )

    @property
    def entries(self) -> int:
        """Flow entries in use."""
        return len(self.flows)

    @property
    def buckets(self) -> int:
        """Group buckets in use."""
        return sum(len(group.buckets) for group in self.groups.values())

    def with_(self, other: Tables) -> Tables:
        """Return the entries of both. Where both have an entry of the same name, the `other`'s counts."""
        return Tables({**self.flows, **other.flows}, {**self.groups, **other.groups}, {**self.meters, **other.meters})

    def unmetered(self) -> Tables:
        """Return the same tables without any meter."""
        if not self.meters and all(flow.meter is None for flow in self.flows.values()):
            return self
        return Tables({name: replace(flow, meter=None) for name, flow in self.flows.items()}, self.groups)


class PutFlow(msgspec.Struct, frozen=True, gc=False):
    """Change: add the flow, or replace the one of its name (FLOW_MOD ADD; counters are kept)."""

    flow: Flow


class DropFlow(msgspec.Struct, frozen=True, gc=False):
    """Change: remove the flow of this name and cookie, if there is one (FLOW_MOD DELETE_STRICT)."""

    flow: Flow


class PutGroup(msgspec.Struct, frozen=True, gc=False):
    """Change: add the group, or replace the one of its id in place (GROUP_MOD ADD_OR_MOD). Switches without that
    extension get MODIFY, and ADD if the group is unknown. Never delete and add: that loses packets."""

    group: Group


class DropGroup(msgspec.Struct, frozen=True, gc=False):
    """Change: remove the group of this id, if there is one, and every flow that uses it (GROUP_MOD DELETE)."""

    id: int


class PutMeter(msgspec.Struct, frozen=True, gc=False):
    """Change: add the meter, or change the one of its id in place (METER_MOD ADD, or MODIFY if there is one)."""

    meter: Meter


class DropMeter(msgspec.Struct, frozen=True, gc=False):
    """Change: remove the meter of this id, if there is one, and every flow that uses it (METER_MOD DELETE)."""

    id: int


class Barrier(msgspec.Struct, frozen=True, gc=False):
    """Change: wait until everything before is in effect (BARRIER_REQUEST and its reply)."""


Change: TypeAlias = PutFlow | DropFlow | PutGroup | DropGroup | PutMeter | DropMeter | Barrier
"""One step from actual to desired tables. Each step is absolute: repeating it changes nothing."""


def ipv4(text: str) -> int:
    """Return the value of an IPv4 address. Raises `ValueError` for a malformed one."""
    return int(ipaddress.IPv4Address(text))


@lru_cache(1 << 14)
def mac(text: str) -> int:
    """Return the value of a MAC address written `02:00:00:00:00:01`. Raises `ValueError` for a malformed one."""
    parts = text.split(":")
    if len(parts) != 6 or not all(len(part) == 2 for part in parts):
        raise ValueError(f"not a MAC address: {text!r}")
    return int("".join(parts), 16)


@lru_cache(1 << 14)
def mac_text(value: int) -> str:
    """Return a MAC address as `02:00:00:00:00:01`, the inverse of `mac`."""
    return value.to_bytes(6, "big").hex(":")
