"""Stateless delivery on real switches: random receivers get each packet once, and ports count each copy."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest

from lab import Lab
from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.flows.tables import Tables
from saps.ofm.network.topology import BrokerAddress, Port, Topology
from saps.ofm.stateless.address import Receivers, bits_of
from saps.ofm.stateless.planes import crossed, lay_planes
from saps.ofm.stateless.tables import Layout, tables
from tests.ofm.controller.ofc import members
from tests.ofm.frames import flow_text, group_text

pytestmark = [pytest.mark.network, pytest.mark.xdist_group("processes")]

PUBLICATIONS = 60
SIZE = 1000
"""Bytes of a payload."""
HEADERS = 40 + 8
ETH_ALL, PACKET_OUTGOING, SO_RCVBUFFORCE = 3, 4, 33
CAPTURED = 16 << 20
"""Bytes of frames that wait to be counted: ten times what the test sends."""
QUIET = 0.5
"""Seconds in which a copy too many would have come."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("labs") / "d"
    with Lab("ring:4x2", name=f"stateless{os.getpid()}", directory=directory, ipv6=True) as made:
        yield made


def known(lab: Lab) -> Topology:
    """The lab's switches and links."""
    ids = {switch.name: switch.datapath_id for switch in lab.topology.switches}
    found = Topology()
    for link in lab.topology.links:
        found.link_up(Port(ids[link.a], link.a_port), Port(ids[link.b], link.b_port))
    return found


def attach(lab: Lab, topology: Topology, brokers: dict[str, BrokerAddress]) -> None:
    ids = {switch.name: switch.datapath_id for switch in lab.topology.switches}
    for name, broker in brokers.items():
        host = lab.topology.host(name)
        topology.attach(broker, ids[host.switch], host.port)


def install(lab: Lab, made: dict[int, Tables]) -> None:
    """By Open vSwitch's own program, from texts."""
    for switch in lab.topology.switches:
        mine = made[switch.datapath_id]
        for command, texts in (
            ("add-groups", map(group_text, mine.groups.values())),
            ("add-flows", map(flow_text, mine.flows.values())),
        ):
            lab.switches.run(
                ["ovs-ofctl", "-O", "OpenFlow13", command, switch.name, "-"],
                input="\n".join(texts), text=True, check=True, capture_output=True,
            )  # fmt: skip


@pytest.fixture
def captured(lab: Lab) -> Iterator[socket.socket]:
    """A socket that gets a copy of every frame that any interface of the switches sends or receives."""
    with lab.switches.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_ALL)) as made:
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, CAPTURED)
        made.setblocking(False)
        yield made


def copies(captured: socket.socket, lab: Lab) -> Counter[tuple[str, bytes]]:
    """How often each interface between switches has sent each datagram, by the datagram's payload."""
    links = {name for link in lab.topology.links for name in (link.name, link.reverse)}
    counts = Counter[tuple[str, bytes]]()
    with suppress(BlockingIOError):
        while True:
            packet, (interface, _, kind, *_) = captured.recvfrom(65535)
            if kind == PACKET_OUTGOING and interface in links and len(packet) == HEADERS + SIZE:
                counts[interface, packet[HEADERS:]] += 1
    return counts


async def test_random_receivers_get_it_once_and_each_link_carries_it_at_most_once(
    lab: Lab, captured: socket.socket
) -> None:
    rng = random.Random(1)
    async with members(lab, ipv6=True) as hosts:
        topology, brokers = known(lab), {name: host.address for name, host in hosts.items()}
        attach(lab, topology, brokers)
        layout = Layout((tuple(brokers.values()),), tuple(lay_planes(topology, list(brokers.values()), 2)))
        assert len(layout.planes) == 2
        install(lab, tables(layout))
        wanted: dict[str, Counter[bytes]] = {name: Counter() for name in hosts}
        crossings = 0
        for number in range(PUBLICATIONS):
            sender = rng.choice(list(hosts))
            others = [name for name in hosts if name != sender]
            chosen = rng.sample(others, rng.randint(1, len(others)))
            bits = bits_of(layout.receivers[brokers[name]][1] for name in chosen)
            plane = rng.randrange(2)
            payload = f"{number} ".encode().ljust(SIZE, b".")
            hosts[sender].send(OfmAddress(str(Receivers(0, plane, bits).address), 7401), payload)
            for name in chosen:
                wanted[name][payload] += 1
            tree = layout.planes[plane]
            crossings += len(crossed(tree, layout.bits_at(0, tree), tree.brokers[brokers[sender]].dpid, bits))
            await asyncio.sleep(0.01)
        for name, host in hosts.items():
            await host.has(set(wanted[name]))
        forger = next(iter(hosts.values()))
        everybody = bits_of(position for _, position in layout.receivers.values())
        with lab.host(forger.name).socket(forger.socket.family, forger.socket.type) as stranger:
            index = forger.socket.getsockopt(41, 17)  # IPPROTO_IPV6, IPV6_MULTICAST_IF
            stranger.setsockopt(41, 17, index)
            stranger.sendto(b"forged".ljust(SIZE, b"."), (str(Receivers(0, 0, everybody).address), 7401))
        await asyncio.sleep(QUIET)
        assert {name: host.got for name, host in hosts.items()} == wanted
        seen = copies(captured, lab)
        assert set(seen.values()) == {1}
        assert seen.total() == crossings
