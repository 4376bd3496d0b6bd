"""Stateless delivery on real switches: random receivers get each packet once, and ports count each copy."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import Iterator

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
"""Bytes of a payload: more than all else that a link carries meanwhile."""
HEADERS = 14 + 40 + 8
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


def sent(lab: Lab) -> dict[str, int]:
    """Bytes that each interface between switches has sent."""
    text = lab.switches.run(["ip", "-s", "-j", "link"], capture_output=True, text=True, check=True).stdout
    counts = {entry["ifname"]: entry["stats64"]["tx"]["bytes"] for entry in json.loads(text)}
    names = [name for link in lab.topology.links for name in (link.name, link.reverse)]
    return {name: counts[name] for name in names}


async def test_random_receivers_get_it_once_and_each_link_carries_it_at_most_once(lab: Lab) -> None:
    rng = random.Random(1)
    async with members(lab, ipv6=True) as hosts:
        topology, brokers = known(lab), {name: host.address for name, host in hosts.items()}
        attach(lab, topology, brokers)
        layout = Layout((tuple(brokers.values()),), tuple(lay_planes(topology, list(brokers.values()), 2)))
        assert len(layout.planes) == 2
        install(lab, tables(layout))
        wanted: dict[str, Counter[bytes]] = {name: Counter() for name in hosts}
        before, copies = sent(lab), 0
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
            copies += len(crossed(tree, layout.bits_at(0, tree), tree.brokers[brokers[sender]].dpid, bits))
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
        after = sent(lab)
        assert sum((after[name] - before[name]) // (SIZE + HEADERS) for name in before) == copies
