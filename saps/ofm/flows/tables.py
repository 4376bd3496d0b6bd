"""The desired or actual content of a switch's tables, as values, and their changes (OpenFlow 1.3.5, section 5).

Planner, reconciler, software switch and OpenFlow channel share these words; none of them holds a wire structure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from enum import Enum
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
    """What a flow matches: every named field must fit; no field at all matches every packet."""

    fields: tuple[tuple[Field, Masked], ...] = ()
    """By ascending names."""

    @classmethod
    def of(cls, **fields: int | Masked) -> Match:
        """`Match.of(eth_type=0x0800, ipv4_dst=Masked(...))`; a bare integer is an exact match. Bits outside a
        mask are cleared.

        Raises `ValueError` for an unknown field or a value or mask too wide for it."""
        found = []
        for name, wanted in sorted(fields.items()):
            width = WIDTHS.get(name)
            if width is None:
                raise ValueError(f"unknown match field {name!r}")
            full = (1 << width) - 1
            masked = wanted if isinstance(wanted, Masked) else Masked(wanted, full)
            if not 0 <= masked.value <= full or not 0 <= masked.mask <= full:
                raise ValueError(f"{name}: {masked.value:#x}/{masked.mask:#x} does not fit {width} bits")
            if masked.mask:
                found.append((name, Masked(masked.value & masked.mask, masked.mask)))
        return cls(tuple(found))


class Room(Enum):
    """Of which a switch has no more, or none at all."""

    ENTRIES = "flow entries"
    GROUPS = "groups"
    PARTITIONS = "buckets"
    METERS = "meters"


class SetField(msgspec.Struct, frozen=True, gc=False):
    """Rewrite one field of the packet."""

    field: Field
    value: int


class Output(msgspec.Struct, frozen=True, gc=False):
    """Send the packet out of a port. A switch suppresses output to the port it came by, except as `IN_PORT`."""

    port: int


class ToGroup(msgspec.Struct, frozen=True, gc=False):
    """Hand the packet to a group."""

    group: int


class SetQueue(msgspec.Struct, frozen=True, gc=False):
    """Choose the egress queue of the outputs that follow."""

    queue: int


Action: TypeAlias = SetField | Output | ToGroup | SetQueue

ETH_IPV4, ETH_IPV6, UDP = 0x0800, 0x86DD, 17
"""Values of eth_type and ip_proto."""

IN_PORT = 0xFFFFFFF8
"""Reserved port: back out of the port the packet came by."""
NORMAL = 0xFFFFFFFA
"""Reserved port: the switch's own, non-OpenFlow forwarding (hybrid mode)."""
CONTROLLER = 0xFFFFFFFD
"""Reserved port: to the controller as packet-in."""
LOCAL = 0xFFFFFFFE
"""Reserved port: the switch's own host."""


class Bucket(msgspec.Struct, frozen=True, gc=False):
    """One copy that a group makes: its actions. `weight` counts in SELECT groups only, `watch` in these and in those of
    FAST_FAILOVER."""

    actions: tuple[Action, ...]
    weight: int = 0
    watch: int | None = None
    """The bucket is chosen only while this port is up (5.6.1, liveness); None: always."""


class GroupKind(Enum):
    """Which of its buckets a group executes."""

    ALL = "all"
    SELECT = "select"
    FAST_FAILOVER = "fast_failover"
    """The first whose port is up."""
    INDIRECT = "indirect"
    """The only one it has: one rewrite that many flows share."""


class Group(msgspec.Struct, frozen=True, gc=False):
    """A group entry. The order of `buckets` has no meaning to ALL; plans sort them, so that equal plans are equal."""

    id: int
    buckets: tuple[Bucket, ...]
    kind: GroupKind = GroupKind.ALL


class Meter(msgspec.Struct, frozen=True, gc=False):
    """A rate limit that flows share which name it: packets above it are dropped, before any action (5.7)."""

    id: int
    rate: int
    """Packets a second; 0: none of ours, it limits something else than packets, or does not drop."""
    burst: int = 0
    """Packets that may come at once; 0: the switch's own choice."""


FlowName: TypeAlias = "tuple[int, int, Match]"
"""(table, priority, match)."""


