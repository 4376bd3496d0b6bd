"""Switches that only keep their tables, as bytes: ``python -m benchmarks.controller.wire_switches PORT SWITCHES``.

Switch i is linked to i + 1 and i + 7, around; each has one host. They speak OpenFlow 1.3 over sockets, carry probes and
answer ARP, forward nothing, and understand of an entry no more than its name: so a network of 48 with 100,000 entries
takes little of the processor that is measured. Orders on standard input: ``down A B``, ``up A B``, ``count``.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from saps.ofm.network.topology import BrokerAddress, Link, Port
from saps.ofm.openflow import encode
from saps.ofm.openflow.framing import Framer
from saps.ofm.openflow.ofp import ofproto as o
from saps.ofm.openflow.values import Features, PortChange, PortInfo
from saps.ofm.switch import replies

STEPS = (1, 7)
"""Each switch is linked to those so many numbers further."""
HOST = 2 * len(STEPS) + 1
"""The port of a switch's host."""
RETRY = 0.2


def links(switches: int) -> list[Link]:
    """All links. Ports 1, 2: towards the next by the first and second step; 3, 4: the other way."""
    found = []
    for dpid in range(1, switches + 1):
        for place, step in enumerate(STEPS, 1):
            found.append(Link.of(Port(dpid, place), Port((dpid - 1 + step) % switches + 1, place + len(STEPS))))
    return found


def broker(dpid: int) -> BrokerAddress:
    """The broker on a switch's host."""
    return BrokerAddress(f"10.77.{dpid}.1", f"02:00:0a:4d:{dpid:02x}:01", 7400)


@dataclass(slots=True)
class WireSwitch:
    """One switch's tables: entries by the bytes of their name."""

    dpid: int
    network: WireSwitches
    flows: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    """Table, priority and match -> cookie and entry, as statistics carry it."""
    groups: dict[int, bytes] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    """What came, by its kind."""
    writer: asyncio.StreamWriter | None = None

    def port(self, number: int) -> PortInfo:
        at = Port(self.dpid, number)
        return PortInfo(number, f"p{number}", self.dpid << 8 | number, at not in self.network.down, 0)

    def answer(self, message: bytes) -> Iterator[bytes]:
        kind, xid = message[1], int.from_bytes(message[4:8], "big")
        if kind == o.OFPT_ECHO_REQUEST:
            self.asked["echo"] += 1
            yield encode.echo_reply(xid, message[8:])
        elif kind == o.OFPT_FEATURES_REQUEST:
            yield replies.features(xid, Features(self.dpid, 1, 0))
        elif kind == o.OFPT_BARRIER_REQUEST:
            yield replies.message(o.OFPT_BARRIER_REPLY, xid)
        elif kind == o.OFPT_FLOW_MOD:
            self.asked["change"] += 1
            self._flow_mod(message)
        elif kind == o.OFPT_GROUP_MOD:
            self.asked["change"] += 1
            command, _, _, number = struct.unpack_from("!HBBI", message, 8)
            if command == o.OFPGC_DELETE:
                self.groups.pop(number, None)
            else:
                self.groups[number] = struct.pack("!H", len(message) - 8) + message[10:]
        elif kind == o.OFPT_PACKET_OUT:
            self.asked["packet"] += 1
            (size,) = struct.unpack_from("!H", message, 16)
            (port,) = struct.unpack_from("!I", message, 28)
            self.network.carry(Port(self.dpid, port), message[24 + size :])
        elif kind == o.OFPT_MULTIPART_REQUEST:
            yield from self._statistics(message, xid)

    def _flow_mod(self, message: bytes) -> None:
        cookie, mask, table, command = struct.unpack_from("!QQBB", message, 8)
        (priority,) = struct.unpack_from("!H", message, 30)
        (length,) = struct.unpack_from("!H", message, 50)
        end = 48 + (length + 7) // 8 * 8
        name = struct.pack("!BH", table, priority) + message[48:end]
        if command == o.OFPFC_ADD:
            body = message[48:]
            head = struct.pack("!HBxIIHHHH4xQQQ", 48 + len(body), table, 0, 0, priority, 0, 0, 0, cookie, 0, 0)
            self.flows[name] = (cookie, head + body)
        elif command == o.OFPFC_DELETE_STRICT:
            self.flows.pop(name, None)
        elif command == o.OFPFC_DELETE:
            self.flows = {name: flow for name, flow in self.flows.items() if flow[0] & mask != cookie & mask}

    def _statistics(self, message: bytes, xid: int) -> Iterator[bytes]:
        (kind,) = struct.unpack_from("!H", message, 8)
        entries: list[bytes] = []
        if kind == o.OFPMP_DESC:
            entries = [replies.maker("SAPS", "Open vSwitch", "", "")]
        elif kind == o.OFPMP_PORT_DESC:
            entries = [replies.port(self.port(number)) for number in range(1, HOST + 1)]
        elif kind in (o.OFPMP_FLOW, o.OFPMP_AGGREGATE):
            cookie, mask = struct.unpack_from("!QQ", message, 32)
            entries = [entry for its, entry in self.flows.values() if its & mask == cookie & mask]
            self.asked["flows" if kind == o.OFPMP_FLOW else "aggregate"] += 1
            if kind == o.OFPMP_AGGREGATE:
                entries = [struct.pack("!QQI4x", 0, 0, len(entries))]
            else:
                self.asked["flow entries"] += len(entries)
        elif kind == o.OFPMP_GROUP_DESC:
            self.asked["groups"] += 1
            entries = list(self.groups.values())
        yield from replies.parts(xid, kind, entries)


