"""A software OpenFlow 1.3 switch: flow tables, groups (ALL, SELECT, FAST_FAILOVER, INDIRECT), meters, rewrites,
reserved ports and counters (OpenFlow 1.3.5, 5).

It has no ports or clock of its own: `receive` returns what leaves by which port, and the caller carries it there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import TypeAlias

from saps.ofm.flows.tables import (
    CONTROLLER,
    IN_PORT,
    NORMAL,
    Action,
    Barrier,
    Bucket,
    Change,
    DropFlow,
    DropGroup,
    DropMeter,
    Field,
    Flow,
    FlowName,
    Group,
    GroupKind,
    Meter,
    Output,
    PutFlow,
    PutGroup,
    PutMeter,
    SetField,
    SetQueue,
    Tables,
    ToGroup,
)
from saps.ofm.switch.classifier import Classifier
from saps.ofm.switch.counters import Count, Meters, PortCount
from saps.ofm.switch.packets import Packet

TABLES = 254
"""Number of tables of a switch, as many as Open vSwitch offers to controllers."""

Copies: TypeAlias = list[tuple[int, Packet]]
"""Pairs (port, packet) in the order sent. A port may be `CONTROLLER` or `LOCAL`."""

Normal: TypeAlias = Callable[[int, Packet], Iterable[int]]
"""A switch's own forwarding: returns the output ports for an input port and its packet."""


class RefusedError(Exception):
    """A change that the switch refuses. The text is the name of OpenFlow's error code; the tables are as before."""


