"""OpenFlow, both sides: what a switch may say to the controller, and what a controller may say to a software switch.

The targets ``openflow`` and ``switch``. Between a controller and a real software switch somebody passes messages on,
changes them, and puts in others.
"""

from __future__ import annotations

import struct

from saps.ofm.controller.controller import Controller
from saps.ofm.controller.driver.service import ControllerService
from saps.ofm.flows.tables import Bucket, Flow, Group, GroupKind, Match, Meter, Output, PutFlow, PutGroup, SetField
from saps.ofm.openflow import encode as e
from saps.ofm.openflow import requests as r
from saps.ofm.openflow.driver.server import OpenFlowServer, ServerSettings
from saps.ofm.openflow.driver.session import Session
from saps.ofm.openflow.events import Limits
from saps.ofm.openflow.framing import BadLengthError, Framer
from saps.ofm.openflow.values import PortInfo, Role
from saps.ofm.switch.bridge import Bridge
from saps.ofm.switch.openflow_agent import Agent
from tests.fuzzing.pipes import Pipe, play, settle
from tests.fuzzing.supply import Supply
from tests.fuzzing.target import Target
from tests.ofm.controller.worlds import rules
from tests.ofm.openflow import messages as m

PORTS = [PortInfo(number, f"p{number}", number, True, 1000) for number in range(1, 5)]
HONEST = 0xBEEF
"""Datapath id of a switch that keeps to the protocol."""
SETTINGS = ServerSettings(limits=Limits(reply=20_000))
KINDS = [m.MULTIPART_REPLY, m.PACKET_IN, m.PORT_STATUS, m.ERROR, m.FEATURES_REPLY, m.HELLO, m.ECHO_REQUEST, 25, 21]
WORDS = [0, 1, 2, 4, 7, 8, 13, 16, 40, 56, 64, 255, 0x7FFF, 0xFFFF]
BARRIER = m.message(m.BARRIER_REQUEST, xid=77)


def body(supply: Supply) -> bytes:
    """16-bit words at which ranges end, and bytes as they are."""
    parts = [struct.pack("!H", supply.one(WORDS)) for _ in range(supply.byte() % 16)]
    return b"".join([*parts, supply.chunk()])[:4000]


class Crossing:
    """A controller, a switch, and somebody between them."""

    def __init__(self, server: OpenFlowServer, dpid: int) -> None:
        self.agent = Agent(Bridge(dpid, PORTS, {1, 2, 3, 4}), lambda frames: None)
        self.pipe = Pipe(Session(server, SETTINGS.limits), socket=True)

    def down(self) -> None:
        """What the controller has said goes to the switch."""
        self.agent.receive(self.pipe.taken())

    def up(self) -> bytes:
        """What the switch has to say."""
        return self.agent.take()


