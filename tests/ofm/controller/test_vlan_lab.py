"""Open vSwitch in a network with VLANs (IEEE 802.1Q): brokers at access ports, or brokers that tag their frames."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lab import Lab
from lab.plan import DATA
from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.flows.tables import ipv4
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.schema import OfmRequest
from saps.ofm.switch import topologies
from saps.ofm.switch.host import Host
from tests.ofm.controller.ofc import (
    PORT,
    SWITCHES,
    TIMEOUT,
    all_known,
    constructed,
    each_hears_all,
    members,
    ofc,
    usable,
)

pytestmark = [pytest.mark.network, pytest.mark.xdist_group("processes")]

VLAN = 10
TAG = b"\x81\x00" + struct.pack("!H", VLAN)
ALL_PROTOCOLS, AUXILIARY = 0x0003, 8
"""ETH_P_ALL and PACKET_AUXDATA (packet(7)): the kernel takes tags out of frames, and gives them beside."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab("line:3x2", name=f"vlan{os.getpid()}", controller=SWITCHES, directory=tmp_path / "d") as made:
        yield made


async def test_a_tree_carries_what_comes_by_access_ports(lab: Lab) -> None:
    for host in lab.topology.hosts:
        lab.switches.run(["ovs-vsctl", "set", "Port", host.name, f"tag={VLAN}"], check=True)
    with ofc(lab) as running:
        async with running.client() as client, members(lab) as brokers:
            await all_known(client, lab)
            to = await constructed(client, "air", brokers.values())
            await each_hears_all(brokers, to)


class Tagging:
    """A broker whose frames have the tag of the VLAN."""

    def __init__(self, lab: Lab, host: topologies.Host) -> None:
        self.address = BrokerAddress(host.ip, host.mac, PORT)
        self.host = Host(self.address)
        self.got: Counter[bytes] = Counter()
        self.socket = lab.host(host.name).socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
        self.socket.setsockopt(263, AUXILIARY, 1)  # SOL_PACKET
        self.socket.bind((DATA, ALL_PROTOCOLS))
        self.socket.setblocking(False)
        self._send(self.host.announcement())

    def send(self, to: OfmAddress, payload: bytes) -> None:
        self._send(self.host.frame(ipv4(to.ip), to.port, payload))

    def _send(self, frame: bytes) -> None:
        self.socket.send(frame[:12] + TAG + frame[12:])

    def read(self) -> Counter[bytes]:
        """What has come in the VLAN so far."""
        with suppress(BlockingIOError):
            while True:
                frame, extra, _, _ = self.socket.recvmsg(2048, 128)
                tags = [struct.unpack_from("IIIHHHH", data)[5] for _, kind, data in extra if kind == AUXILIARY]
                payload, _ = self.host.receive(frame)
                if payload is not None:
                    assert tags == [VLAN]
                    self.got[payload] += 1
        return self.got


async def test_a_tree_carries_what_brokers_have_tagged(lab: Lab) -> None:
    with ofc(lab) as running:
        async with running.client() as client:
            await all_known(client, lab)
            brokers = {host.name: Tagging(lab, host) for host in lab.topology.hosts}
            try:
                request = OfmRequest("air", [broker.address for broker in brokers.values()])
                to = usable(await client.put(request, wait=TIMEOUT))
                for attempt in range(100):  # a busy machine may lose some
                    expected = Counter(f"{name} {attempt} {number}".encode() for name in brokers for number in range(5))
                    for payload in expected:
                        brokers[payload.decode().split()[0]].send(to, payload)
                    await asyncio.sleep(0.5)
                    if all(expected <= broker.read() for broker in brokers.values()):
                        break
                assert all(expected <= broker.got and set(broker.got.values()) == {1} for broker in brokers.values())
            finally:
                for broker in brokers.values():
                    broker.socket.close()
