"""Addresses that are codes, on Open vSwitch: one entry serves a subtree, each topic reaches its own brokers only."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from saps.lab import Lab
from saps.lab.plan import DATA
from saps.ofm.addresses import OfmAddress
from saps.ofm.northbound.client import Client
from saps.ofm.northbound.schema import OfmRequest
from saps.ofm.topology import BrokerAddress
from tests.ofm.controller.ofc import PATIENCE, PORT, SWITCHES, ofc, ours, tables, usable

pytestmark = [pytest.mark.network, pytest.mark.xdist_group("processes")]

OPTIONS = ("--addresses", "coded", "--loopback", "fd77:0:0:ffff::fffe")
SIOCGIFINDEX = 0x8933


class Member6:
    """A broker's IPv6 socket on a host: what it got."""

    def __init__(self, lab: Lab, host: str) -> None:
        found = lab.topology.host(host)
        self.name = host
        self.address = BrokerAddress(found.ipv6, found.mac, PORT)
        self.got: Counter[bytes] = Counter()
        self.came = asyncio.Event()
        self.socket = lab.host(host).socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind((found.ipv6, PORT))
        request = fcntl.ioctl(self.socket, SIOCGIFINDEX, struct.pack("256s", DATA.encode()))
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, struct.unpack_from("i", request, 16)[0])
        asyncio.get_running_loop().add_reader(self.socket, self._read)

    def _read(self) -> None:
        try:
            while True:
                self.got[self.socket.recv(2048)] += 1
        except BlockingIOError:
            self.came.set()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.socket)
        self.socket.close()

    def send(self, to: OfmAddress, payload: bytes) -> None:
        self.socket.sendto(payload, (to.ip, to.port))

    async def has(self, wanted: set[bytes]) -> None:
        """Returns once all of this has come."""
        async with asyncio.timeout(PATIENCE):
            while not wanted <= self.got.keys():
                self.came.clear()
                await self.came.wait()


@asynccontextmanager
async def members(lab: Lab) -> AsyncIterator[dict[str, Member6]]:
    found = {host.name: Member6(lab, host.name) for host in lab.topology.hosts}
    try:
        yield found
    finally:
        for member in found.values():
            member.close()


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("coded") / "d"
    with Lab("ring:3x2", name=f"coded{os.getpid()}", controller=SWITCHES, directory=directory, ipv6=True) as made:
        yield made


async def built(client: Client, topic: str, brokers: list[Member6]) -> OfmAddress:
    return usable(await client.put(OfmRequest(topic, [member.address for member in brokers]), wait=PATIENCE))


async def test_one_entry_serves_a_subtree_and_each_topic_reaches_its_own_brokers_only(lab: Lab) -> None:
    with ofc(lab, *OPTIONS) as running:
        async with running.client() as client, members(lab) as brokers:
            all_of_them = list(brokers.values())
            few = [member for member in all_of_them if member.name.endswith("1")]
            wide = {
                topic: await built(client, topic, all_of_them) for topic in ("city", "city/a", "city/b", "city/b/c")
            }
            before = ours(tables(lab))
            more = await built(client, "city/d", all_of_them)
            assert ours(tables(lab)) == before, "the same entries serve it"
            narrow = await built(client, "city/b/e", few)
            for topic, to in {**wide, "city/d": more, "city/b/e": narrow}.items():
                for member in few:
                    member.send(to, f"{topic} {member.name}".encode())
            for member in all_of_them:
                senders = [sender.name for sender in few]
                topics = [*wide, "city/d", *(["city/b/e"] if member in few else [])]
                wanted = {f"{topic} {sender}".encode() for topic in topics for sender in senders}
                await member.has(wanted)
                assert member.got == dict.fromkeys(wanted, 1)
            budgets = await client.budgets()
            assert all(budget.entries.used < budget.alone for budget in budgets)
        assert running.stop() == 0