class WireSwitches:
    """All of them, and the links between."""

    def __init__(self, switches: int) -> None:
        self.switches = {dpid: WireSwitch(dpid, self) for dpid in range(1, switches + 1)}
        self.far = {near: far for link in links(switches) for near, far in (link, link[::-1])}
        self.down: set[Port] = set()

    async def attend(self, switch: WireSwitch, port: int) -> None:
        """Connect to the controller, and again when it ends."""
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(RETRY)
                continue
            switch.writer, framer = writer, Framer(0xFFFF)
            writer.write(encode.hello(1))
            try:
                while data := await reader.read(1 << 18):
                    for message in framer.feed(data):
                        for answer in switch.answer(message):
                            writer.write(answer)
                    await writer.drain()
            except OSError:
                pass
            switch.writer = None
            writer.close()
            await asyncio.sleep(RETRY)

    def carry(self, source: Port, frame: bytes) -> None:
        """A frame leaves a port: a probe comes to the controller at the far end, a host answers what asks for it."""
        if source in self.down:
            return
        if (far := self.far.get(source)) is not None:
            self._hand(far, frame)
        elif frame[12:14] == b"\x08\x06" and source.port == HOST:
            me = broker(source.dpid)
            mac, ip = bytes.fromhex(me.mac.replace(":", "")), bytes(map(int, me.ip.split(".")))
            if frame[38:42] == ip:
                body = frame[14:20] + b"\0\2" + mac + ip + frame[22:28] + bytes(4)
                self._hand(source, (frame[6:12] + mac + frame[12:14] + body).ljust(60, b"\0"))

    def _hand(self, at: Port, frame: bytes) -> None:
        writer = self.switches[at.dpid].writer
        if writer is not None:
            writer.write(replies.packet_in(at.port, 0, frame, 0xFFFF))

    def set_link(self, a: int, b: int, *, up: bool) -> None:
        """A link goes down, or up: both its ends say so."""
        for near, far in list(self.far.items()):
            if (near.dpid, far.dpid) in ((a, b), (b, a)):
                (self.down.discard if up else self.down.add)(near)
                switch = self.switches[near.dpid]
                if switch.writer is not None:
                    switch.writer.write(replies.port_status(PortChange.MODIFIED, switch.port(near.port)))

    def count(self) -> dict[str, int]:
        """What all have been asked, and hold."""
        asked: Counter[str] = sum((switch.asked for switch in self.switches.values()), Counter())
        asked["entries held"] = sum(len(switch.flows) for switch in self.switches.values())
        asked["most entries"] = max(len(switch.flows) for switch in self.switches.values())
        asked["connected"] = sum(switch.writer is not None for switch in self.switches.values())
        return dict(asked)


async def serve(port: int, switches: int) -> None:
    network = WireSwitches(switches)
    attending = [asyncio.ensure_future(network.attend(switch, port)) for switch in network.switches.values()]
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := (await lines.readline()).decode().split():
        if line[0] != "count":
            network.set_link(int(line[1]), int(line[2]), up=line[0] == "up")
        print(json.dumps(network.count()), flush=True)
    for task in attending:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
