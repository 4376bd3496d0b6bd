"""A real controller process beside the switches of a lab, a client of it, and brokers' sockets on hosts."""

from __future__ import annotations

import asyncio
import fcntl
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from lab import Lab
from lab.plan import DATA
from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.flows.plan import COOKIE
from saps.ofm.flows.tables import Tables
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.driver.client import AddrInfo, Client
from saps.ofm.northbound.schema import OfmRequest, OfmState, Status
from tests.ofm.frames import flow_text, group_text
from tests.ofm.openflow.ovs import Ovs

TIMEOUT = 45.0
"""Seconds a test waits for what must come."""
SWITCHES = ("127.0.0.1", 6653)
"""Where the switches of a lab look for their controller: in their own namespace, so no other program is in the way."""
PORT = 7000
"""The UDP port brokers listen on."""
LOOPBACK = "10.77.255.254"
SO_RCVBUFFORCE = 33
SIOCGIFINDEX = 0x8933
"""socket(7): a test that is slow must not look like a network that loses."""


class Ofc:
    """A `saps controller` process in the switches' namespace, and its client."""

    def __init__(self, lab: Lab, *options: str) -> None:
        self.lab = lab
        command = [sys.executable, "-m", "saps.cli.controller", "--northbound", "127.0.0.1:0", "--log-level", "warning"]
        self.process: subprocess.Popen[bytes] = lab.switches.popen([*command, *options], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().decode()
        assert ready.startswith("ready "), self.process.wait(TIMEOUT)
        self.url = "http://" + dict(part.split("=") for part in ready.split()[1:])["northbound"]

    def client(self, token: str | None = None) -> Client:
        """A client whose connections begin beside the switches."""
        return Client(self.url, token=token, sockets=self._socket)

    def _socket(self, info: AddrInfo) -> socket.socket:
        return self.lab.switches.socket(info[0], info[1], info[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT)

    def stop(self) -> int:
        """SIGTERM; gives the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT)


@contextmanager
def ofc(lab: Lab, *options: str) -> Iterator[Ofc]:
    """A controller with short times, ended with the block."""
    running = Ofc(lab, "--grace", "3", "--probe-interval", "0.5", *options)
    try:
        yield running
    finally:
        running.kill()


class Member:
    """A broker's UDP socket on a host: what it got, from whom, how often."""

    def __init__(self, lab: Lab, host: str, *, ipv6: bool = False) -> None:
        found = lab.topology.host(host)
        family, ip = (socket.AF_INET6, found.ipv6) if ipv6 else (socket.AF_INET, found.ip)
        self.name = host
        self.address = BrokerAddress(ip, found.mac, PORT)
        self.got: Counter[bytes] = Counter()
        self.sources: dict[bytes, Any] = {}
        self.came = asyncio.Event()
        self.socket = lab.host(host).socket(family, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        self.socket.setblocking(False)
        self.socket.bind((ip, PORT))
        if ipv6:
            request = fcntl.ioctl(self.socket, SIOCGIFINDEX, struct.pack("256s", DATA.encode()))
            index = struct.unpack_from("i", request, 16)[0]
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        asyncio.get_running_loop().add_reader(self.socket, self._read)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            for _ in range(256):
                data, source = self.socket.recvfrom(2048)
                self.got[data] += 1
                self.sources[data] = source
        self.came.set()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.socket)
        self.socket.close()

    def send(self, to: OfmAddress, payload: bytes) -> None:
        self.socket.sendto(payload, (to.ip, to.port))

    async def has(self, wanted: set[bytes]) -> None:
        """Returns once all of this has come."""
        await self.until(lambda: wanted <= self.got.keys())

    async def until(self, true: Callable[[], bool]) -> None:
        """Returns once it is true of what has come."""
        async with asyncio.timeout(TIMEOUT):
            while not true():
                self.came.clear()
                await self.came.wait()


@asynccontextmanager
async def members(
    lab: Lab, hosts: Iterable[str] | None = None, *, ipv6: bool = False
) -> AsyncIterator[dict[str, Member]]:
    """Sockets on these hosts, or all, by name."""
    names = [host.name for host in lab.topology.hosts] if hosts is None else list(hosts)
    found = {name: Member(lab, name, ipv6=ipv6) for name in names}
    try:
        yield found
    finally:
        for member in found.values():
            member.close()


async def all_known(client: Client, lab: Lab) -> None:
    """Returns once the controller knows all switches and links. Before, a host may seem to be behind a port of another
    switch, and its tree is made anew when the link there is found."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            found = await client.topology()
            if (len(found.switches), len(found.links)) == (len(lab.topology.switches), len(lab.topology.links)):
                return
            await asyncio.sleep(0.05)


async def constructed(client: Client, topic: str, brokers: Iterable[Member]) -> OfmAddress:
    """An OFM over these brokers, ready for use."""
    request = OfmRequest(topic, [member.address for member in brokers])
    state = await client.put(request, wait=TIMEOUT)
    return usable(state)


def usable(state: OfmState) -> OfmAddress:
    assert state.status is Status.CONSTRUCTED, state
    assert state.address is not None
    return OfmAddress.parse(state.address)


async def heard_by_all(sender: Member, to: OfmAddress, receivers: Iterable[Member], tag: str) -> None:
    """Sends numbered probes until one has reached all: then the tree works."""
    listeners = list(receivers)
    async with asyncio.timeout(TIMEOUT):
        for number in range(1_000_000):
            probe = f"{tag} {number}".encode()
            sender.send(to, probe)
            try:
                async with asyncio.timeout(0.02):
                    for member in listeners:
                        await member.until(lambda member=member, probe=probe: member.got[probe] > 0)  # type: ignore[misc]
                return
            except TimeoutError:
                continue


async def each_hears_all(brokers: Mapping[str, Member], to: OfmAddress) -> None:
    """Each broker sends, and each gets all of it once: its own from the loopback address."""
    for sender in brokers.values():
        for number in range(20):
            sender.send(to, f"{sender.name} {number}".encode())
    expected = {f"{sender} {number}".encode(): 1 for sender in brokers for number in range(20)}
    for member in brokers.values():
        await member.until(lambda member=member: len(member.got) == len(expected))  # type: ignore[misc]
    for member in brokers.values():
        assert member.got == expected
        for payload, source in member.sources.items():
            sender = brokers[payload.decode().split()[0]]
            assert source == ((LOOPBACK, to.port) if sender is member else (sender.address.ip, PORT))


class Stream:
    """A steady stream of numbered datagrams from one broker, so many a second, until it is stopped. It has a thread of
    its own: what holds up the test's loop does not hold it up, and nothing is made up for in a burst. The rate
    leaves Open vSwitch, whose ports' buffers hold some 90 datagrams, 200 ms without a processor."""

    BURST = 4
    """Datagrams sent at a time."""

    def __init__(self, sender: Member, to: OfmAddress, rate: int = 400) -> None:
        self.sender, self.to, self.rate = sender, to, rate
        self.sent = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self.BURST / self.rate):
            for _ in range(self.BURST):
                self.sender.socket.sendto(b"%d" % self.sent, (self.to.ip, self.to.port))
                self.sent += 1

    async def reach(self, number: int) -> None:
        """Until so many have been sent and the sender has heard of it by its own."""
        await self.sender.until(lambda: self.sent >= number)

    async def stop(self, receivers: Iterable[Member]) -> dict[str, Counter[int]]:
        """Ends it, and waits for the last datagram to arrive. Gives how often each number came, by receiver."""
        self._over.set()
        await asyncio.to_thread(self._thread.join)
        last = b"%d" % (self.sent - 1)
        for member in receivers:
            await member.until(lambda member=member: member.got[last] > 0)  # type: ignore[misc]
        return {
            member.name: Counter({int(data): count for data, count in member.got.items() if data.isdigit()})
            for member in receivers
        }


Dump: TypeAlias = tuple[list[str], list[str]]
"""Flow entries and groups of a switch, as `ovs-ofctl` prints them, without counters and ages, sorted."""


def ofctl(lab: Lab, command: str, *arguments: str) -> str:
    """What `ovs-ofctl` prints in the lab."""
    done = lab.switches.run(
        ["ovs-ofctl", "-O", "OpenFlow13", *(["--no-stats"] if command == "dump-flows" else []), command, *arguments],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return str(done.stdout)


def tables(lab: Lab) -> dict[str, Dump]:
    """What every switch holds."""
    return {
        switch.name: (
            _lines(ofctl(lab, "dump-flows", switch.name), "actions="),
            _lines(ofctl(lab, "dump-groups", switch.name), "group_id="),
        )
        for switch in lab.topology.switches
    }


def ours(dumps: Mapping[str, Dump]) -> dict[str, Dump]:
    """Only what plans have put there."""
    mark = f"cookie={COOKIE >> 32:#x}"
    return {
        name: ([flow for flow in flows if flow.startswith(mark)], groups) for name, (flows, groups) in dumps.items()
    }


def written(ovs: Ovs, name: str, wanted: Tables) -> Dump:
    """How Open vSwitch prints these tables when it has read them from texts: on a fresh bridge, without our codec."""
    ovs.bridge(name, 1)
    control = f"unix:{ovs.home / name}.mgmt"
    for what, texts in (
        ("groups", [group_text(group) for group in wanted.groups.values()]),
        ("flows", [flow_text(flow) for flow in wanted.flows.values()]),
    ):
        file = ovs.home / f"{name}.{what}"
        file.write_text("\n".join(texts))
        ovs.ofctl(f"add-{what}", control, str(file))
    flows, groups = "\n".join(ovs.flows(name)), "\n".join(ovs.groups(name))
    return _lines(flows, "actions="), _lines(groups, "group_id=")


def _lines(text: str, word: str) -> list[str]:
    return sorted(_plain(line) for line in text.splitlines() if word in line)


def _plain(line: str) -> str:
    """Without the order of a group's buckets, which means nothing."""
    head, *buckets = line.strip().split(",bucket=")
    return ",bucket=".join([head, *sorted(bucket.partition("actions=")[2] for bucket in buckets)])


def state_file(directory: Path) -> list[str]:
    return ["--state", str(directory / "ofc.json")]