class Switch:
    """One switch.

    `capacity` is the most flows and `most_meters` the most meters (None: no limit). `normal` serves the output
    `NORMAL`; by default it drops. `clock` is the meters' clock: it returns seconds and never steps back, and while it
    stands still, a meter passes one burst. `alive` returns whether a port is up, for buckets that watch it."""

    def __init__(
        self,
        *,
        capacity: int | None = None,
        most_meters: int | None = None,
        normal: Normal = lambda port, packet: (),
        clock: Callable[[], float] = lambda: 0.0,
        alive: Callable[[int], bool] = lambda port: True,
    ) -> None:
        self.capacity = capacity
        self.normal, self.alive = normal, alive
        self.meters = Meters(most_meters, clock)
        self.flow_counts: dict[FlowName, Count] = {}
        self.group_counts: dict[int, Count] = {}
        self.port_counts: dict[int, PortCount] = {}
        self.queued: Counter[tuple[int, int]] = Counter()
        """Packets sent, by (port, queue)."""
        self.missed: Counter[int] = Counter()
        """Packets that matched no flow of a table and were dropped, by table number."""
        self._flows: dict[FlowName, Flow] = {}
        self._groups: dict[int, Group] = {}
        self._classifiers: defaultdict[int, Classifier] = defaultdict(Classifier)

    @property
    def tables(self) -> Tables:
        """The present content of the tables."""
        return Tables(dict(self._flows), dict(self._groups), dict(self.meters.entries))

    # -- changes

    def apply(self, changes: Iterable[Change]) -> None:
        """Carry out changes in their order. Raises `RefusedError` at the first refused change; those before it stay."""
        for change in changes:
            match change:
                case PutFlow(flow):
                    self._put_flow(flow)
                case DropFlow(flow):
                    if (found := self._flows.get(flow.name)) is not None and found.cookie == flow.cookie:
                        self._drop_flow(found)
                case PutGroup(group):
                    self._put_group(group)
                case DropGroup(id):
                    self._drop_group(id)
                case PutMeter(meter):
                    self._put_meter(meter)
                case DropMeter(id):
                    self._drop_meter(id)
                case Barrier():
                    pass  # changes take effect at once

    def _put_flow(self, flow: Flow) -> None:
        self._refuse_unknown_groups(flow.actions)
        if flow.meter is not None and flow.meter not in self.meters.entries:
            raise RefusedError("OFPMMFC_INVALID_METER")
        if flow.name not in self._flows and self.capacity is not None and len(self._flows) >= self.capacity:
            raise RefusedError("OFPFMFC_TABLE_FULL")
        self._flows[flow.name] = flow
        self.flow_counts.setdefault(flow.name, Count())
        self._classifiers[flow.table].put(flow)

    def _drop_flow(self, flow: Flow) -> None:
        del self._flows[flow.name], self.flow_counts[flow.name]
        self._classifiers[flow.table].drop(flow)

    def _put_group(self, group: Group) -> None:
        for bucket in group.buckets:
            self._refuse_unknown_groups(bucket.actions)
        if group.kind is GroupKind.INDIRECT and len(group.buckets) != 1:
            raise RefusedError("OFPGMFC_INVALID_GROUP")
        if self._leads_to(group, group.id):
            raise RefusedError("OFPGMFC_LOOP")
        self._groups[group.id] = group
        self.group_counts.setdefault(group.id, Count())

    def _drop_group(self, id: int) -> None:
        if id not in self._groups:
            return
        if any(id in _targets(other) for other in self._groups.values()):
            raise RefusedError("OFPGMFC_CHAINED_GROUP")
        del self._groups[id], self.group_counts[id]
        for flow in [flow for flow in self._flows.values() if ToGroup(id) in flow.actions]:
            self._drop_flow(flow)

    def _put_meter(self, meter: Meter) -> None:
        if not self.meters.has_room(meter):
            raise RefusedError("OFPMMFC_OUT_OF_METERS")
        self.meters.put(meter)

    def _drop_meter(self, id: int) -> None:
        if self.meters.drop(id):
            for flow in [flow for flow in self._flows.values() if flow.meter == id]:
                self._drop_flow(flow)

    def _refuse_unknown_groups(self, actions: Iterable[Action]) -> None:
        if any(isinstance(action, ToGroup) and action.group not in self._groups for action in actions):
            raise RefusedError("OFPBAC_BAD_OUT_GROUP")

    def _leads_to(self, group: Group, id: int) -> bool:
        return any(target == id or self._leads_to(self._groups[target], id) for target in _targets(group))

    # -- packets

    def receive(self, port: int, packet: Packet) -> Copies:
        """Handle a packet that comes in by a port. Return each copy that leaves, with its port."""
        self._port(port).received.add(packet)
        way = _Pass(self, port)
        table: int | None = 0
        while table is not None:
            flow = self._classifiers[table].find(port, packet)
            if flow is None:
                self.missed[table] += 1
                break
            self.flow_counts[flow.name].add(packet)
            if flow.meter is not None and not self.meters.passes(flow.meter, packet):
                break
            packet, table = way.run(flow.actions, packet), flow.goto
        return way.copies

    def find(self, port: int, packet: Packet) -> Flow | None:
        """Return the flow of the first table that matches a packet which comes in by a port, or None."""
        return self._classifiers[0].find(port, packet)

    def execute(self, actions: Iterable[Action], port: int, packet: Packet) -> Copies:
        """Carry out a list of actions alone, as for a packet-out. Return each copy that leaves, with its port. `port`
        is the input port for `IN_PORT` and `NORMAL`."""
        way = _Pass(self, port)
        way.run(actions, packet)
        return way.copies

    def _port(self, port: int) -> PortCount:
        return self.port_counts.setdefault(port, PortCount(Count(), Count()))


