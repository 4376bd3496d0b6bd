"""A software switch with its ports: frames in and out, tables that a controller changes, counters. Pure.

`saps.ofm.switch.switch` decides where a packet goes. This module handles the frames, and the effect of OpenFlow's
commands on the tables (OpenFlow 1.3.5, 6.4 and 6.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from saps.ofm.flows.tables import (
    CONTROLLER,
    IN_PORT,
    NORMAL,
    Action,
    DropFlow,
    DropGroup,
    DropMeter,
    Flow,
    FlowName,
    Match,
    Output,
    PutFlow,
    PutGroup,
    PutMeter,
    ToGroup,
)
from saps.ofm.openflow.ofp import ofproto
from saps.ofm.openflow.values import PortInfo
from saps.ofm.switch.ethernet import parse, rewritten
from saps.ofm.switch.learning import Learning
from saps.ofm.switch.packets import Packet
from saps.ofm.switch.requests import (
    ALL_GROUPS,
    ALL_METERS,
    ALL_TABLES,
    ANY,
    FlowMod,
    GroupMod,
    MeterMod,
    PacketOut,
    Which,
)
from saps.ofm.switch.switch import Copies, RefusedError, Switch

MOST_METERS = 256
"""Most meters of one switch."""


class Handed(NamedTuple):
    """A frame for the controller."""

    port: int
    cookie: int
    """Cookie of the entry of the first table that the packet matches; 0 without an entry."""
    frame: bytes


class Bridge:
    """One switch. `flooded` are the ports over which its own forwarding (`NORMAL`) sends; they must close no loop."""

    def __init__(self, dpid: int, ports: Iterable[PortInfo], flooded: set[int], capacity: int | None = None) -> None:
        """`capacity` is the most flow entries; None: no limit."""
        self.dpid = dpid
        self.ports = {port.number: port for port in ports}
        self.now = 0.0
        """Present time in seconds on any clock that does not step back; the driver sets it."""
        self._flooded, self._capacity = flooded, capacity
        self.restart()

    def restart(self) -> None:
        """Restart with empty tables and counters."""
        self.switch = Switch(
            capacity=self._capacity,
            most_meters=MOST_METERS,
            normal=Learning(self._flooded),
            clock=lambda: self.now,
            alive=lambda port: port in self.ports and self.ports[port].up,
        )
        self.since: dict[FlowName, float] = {}
        """Time at which each entry was installed."""
        self.dropped = dict.fromkeys(self.ports, 0)
        """Malformed frames received, by port."""
        self.begun = self.now

    # ---- frames

    def receive(self, port: int, frame: bytes) -> tuple[list[tuple[int, bytes]], list[Handed]]:
        """Handle a frame that comes in. Return the frames that leave with their ports, and the frames for the
        controller."""
        if not self.ports[port].up:
            return [], []
        packet = parse(frame)
        if packet is None:
            self.dropped[port] += 1
            return [], []
        return self._out(port, packet, frame, self.switch.receive(port, packet))

    def send(self, intent: PacketOut) -> tuple[list[tuple[int, bytes]], list[Handed]]:
        """Carry out a packet-out. Return the frames that leave with their ports, and the frames for the controller.
        Raises `RefusedError`."""
        self._check(intent.actions)
        packet = parse(intent.frame)
        if packet is None:
            raise RefusedError("OFPBRC_BAD_PACKET")
        return self._out(intent.port, packet, intent.frame, self.switch.execute(intent.actions, intent.port, packet))

    def _out(
        self, port: int, packet: Packet, frame: bytes, copies: Copies
    ) -> tuple[list[tuple[int, bytes]], list[Handed]]:
        sent, handed = [], []
        for out, copy in copies:
            raw = frame if copy is packet else rewritten(frame, copy)
            if out == CONTROLLER:
                flow = self.switch.find(port, packet)
                handed.append(Handed(port, flow.cookie if flow is not None else 0, raw))
            elif out in self.ports and self.ports[out].up:
                sent.append((out, raw))
        return sent, handed

    # ---- tables

    def change(self, intent: FlowMod | GroupMod | MeterMod) -> None:
        """Carry out a change. Raises `RefusedError`; then the tables are as before."""
        match intent:
            case FlowMod():
                self._flows(intent)
            case GroupMod():
                self._groups(intent)
            case MeterMod():
                self._meters(intent)
        names = self.switch.flow_counts.keys()
        if self.since.keys() != names:
            self.since = {name: self.since.get(name, self.now) for name in names}

    def flows(self, which: Which) -> Iterator[Flow]:
        """Yield the entries that a request selects (6.4)."""
        for flow in self.switch.tables.flows.values():
            if which.table in (ALL_TABLES, flow.table) and _is_meant(flow, which) and _covers(which.match, flow.match):
                yield flow

    def _flows(self, mod: FlowMod) -> None:
        self._check(mod.flow.actions)
        if mod.command == ofproto.OFPFC_ADD:
            self.switch.apply([PutFlow(mod.flow)])
            if mod.reset:
                self.switch.flow_counts[mod.flow.name].reset()
            return
        strict = mod.command in (ofproto.OFPFC_MODIFY_STRICT, ofproto.OFPFC_DELETE_STRICT)
        meant = [flow for flow in self.flows(mod.which) if not strict or flow.name == mod.flow.name]
        if mod.command in (ofproto.OFPFC_DELETE, ofproto.OFPFC_DELETE_STRICT):
            self.switch.apply(DropFlow(flow) for flow in meant)
            return
        for flow in meant:
            told = replace(flow, actions=mod.flow.actions, meter=mod.flow.meter, goto=mod.flow.goto)
            self.switch.apply([PutFlow(told)])
            if mod.reset:
                self.switch.flow_counts[flow.name].reset()

    def _groups(self, mod: GroupMod) -> None:
        there = self.switch.tables.groups
        if mod.command == ofproto.OFPGC_DELETE:
            self._drop_groups(list(there) if mod.group.id == ALL_GROUPS else [mod.group.id])
            return
        if mod.command == ofproto.OFPGC_ADD and mod.group.id in there:
            raise RefusedError("OFPGMFC_GROUP_EXISTS")
        if mod.command == ofproto.OFPGC_MODIFY and mod.group.id not in there:
            raise RefusedError("OFPGMFC_UNKNOWN_GROUP")
        for bucket in mod.group.buckets:
            self._check(bucket.actions)
        self.switch.apply([PutGroup(mod.group)])

    def _drop_groups(self, numbers: list[int]) -> None:
        """Drop groups; groups that use them are dropped first."""
        for number in numbers:
            users = [
                other.id
                for other in self.switch.tables.groups.values()
                if len(numbers) > 1 and any(ToGroup(number) in bucket.actions for bucket in other.buckets)
            ]
            self._drop_groups(users)
            self.switch.apply([DropGroup(number)])

    def _meters(self, mod: MeterMod) -> None:
        number, there = mod.meter.id, self.switch.tables.meters
        if mod.command == ofproto.OFPMC_DELETE:
            self.switch.apply([DropMeter(id) for id in there if number in (ALL_METERS, id)])
            return
        if mod.command == ofproto.OFPMC_ADD and number in there:
            raise RefusedError("OFPMMFC_METER_EXISTS")
        if mod.command == ofproto.OFPMC_MODIFY and number not in there:
            raise RefusedError("OFPMMFC_UNKNOWN_METER")
        self.switch.apply([PutMeter(mod.meter)])

    def _check(self, actions: Iterable[Action]) -> None:
        """Check the ports of outputs. Raises `RefusedError` for an output to an unknown port."""
        for action in actions:
            if isinstance(action, Output) and action.port not in (*self.ports, IN_PORT, NORMAL, CONTROLLER):
                raise RefusedError("OFPBAC_BAD_OUT_PORT")


def _is_meant(flow: Flow, which: Which) -> bool:
    return (
        flow.cookie & which.mask == which.cookie & which.mask
        and (which.port == ANY or Output(which.port) in flow.actions)
        and (which.group == ANY or ToGroup(which.group) in flow.actions)
    )


def _covers(wide: Match, narrow: Match) -> bool:
    """Return whether all packets of `narrow` match `wide` (6.4, non-strict)."""
    fields = dict(narrow.fields)
    for name, masked in wide.fields:
        there = fields.get(name)
        if there is None or there.mask & masked.mask != masked.mask or there.value & masked.mask != masked.value:
            return False
    return True
