"""A lab that stands: everyone reaches everyone, the counters tell exactly what crossed, and it can be disturbed."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise, permutations
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab import MANAGEMENT_GATE, Lab, LabError, Topology, Traffic

pytestmark = [pytest.mark.network, pytest.mark.xdist_group("processes")]

TIMEOUT = 10.0
"""Seconds a test waits for what must come."""
HEADERS = 14 + 20 + 8
"""Ethernet, IPv4 and UDP."""
CYCLES = """
links = [["hub", "east"], ["hub", "west"], ["east", "west"], ["west", "west2"]]
[switches]
hub = {}
east = { cluster = "tokyo", hosts = 2 }
west = { cluster = "osaka", hosts = 1 }
west2 = { cluster = "osaka", hosts = 1 }
"""


@pytest.fixture(scope="module", params=["tree:4x2", CYCLES], ids=["tree:4x2", "cycles"])
def lab(request: pytest.FixtureRequest, directory: Path) -> Iterator[Lab]:
    with Lab(request.param, directory=directory) as made:
        yield made


@pytest.fixture(scope="module")
def tree(directory: Path) -> Iterator[Lab]:
    with Lab("tree:2x1", name=f"small{os.getpid()}", directory=directory, ipv6=True) as made:
        yield made


def udp(lab: Lab, name: str) -> socket.socket:
    made = lab.host(name).socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(TIMEOUT)
    made.bind((lab.topology.host(name).ip, 0))
    return made


def path(topology: Topology, source: str, target: str) -> list[str]:
    """The switches between two hosts, for traffic that avoids spare links."""
    made = nx.Graph((link.a, link.b) for link in topology.links if not link.spare)
    made.add_nodes_from(switch.name for switch in topology.switches)
    return list(nx.shortest_path(made, topology.host(source).switch, topology.host(target).switch))


def test_udp_and_tcp_pass_between_every_pair_of_hosts(lab: Lab) -> None:
    for source, target in permutations(lab.topology.hosts, 2):
        with udp(lab, source.name) as sender, udp(lab, target.name) as receiver:
            sender.sendto(b"datagram", receiver.getsockname())
            assert receiver.recvfrom(100) == (b"datagram", sender.getsockname())
        with (
            lab.host(target.name).listen((target.ip, 0)) as listener,
            lab.host(source.name).connect(listener.getsockname(), TIMEOUT) as client,
        ):
            server, peer = listener.accept()
            with server:
                assert peer[0] == source.ip
                payload = bytes(range(256)) * 100
                client.sendall(payload)
                client.shutdown(socket.SHUT_WR)
                assert server.makefile("rb").read() == payload


def quiet(lab: Lab) -> None:
    """Returns when nothing moves any more: TCP of another test may still be saying goodbye."""
    moved = True
    while moved:
        before = lab.counters()
        time.sleep(0.2)
        moved = any(sent.packets or heard.packets for _, sent, heard in (lab.counters() - before).hosts())


def test_the_counters_tell_exactly_what_was_sent(lab: Lab) -> None:
    quiet(lab)
    names = [host.name for host in lab.topology.hosts]
    pairs = st.tuples(st.sampled_from(names), st.sampled_from(names)).filter(lambda pair: pair[0] != pair[1])

    @settings(max_examples=20)
    @given(st.lists(st.tuples(pairs, st.integers(1, 30), st.integers(18, 1400)), min_size=1, max_size=6))
    def check(bursts: list[tuple[tuple[str, str], int, int]]) -> None:
        expected: Counter[tuple[str, str]] = Counter()
        octets: Counter[tuple[str, str]] = Counter()
        before = lab.counters()
        for (source, target), count, size in bursts:
            with udp(lab, source) as sender, udp(lab, target) as receiver:
                for _ in range(count):
                    sender.sendto(bytes(size), receiver.getsockname())
                for _ in range(count):
                    assert len(receiver.recv(2000)) == size
            nodes = [source, *path(lab.topology, source, target), target]
            for hop in pairwise(nodes):
                expected[hop] += count
                octets[hop] += count * (size + HEADERS)
        seen = lab.counters() - before
        found = {}
        for link, there, back in seen.links():
            found[link.a, link.b], found[link.b, link.a] = there, back
        for host, sent, heard in seen.hosts():
            found[host.name, host.switch], found[host.switch, host.name] = sent, heard
        assert found == {hop: Traffic(expected[hop], octets[hop]) for hop in found}
        crossing = [
            hop for link in lab.topology.links if link.inter_cluster for hop in ((link.a, link.b), (link.b, link.a))
        ]
        assert seen.inter_cluster.packets == sum(expected[hop] for hop in crossing)
        assert seen.inter_cluster.packets + seen.intra_cluster.packets == sum(
            count for hop, count in expected.items() if not set(hop) & set(names)
        )

    check()


def test_the_management_network_joins_all_and_is_not_counted(lab: Lab) -> None:
    before = lab.counters()
    with lab.switches.listen((MANAGEMENT_GATE, 0)) as listener:
        for host in lab.topology.hosts:
            with lab.host(host.name).connect(listener.getsockname(), TIMEOUT):
                server, peer = listener.accept()
                server.close()
                assert peer[0] == host.management
    seen = lab.counters() - before
    assert {part for _, *both in (*seen.links(), *seen.hosts()) for part in both} == {Traffic()}


def test_the_switches_answer_openflow_tools_under_the_planned_numbers(lab: Lab) -> None:
    for switch in lab.topology.switches:
        flows = tool(lab, "ovs-ofctl", "-O", "OpenFlow13", "dump-flows", switch.name)
        assert [line.split()[-2:] for line in flows.splitlines()[1:]] == [["priority=0", "actions=NORMAL"]]
        assert f"dpid:{switch.datapath_id:016x}" in tool(lab, "ovs-ofctl", "-O", "OpenFlow13", "show", switch.name)
    for link in lab.topology.links:
        assert tool(lab, "ovs-vsctl", "get", "Interface", link.name, "ofport").strip() == str(link.a_port)


def tool(lab: Lab, *command: str) -> str:
    return subprocess.run(command, env=lab.environment, check=True, capture_output=True, text=True).stdout


def test_ipv6_unicast_and_multicast_pass_where_the_lab_has_it(tree: Lab) -> None:
    a, b = tree.topology.hosts
    with tree.host(b.name).socket(socket.AF_INET6, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(TIMEOUT)
        receiver.bind(("::", 0))
        with tree.host(b.name).inside():
            index = socket.if_nametoindex("eth0")
        group = socket.inet_pton(socket.AF_INET6, "ff15::77")
        receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group + struct.pack("@I", index))
        with tree.host(a.name).socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
            with tree.host(a.name).inside():
                outgoing = socket.if_nametoindex("eth0")
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, outgoing)
            sender.bind((a.ipv6, 0))
            port = receiver.getsockname()[1]
            for address in (b.ipv6, "ff15::77"):
                sender.sendto(address.encode(), (address, port))
                payload, source = receiver.recvfrom(100)
                assert (payload, source[0]) == (address.encode(), a.ipv6)


def test_a_link_goes_down_and_up(tree: Lab) -> None:
    a, b = tree.topology.hosts
    with udp(tree, a.name) as sender, udp(tree, b.name) as receiver:
        sender.sendto(b"before", receiver.getsockname())  # else the host may send the next one when it has its address
        assert receiver.recv(100) == b"before"
        tree.set_link("s2", "core", up=False)
        sender.sendto(b"lost", receiver.getsockname())
        tree.set_link("core", "s2", up=True)
        sender.sendto(b"arrives", receiver.getsockname())
        assert receiver.recv(100) == b"arrives"


def test_a_restarted_switch_has_empty_tables_and_forwards(tree: Lab) -> None:
    a, b = tree.topology.hosts
    tool(tree, "ovs-ofctl", "-O", "OpenFlow13", "add-flow", "core", "priority=9,udp,udp_dst=9,actions=drop")
    tree.restart_switch("core")
    flows = tool(tree, "ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "core").splitlines()[1:]
    assert [line.split()[-2:] for line in flows] == [["priority=0", "actions=NORMAL"]]
    with udp(tree, a.name) as sender, udp(tree, b.name) as receiver:
        sender.sendto(b"again", receiver.getsockname())
        assert receiver.recv(100) == b"again"


def test_a_limited_link_drops_what_does_not_fit_until_the_limit_is_lifted(tree: Lab) -> None:
    a, b = tree.topology.hosts
    with udp(tree, a.name) as sender, udp(tree, b.name) as receiver:

        def sent_and_heard() -> tuple[int, int]:
            before = tree.counters()
            for _ in range(100):
                sender.sendto(bytes(1400), receiver.getsockname())
            # The way back is not limited, and what is told there comes after what was sent.
            receiver.sendto(b"?", sender.getsockname())
            sender.recv(100)
            seen = tree.counters() - before
            return seen.from_host(a.name).packets, seen.across("core", "s2").packets

        tree.set_rate("core", "s2", 100_000)
        sent, crossed = sent_and_heard()
        assert (sent, crossed < 100) == (100, True)
        tree.set_rate("core", "s2", None)
        while receiver.recv(2000) != b"last":
            sender.sendto(b"last", receiver.getsockname())


def test_all_switches_call_the_controller_and_keep_their_flows(tree: Lab) -> None:
    """They call by OpenFlow 1.3 or later; flows stay when the controller is set and when it goes."""
    tool(tree, "ovs-ofctl", "-O", "OpenFlow13", "add-flow", "s1", "priority=7,udp,udp_dst=7,actions=drop")

    async def calls() -> set[int]:
        versions: list[int] = []
        enough = asyncio.Event()

        async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            version, kind, _, _ = struct.unpack("!BBHI", await reader.readexactly(8))
            assert kind == 0
            versions.append(version)
            if len(versions) == len(tree.topology.switches):
                enough.set()
            await reader.read()
            writer.close()

        listener = tree.switches.listen(("127.0.0.1", 0))
        async with await asyncio.start_server(hello, sock=listener):
            await asyncio.to_thread(tree.set_controller, listener.getsockname())
            await asyncio.wait_for(enough.wait(), TIMEOUT)
            await asyncio.to_thread(tree.set_controller, None)
        return set(versions)

    assert min(asyncio.run(calls())) >= 4
    assert "udp,tp_dst=7" in tool(tree, "ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "s1")


def test_an_event_loop_inside_reaches_all_brokers(tree: Lab) -> None:
    """What is made in the block is inside for good; the thread is back outside after it."""

    async def ask() -> bytes:
        async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"here")
            writer.close()

        host = tree.topology.hosts[1]
        async with await asyncio.start_server(answer, sock=tree.host(host.name).listen((host.management, 0))) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            try:
                return await reader.read()
            finally:
                writer.close()

    outside = Path("/proc/thread-self/ns/net").readlink()
    with tree.switches.inside():
        assert Path("/proc/thread-self/ns/net").readlink() != outside
        assert asyncio.run(ask()) == b"here"
    assert Path("/proc/thread-self/ns/net").readlink() == outside


def test_processes_run_inside_by_three_ways(tree: Lab) -> None:
    command = ["readlink", "/proc/self/ns/net"]
    space = tree.host("c1b1")
    with space.popen(command, stdout=subprocess.PIPE, text=True) as process:
        started = process.communicate()[0]
    assert started == space.run(command, stdout=subprocess.PIPE, text=True).stdout
    assert started == subprocess.run(space.argv(command), check=True, stdout=subprocess.PIPE, text=True).stdout
    assert started.strip() != str(Path("/proc/self/ns/net").readlink())


def test_what_is_not_there_is_named(tree: Lab) -> None:
    for call in (
        lambda: tree.host("c9b9"),
        lambda: tree.restart_switch("s9"),
        lambda: tree.set_link("s1", "s2", up=False),
        lambda: Lab.open("nosuch"),
        lambda: Lab("tree:1x1", name="No Name"),
    ):
        with pytest.raises(LabError, match=r"c9b9|s9|'s1' and 's2'|nosuch|No Name"):
            call()