class _Pass:
    """One packet's pass through the switch."""

    def __init__(self, switch: Switch, port: int) -> None:
        self.switch = switch
        self.port = port
        self.copies: Copies = []
        self.queue: int | None = None
        """Queue for the outputs that follow, also in later tables."""

    def run(self, actions: Iterable[Action], packet: Packet) -> Packet:
        """Apply actions one after the other (5.9). Return the packet as the next table sees it."""
        queue = self.queue
        rewrites: dict[Field, int] = {}
        for action in actions:
            if isinstance(action, SetField):
                rewrites[action.field] = action.value
                continue
            if rewrites:
                packet, rewrites = packet.rewritten(rewrites), {}
            match action:
                case SetQueue(number):
                    queue = number
                case Output(port):
                    self.output(port, packet, queue)
                case ToGroup(id):
                    self.group(id, packet, queue)
        self.queue = queue
        return packet.rewritten(rewrites) if rewrites else packet

    def group(self, id: int, packet: Packet, queue: int | None) -> None:
        """Give each chosen bucket a copy of its own: rewrites of buckets do not affect later actions (5.6)."""
        group = self.switch._groups[id]
        self.switch.group_counts[id].add(packet)
        for bucket in _chosen(group, packet, self.switch.alive):
            self.bucket(bucket, packet, queue)

    def bucket(self, bucket: Bucket, packet: Packet, queue: int | None) -> None:
        """Execute a bucket as an action set (5.10): rewrites come first. A group takes precedence over outputs, and the
        last output over earlier ones."""
        onward: Output | ToGroup | None = None
        rewrites: dict[Field, int] = {}
        for action in bucket.actions:
            match action:
                case SetField(name, value):
                    rewrites[name] = value
                case SetQueue(number):
                    queue = number
                case ToGroup():
                    onward = action
                case Output():
                    onward = onward if isinstance(onward, ToGroup) else action
        if isinstance(onward, ToGroup):
            self.group(onward.group, packet.rewritten(rewrites), queue)
        elif onward is not None and onward.port != self.port:
            self.output(onward.port, packet.rewritten(rewrites), queue)

    def output(self, port: int, packet: Packet, queue: int | None) -> None:
        """Send a copy, but not out of the port the packet came by, unless as `IN_PORT` (4.5)."""
        if port == NORMAL:
            for other in self.switch.normal(self.port, packet):
                self.output(other, packet, queue)
            return
        if port == self.port:
            return
        if port == IN_PORT:
            port = self.port
        self.copies.append((port, packet))
        if port != CONTROLLER:
            self.switch._port(port).sent.add(packet)
        if queue is not None:
            self.switch.queued[port, queue] += 1


def _targets(group: Group) -> list[int]:
    """Return the groups that a group's buckets hand packets to."""
    return [action.group for bucket in group.buckets for action in bucket.actions if isinstance(action, ToGroup)]


def _chosen(group: Group, packet: Packet, alive: Callable[[int], bool]) -> Sequence[Bucket]:
    """Return the buckets that a group executes."""
    if group.kind is GroupKind.SELECT:
        return _selected(group, packet, alive)
    if group.kind is GroupKind.FAST_FAILOVER:
        return [bucket for bucket in group.buckets if _lives(bucket, alive)][:1]
    return group.buckets


def _selected(group: Group, packet: Packet, alive: Callable[[int], bool]) -> list[Bucket]:
    """Return the bucket of a SELECT group for this packet, in proportion to the weights. A UDP flow keeps its bucket as
    long as this is live."""
    flow = f"{packet.ip_src} {packet.ip_dst} {packet.ip_proto} {packet.udp_src} {packet.udp_dst}"
    drawn = int.from_bytes(blake2b(flow.encode(), digest_size=8).digest(), "big")
    # Draw among all buckets first: when a port fails, only the flows of its bucket move.
    chosen = _at(group.buckets, drawn)
    if any(not _lives(bucket, alive) for bucket in chosen):
        chosen = _at([bucket for bucket in group.buckets if _lives(bucket, alive)], drawn)
    return chosen


def _lives(bucket: Bucket, alive: Callable[[int], bool]) -> bool:
    return bucket.watch is None or alive(bucket.watch)


def _at(buckets: Sequence[Bucket], drawn: int) -> list[Bucket]:
    """Return the bucket in whose share of the weights a number falls; empty if all weights are 0."""
    point = drawn % (sum(bucket.weight for bucket in buckets) or 1)
    for bucket in buckets:
        point -= bucket.weight
        if point < 0:
            return [bucket]
    return []