async def _controller(supply: Supply) -> None:
    service = ControllerService(Controller(rules()), grace=1.0)
    server = OpenFlowServer("", 0, service, SETTINGS)
    service.server = server
    crossings: list[Crossing] = []
    while supply:
        action = supply.byte()
        if not crossings or action % 16 == 15:
            crossings.append(Crossing(server, supply.byte() % 4 + 1))
            crossings = crossings[-4:]
        crossing = crossings[action // 16 % len(crossings)]
        await _say(supply, action % 8, crossing, server)
    honest = Crossing(server, HONEST)
    for _ in range(200):
        if HONEST in server.switches:
            break
        honest.down()
        honest.pipe.feed(honest.up())
        await settle()
    assert HONEST in server.switches
    await server.close()
    await service.close()


async def _say(supply: Supply, how: int, crossing: Crossing, server: OpenFlowServer) -> None:
    pipe = crossing.pipe
    crossing.down()
    true = crossing.up()
    match how:
        case 0 | 1 | 2:
            pipe.feed(true)
        case 3:
            changed = bytearray(true)
            if changed:
                changed[supply.byte() * 7 % len(changed)] = supply.byte()
            pipe.feed(bytes(changed))
        case 4:
            pipe.feed(supply.chunk())
        case 5:
            server._tick(supply.byte() / 16)
        case _:
            kind, rest = supply.one(KINDS), body(supply)
            if kind == m.MULTIPART_REPLY:
                rest = struct.pack("!HHxxxx", supply.byte() % 15, supply.byte() % 2) + rest
            pipe.feed(m.message(kind, rest, supply.byte() % 32))
    await settle()


def fuzz_controller(data: bytes) -> None:
    """Nothing escapes, and another switch is served."""
    play(_controller(Supply(data)))


# --- the switch's side --------------------------------------------------------------------------------------------


def fuzz_switch(data: bytes) -> None:
    """Never raises; a connection that is still there answers, and another one finds a bridge that works."""
    supply = Supply(data)
    bridge = Bridge(1, PORTS, {1, 2, 3, 4}, capacity=100)
    sent: list[tuple[int, bytes]] = []
    agent = Agent(bridge, sent.extend)
    if supply.byte() % 4:
        agent.receive(e.hello(1))
    while supply and agent.lost is None:
        bridge.now += 0.5
        match supply.byte() % 8:
            case 0:
                agent.receive(supply.chunk())
            case 1:
                agent.tick(supply.byte() / 16)
            case 2:
                agent.hand(bridge.receive(1, supply.chunk())[1])
            case 3 | 4:
                changed = bytearray(supply.one(_sound()))
                for _ in range(supply.byte() % 4):
                    changed[supply.byte() * 3 % len(changed)] = supply.byte()
                agent.receive(bytes(changed))
            case 5:
                agent.receive(supply.one(_sound()))
            case _:
                kind = supply.byte() % 30
                rest = body(supply)
                if kind == m.MULTIPART_REQUEST:
                    rest = struct.pack("!HHxxxx", supply.byte() % 15, 0) + rest
                agent.receive(m.message(kind, rest, supply.byte()))
    other = Agent(bridge, sent.extend)
    other.receive(e.hello(1) + BARRIER)
    assert [one[1] for one in m.split(other.take())][-1] == m.BARRIER_REPLY
    if agent.lost is None and agent.ready:
        agent.take()
        agent.receive(bytes(1 << 16))  # to the end of whatever has begun, and beyond
        _ended(agent)


def _ended(agent: Agent) -> None:
    """Zeros have no version: whatever came before, this is over, or answered by errors only."""
    try:
        list(Framer(0xFFFF).feed(agent.take()))
    except BadLengthError:
        raise AssertionError("the switch says what is no message") from None


_SOUND: list[bytes] = []


def _sound() -> list[bytes]:
    if not _SOUND:
        flow = Flow(5, Match.of(eth_type=0x0800, ipv4_dst=5, udp_dst=9), (SetField("eth_dst", 6), Output(2)), cookie=3)
        group = Group(7, (Bucket((Output(1),)), Bucket((SetField("ipv4_dst", 1), Output(2)))), GroupKind.ALL)
        asked: list[r.Request] = [
            PutFlow(flow),
            PutGroup(group),
            r.AddGroup(group),
            r.AddMeter(Meter(1, 100, 10)),
            r.AskFlows(),
            r.AskGroups(),
            r.AskGroupCounts(),
            r.AskMeters(),
            r.AskMeterCounts(),
            r.AskPorts(),
            r.AskPortCounts(),
            r.AskMaker(),
            r.AskRole(Role.SLAVE, 3),
            r.AskRole(Role.MASTER, 4),
            r.AskBarrier(),
            r.AskFeatures(),
            r.SendPacket(2, bytes(60)),
            r.DropFlows(0, 0),
            r.SendWholePackets(),
        ]
        _SOUND.extend(e.encode(one, 9) for one in asked)
    return _SOUND


def controller_seeds() -> list[bytes]:
    """Honest handshakes, with something put in at each place."""
    honest = bytes([15, 1]) + bytes(12)
    return [
        honest,
        *(
            honest[:cut] + bytes((6, kind, 4, 1, 2, 3, 4, 8)) + bytes(range(8))
            for cut in (2, 6, 14)
            for kind in range(9)
        ),
        *(honest[:cut] + bytes((3, place, 255)) for cut in (2, 6, 10) for place in range(0, 40, 5)),
    ]


def switch_seeds() -> list[bytes]:
    """Sound requests, and some that are changed."""
    everything = bytes((1,)) + b"".join(bytes((5, i)) for i in range(19))
    return [
        everything,
        *(everything + bytes((3, i, 1, place, 9)) for i in range(19) for place in (1, 5, 12)),
        *(bytes((1, 6, kind, 6, 1, 2, 3, 4, 5, 6, 10)) + bytes(range(10)) for kind in range(30)),
    ]


TARGETS = [
    Target("openflow", "a switch, to the controller", fuzz_controller, controller_seeds, timeout=2.0),
    Target("switch", "a controller, to a software switch", fuzz_switch, switch_seeds),
]