class Flow(msgspec.Struct, frozen=True, gc=False):
    """A flow entry with apply-actions; `table`, `priority` and `match` name it (OpenFlow 1.3.5, 5.2)."""

    priority: int
    match: Match
    actions: tuple[Action, ...]
    table: int = 0
    cookie: int = 0
    """Says who installed it; the reconciler touches only its own."""
    meter: int | None = None
    """The meter that its packets pass first."""
    goto: int | None = None
    """The later table in which its packets are looked up after the actions; None: in none (5.9)."""

    @property
    def name(self) -> FlowName:
        """What tells this entry from the others of its switch."""
        return (self.table, self.priority, self.match)


class Tables(msgspec.Struct, frozen=True, gc=False):
    """All flows, groups and meters of one switch that belong to us."""

    flows: Mapping[FlowName, Flow] = {}
    groups: Mapping[int, Group] = {}
    meters: Mapping[int, Meter] = {}

    @classmethod
    def of(cls, flows: Iterable[Flow] = (), groups: Iterable[Group] = (), meters: Iterable[Meter] = ()) -> Tables:
        """Tables with these entries; of two with the same name, the later one."""
        return cls(
            {flow.name: flow for flow in flows},
            {group.id: group for group in groups},
            {meter.id: meter for meter in meters},
        )

    @classmethod
    def merged(cls, parts: Iterable[Tables]) -> Tables:
        """All that is in these tables; of two with the same name, the later one."""
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
        """Both together; where both have an entry of one name, the other's."""
        return Tables({**self.flows, **other.flows}, {**self.groups, **other.groups}, {**self.meters, **other.meters})

    def unmetered(self) -> Tables:
        """The same without any limit."""
        if not self.meters and all(flow.meter is None for flow in self.flows.values()):
            return self
        return Tables({name: replace(flow, meter=None) for name, flow in self.flows.items()}, self.groups)


class PutFlow(msgspec.Struct, frozen=True, gc=False):
    """Add the flow, or replace the one of its name (FLOW_MOD ADD; counters are kept)."""

    flow: Flow


class DropFlow(msgspec.Struct, frozen=True, gc=False):
    """Remove the flow of this name and cookie, if there is one (FLOW_MOD DELETE_STRICT)."""

    flow: Flow


class PutGroup(msgspec.Struct, frozen=True, gc=False):
    """Add the group, or replace the one of its id in place (GROUP_MOD ADD_OR_MOD; on switches without that extension
    MODIFY, and ADD if the group is unknown). Never delete and add: that loses packets."""

    group: Group


class DropGroup(msgspec.Struct, frozen=True, gc=False):
    """Remove the group of this id, if there is one, and every flow that uses it (GROUP_MOD DELETE)."""

    id: int


class PutMeter(msgspec.Struct, frozen=True, gc=False):
    """Add the meter, or change the one of its id in place (METER_MOD ADD, and MODIFY if there is one)."""

    meter: Meter


class DropMeter(msgspec.Struct, frozen=True, gc=False):
    """Remove the meter of this id, if there is one, and every flow that uses it (METER_MOD DELETE)."""

    id: int


class Barrier(msgspec.Struct, frozen=True, gc=False):
    """What comes after waits until what came before is in effect (BARRIER_REQUEST and its reply)."""


Change: TypeAlias = PutFlow | DropFlow | PutGroup | DropGroup | PutMeter | DropMeter | Barrier
"""One step from actual to desired tables. All are absolute: done twice is done once."""


def ipv4(text: str) -> int:
    """The value of an IPv4 address. Raises `ValueError`."""
    return int(ipaddress.IPv4Address(text))


def mac(text: str) -> int:
    """The value of a MAC address written `02:00:00:00:00:01`. Raises `ValueError`."""
    parts = text.split(":")
    if len(parts) != 6 or not all(len(part) == 2 for part in parts):
        raise ValueError(f"not a MAC address: {text!r}")
    return int("".join(parts), 16)


def mac_text(value: int) -> str:
    """A MAC address as `02:00:00:00:00:01`: the inverse of `mac`."""
    return value.to_bytes(6, "big").hex(":")
