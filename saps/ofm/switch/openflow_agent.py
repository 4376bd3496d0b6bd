"""The switch's side of one OpenFlow 1.3 connection: bytes in, bytes and frames out (OpenFlow 1.3.5, 6.3). Pure.

It is the counterpart of `saps.ofm.openflow.connection`. The driver hands in arriving bytes (`receive`) and the passing
of time (`tick`), and writes what `take` returns. Once `lost` names a reason, it closes the transport. The bridge's
tables outlive the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from saps.ofm.flows.tables import ToGroup
from saps.ofm.openflow import encode
from saps.ofm.openflow.framing import HEADER, BadLengthError, Framer
from saps.ofm.openflow.ofp import ofproto
from saps.ofm.openflow.values import Features, PortChange, PortInfo, Role, RoleState
from saps.ofm.switch import replies as words
from saps.ofm.switch.bridge import Bridge, Handed
from saps.ofm.switch.counters import Count, PortCount
from saps.ofm.switch.requests import (
    ALL_GROUPS,
    ALL_METERS,
    ANY,
    AskRole,
    Complaint,
    Echo,
    FlowMod,
    GroupMod,
    Intent,
    MeterMod,
    Multipart,
    PacketOut,
    Plain,
    SetConfig,
    read,
)
from saps.ofm.switch.switch import TABLES, RefusedError

MAKER, MODEL = "SAPS", "software switch"
IDLE, TIMEOUT = 5.0, 10.0
"""Seconds without a message until the controller is probed, and from then until it is declared dead."""
MOST_WAITING = 1 << 20
"""Bytes of unwritten output above which packet-ins are dropped; packet-ins may be lost anyway."""


class Agent:
    """One connection, from its first byte to its last. `sent` receives the frames that leave ports by a packet-out."""

    def __init__(self, bridge: Bridge, sent: Callable[[list[tuple[int, bytes]]], None]) -> None:
        self.bridge = bridge
        self.lost: str | None = None
        """Why the connection is unusable; None while it is usable."""
        self.ready = False
        """Whether both sides have said hello."""
        self._sent = sent
        self._framer = Framer(1024)
        self._out = bytearray(encode.hello(0))
        self._flags, self._length = 0, 128
        self._role = RoleState(Role.EQUAL, 0)
        self._known_generation: int | None = None
        self._silence = 0.0
        self._probed = False

    def take(self) -> bytes:
        """Return the bytes to write, and forget them."""
        out = bytes(self._out)
        self._out.clear()
        return out

    def receive(self, data: bytes) -> None:
        """Handle bytes from the controller. Never raises because of them."""
        if self.lost is not None:
            return
        try:
            for message in self._framer.feed(data):
                self._message(message)
                if self.lost is not None:
                    return
        except BadLengthError as error:
            self.lost = str(error)

    def tick(self, seconds: float) -> None:
        """Count `seconds` that have passed: probe a silent controller, and declare it dead at last."""
        self._silence += seconds
        if self._silence >= IDLE + TIMEOUT:
            self.lost = f"silent for {self._silence:.0f} s"
        elif self._silence >= IDLE and self.ready and not self._probed:
            self._probed = True
            self._out += encode.echo_request(0)

    def hand(self, packets: list[Handed]) -> None:
        """Send packet-ins, unless too much output is waiting."""
        for port, cookie, frame in packets if self.ready else ():
            if len(self._out) < MOST_WAITING:
                self._out += words.packet_in(port, cookie, frame, self._length)

    def port_changed(self, info: PortInfo) -> None:
        """Report a port that has gone up or down."""
        if self.ready:
            self._out += words.port_status(PortChange.MODIFIED, info)

    # ---- messages

    def _message(self, message: bytes) -> None:
        self._silence, self._probed = 0.0, False
        xid = int.from_bytes(message[4:HEADER], "big")
        if not self.ready:
            self._greet(message, xid)
        elif message[0] != ofproto.OFP_VERSION:
            self._out += encode.bad_version(xid, message)
            self.lost = f"message of version {message[0]}"
        else:
            try:
                self._do(read(message), xid)
            except RefusedError as refused:
                self._out += words.refusal(xid, str(refused), message)

    def _greet(self, message: bytes, xid: int) -> None:
        """Handle the hello: version 1.3 or none (6.3.1). A controller of a higher version is expected to speak 1.3 too;
        otherwise it reports an error."""
        if message[1] != ofproto.OFPT_HELLO:
            self.lost = "the first message is no hello"
        elif message[0] < ofproto.OFP_VERSION:
            self._out += encode.hello_failed(xid, "OpenFlow 1.3 only")
            self.lost = f"the controller speaks version {message[0]}"
        else:
            self.ready = True
            self._framer.limit = 0xFFFF

    def _do(self, intent: Intent, xid: int) -> None:
        match intent:
            case Echo(data):
                self._out += encode.echo_reply(xid, data)
            case FlowMod() | GroupMod() | MeterMod():
                self._refuse_slave()
                self.bridge.change(intent)
            case PacketOut():
                self._refuse_slave()
                frames, handed = self.bridge.send(intent)
                self.hand(handed)
                self._sent(frames)
            case SetConfig(flags, length):
                self._flags, self._length = flags, length
            case AskRole():
                self._out += words.role(xid, self._become(intent))
            case Multipart(kind):
                for part in words.parts(xid, kind, self._entries(intent)):
                    self._out += part
            case Plain(kind):
                self._out += self._plain(kind, xid)
            case Complaint(kind, code):
                if kind == ofproto.OFPET_HELLO_FAILED:
                    self.lost = f"the controller refuses our version (error {kind}, {code})"

    def _plain(self, kind: int, xid: int) -> bytes:
        if kind == ofproto.OFPT_FEATURES_REQUEST:
            return words.features(xid, Features(self.bridge.dpid, TABLES, 0))
        if kind == ofproto.OFPT_GET_CONFIG_REQUEST:
            return words.config(xid, self._flags, self._length)
        if kind == ofproto.OFPT_BARRIER_REQUEST:  # everything before the barrier has been done
            return words.message(ofproto.OFPT_BARRIER_REPLY, xid)
        return b""

    def _refuse_slave(self) -> None:
        if self._role.role is Role.SLAVE:
            raise RefusedError("OFPBRC_IS_SLAVE")

    def _become(self, intent: AskRole) -> RoleState:
        """Take on a role (6.3.6). Raises `RefusedError` for a generation older than the last one known."""
        if intent.role in (Role.MASTER, Role.SLAVE):
            known = self._known_generation
            if known is not None and (intent.generation - known) & 0xFFFFFFFFFFFFFFFF >= 1 << 63:
                raise RefusedError("OFPRRFC_STALE")
            self._known_generation = intent.generation
        role = self._role.role if intent.role is Role.UNCHANGED else intent.role
        self._role = RoleState(role, self._known_generation or 0)
        return self._role

    # ---- lists

    def _entries(self, asked: Multipart) -> Iterator[bytes]:
        bridge, switch, kind = self.bridge, self.bridge.switch, asked.kind
        if kind == ofproto.OFPMP_DESC:
            return iter([words.maker(MAKER, MODEL, "", f"{bridge.dpid:016x}")])
        if kind == ofproto.OFPMP_PORT_DESC:
            return (words.port(info) for info in bridge.ports.values())
        if kind == ofproto.OFPMP_PORT_STATS:
            return self._port_counts(asked.number)
        if kind == ofproto.OFPMP_FLOW:
            return (
                words.flow_count(flow, switch.flow_counts[flow.name], bridge.now - bridge.since[flow.name])
                for flow in bridge.flows(asked.which)
            )
        if kind == ofproto.OFPMP_AGGREGATE:
            return iter([words.aggregate(switch.flow_counts[flow.name] for flow in bridge.flows(asked.which))])
        if kind == ofproto.OFPMP_TABLE:
            return self._table_counts()
        if kind == ofproto.OFPMP_GROUP_DESC:
            return (words.group(group) for group in switch.tables.groups.values())
        if kind == ofproto.OFPMP_GROUP:
            return self._group_counts(asked.number)
        if kind == ofproto.OFPMP_METER_CONFIG:
            known = switch.tables.meters.values()
            return (words.meter(meter) for meter in known if asked.number in (ALL_METERS, meter.id))
        if kind == ofproto.OFPMP_METER:
            return self._meter_counts(asked.number)
        raise RefusedError("OFPBRC_BAD_MULTIPART")

    def _port_counts(self, number: int) -> Iterator[bytes]:
        if number != ANY and number not in self.bridge.ports:
            raise RefusedError("OFPBRC_BAD_PORT")
        age = self.bridge.now - self.bridge.begun
        return (
            words.port_count(
                port,
                self.bridge.switch.port_counts.get(port) or PortCount(Count(), Count()),
                self.bridge.dropped[port],
                age,
            )
            for port in self.bridge.ports
            if number in (ANY, port)
        )

    def _table_counts(self) -> Iterator[bytes]:
        switch = self.bridge.switch
        counts: dict[int, list[Count]] = {}
        for (table, _, _), count in switch.flow_counts.items():
            counts.setdefault(table, []).append(count)
        for table in range(TABLES):
            found = counts.get(table, [])
            yield words.table(table, len(found), sum(count.packets for count in found), switch.missed[table])

    def _meter_counts(self, number: int) -> Iterator[bytes]:
        switch = self.bridge.switch
        tables = switch.tables
        for meter in tables.meters:
            if number in (ALL_METERS, meter):
                users = sum(flow.meter == meter for flow in tables.flows.values())
                yield words.meter_count(meter, users, switch.meters.counts[meter])

    def _group_counts(self, number: int) -> Iterator[bytes]:
        switch = self.bridge.switch
        tables = switch.tables
        for group in tables.groups.values():
            if number in (ALL_GROUPS, group.id):
                users = [*(flow.actions for flow in tables.flows.values())]
                users += [bucket.actions for other in tables.groups.values() for bucket in other.buckets]
                count = sum(ToGroup(group.id) in actions for actions in users)
                yield words.group_count(group, count, switch.group_counts[group.id])
