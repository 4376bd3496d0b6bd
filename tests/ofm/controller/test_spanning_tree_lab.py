"""A ring of Open vSwitch switches that flood over all links: the controller keeps their forwarding loop-free."""

from __future__ import annotations

import os
import socket
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from lab import Lab
from lab.commands import wait_until
from tests.ofm.controller.ofc import SWITCHES, TIMEOUT, all_known, constructed, heard_by_all, members, ofc, ofctl

pytestmark = [pytest.mark.network, pytest.mark.xdist_group("processes")]


EVERYBODY = 7001
"""The UDP port of what is sent to all."""


def closed(lab: Lab) -> dict[str, set[int]]:
    """The ports of each switch whose packets are dropped."""
    rows = {
        switch.name: [row for row in ofctl(lab, "dump-flows", switch.name).splitlines() if "priority=1,in_port" in row]
        for switch in lab.topology.switches
    }
    found = {name: {row.partition("in_port=")[2].split()[0] for row in each} for name, each in rows.items()}
    names = {interface: port for switch in lab.topology.switches for interface, port in ports(lab, switch.name)}
    return {name: {names.get(port.strip('"'), 0) or int(port) for port in each} for name, each in found.items() if each}


def ports(lab: Lab, switch: str) -> list[tuple[str, int]]:
    ends = [(link.name, link.a_port) for link in lab.topology.links if link.a == switch]
    return ends + [(link.reverse, link.b_port) for link in lab.topology.links if link.b == switch]


def learnt(lab: Lab, switch: str) -> dict[str, int]:
    """The port at which a switch has seen each MAC address."""
    done = lab.switches.run(["ovs-appctl", "fdb/show", switch], capture_output=True, text=True, check=True)
    rows = [row.split() for row in str(done.stdout).splitlines()[1:]]
    return {mac: int(port) for port, _, mac, _ in rows if port.isdigit()}


def listener(lab: Lab, host: str) -> socket.socket:
    """A socket that gets what is sent to all."""
    made = lab.host(host).socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    made.setblocking(False)
    made.bind(("", EVERYBODY))
    return made


async def test_a_ring_of_switches_floods_each_packet_once_also_after_a_failure(tmp_path: Path) -> None:
    with (
        Lab("ring:4x1", name=f"loops{os.getpid()}", controller=SWITCHES, directory=tmp_path / "d") as lab,
        ofc(lab, "--spanning-tree", "controller") as running,
    ):
        async with running.client() as client, members(lab) as brokers:
            to = await constructed(client, "air", brokers.values())
            await all_known(client, lab)
            wait_until(lambda: len(closed(lab)) == 2, "a link to be closed", TIMEOUT)
            for link in lab.topology.links:
                for switch, port in ((link.a, link.a_port), (link.b, link.b_port)):
                    lab.switches.run(["ovs-ofctl", "-O", "OpenFlow10", "mod-port", switch, str(port), "flood"])
            hosts = {host.mac for host in lab.topology.hosts}
            listening = {name: listener(lab, name) for name in brokers}
            came = {name: Counter[bytes]() for name in brokers}

            def heard() -> list[Counter[bytes]]:
                for name, each in listening.items():
                    with suppress(BlockingIOError):
                        while True:
                            came[name][each.recv(100)] += 1
                return list(came.values())

            async def flooded(tag: str) -> None:
                """What each host sends to all comes to each once, and to the sender by its kernel. A busy machine may
                lose some: then it is sent again."""
                for attempt in range(100):
                    everybody = Counter(f"{tag} {attempt} {name}".encode() for name in brokers)
                    for name, each in listening.items():
                        each.sendto(f"{tag} {attempt} {name}".encode(), ("10.77.255.255", EVERYBODY))
                    await heard_by_all(brokers["c1b1"], to, brokers.values(), f"after {tag} {attempt}")
                    if all(everybody <= got for got in heard()):
                        break
                assert all(set(got.values()) == {1} and everybody <= got for got in heard())

            def forget() -> None:
                """The switches forget all addresses, so that they must learn them from announcements."""
                for switch in lab.topology.switches:
                    lab.switches.run(["ovs-appctl", "fdb/flush", switch.name], capture_output=True, check=True)

            def all_learnt() -> bool:
                """Each switch knows all hosts behind ports that are open."""
                shut, places = closed(lab), {switch.name: learnt(lab, switch.name) for switch in lab.topology.switches}
                return all(
                    hosts <= at.keys() and shut.get(name, set()).isdisjoint(at.values()) for name, at in places.items()
                )

            await flooded("first")
            open_link = next(link for link in lab.topology.links if link.a_port not in closed(lab).get(link.a, ()))
            forget()
            lab.set_link(open_link.a, open_link.b, up=False)
            wait_until(lambda: not closed(lab), "the other link to be opened", TIMEOUT)
            wait_until(all_learnt, "the hosts to be announced", TIMEOUT)
            await flooded("second")
            forget()
            lab.set_link(open_link.a, open_link.b, up=True)
            wait_until(lambda: len(closed(lab)) == 2, "the link that is back to be closed", TIMEOUT)
            wait_until(all_learnt, "the hosts to be announced again", TIMEOUT)
            await flooded("third")
