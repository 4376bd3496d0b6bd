"""Random networks with brokers, and what an OFM must do there: shared by the tests of `saps.ofm`."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from hypothesis import strategies as st
from msgspec.structs import replace

from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.flows.plan import Loopback, Ofm, Plan, Service, baseline
from saps.ofm.flows.reconcile import difference
from saps.ofm.flows.tables import ETH_IPV4, ETH_IPV6, Tables, mac
from saps.ofm.network.topology import BrokerAddress, Port, Topology
from saps.ofm.switch.packets import Packet
from tests.ofm.fabric import Fabric, Outcome

OUTSIDER = 900
"""On every switch this port has a host that takes part in nothing."""

ADDRESS = OfmAddress("239.77.0.9", 5001)
BASELINE = baseline([ipaddress.ip_network("239.77.0.0/16"), ipaddress.ip_network("ff05:77::/112")])


@dataclass(frozen=True)
class Network:
    """A topology and the brokers attached to it."""

    topology: Topology
    brokers: list[BrokerAddress]

    def place(self, broker: BrokerAddress) -> Port:
        place = self.topology.where(broker)
        assert place is not None
        return place

    def members(self, chosen: Iterable[int]) -> list[BrokerAddress]:
        """The brokers of these numbers, however large, each once."""
        return sorted({self.brokers[number % len(self.brokers)] for number in chosen})


def broker_at(machine: int, udp: int, six: bool = False) -> BrokerAddress:
    """A broker on this machine: several may be on one."""
    ip = f"fd00::{machine + 1:x}" if six else f"10.0.{machine // 250}.{machine % 250 + 1}"
    return BrokerAddress(ip, f"02:00:00:00:{machine // 256:02x}:{machine % 256:02x}", udp)


@st.composite
def networks(draw: st.DrawFn, six: bool = False, least: int = 1) -> Network:
    """A connected network with loops and double links, and brokers, `least` or more. Machines may share a port of a
    switch, and brokers a machine."""
    size = draw(st.integers(min(least, 4), 7))
    topology = Topology()
    used: Counter[int] = Counter()

    def port(dpid: int) -> Port:
        used[dpid] += 1
        return Port(dpid, used[dpid])

    for dpid in range(1, size + 1):
        topology.switch_up(dpid, [OUTSIDER])
        if dpid > 1:
            topology.link_up(port(dpid), port(draw(st.integers(1, dpid - 1))))
    ends = st.tuples(st.integers(1, size), st.integers(1, size)).filter(lambda pair: pair[0] != pair[1])
    for a, b in draw(st.lists(ends, min_size=min(least, 4) - 1, max_size=5) if size > 1 else st.just([])):
        topology.link_up(port(a), port(b))
    machines: list[Port] = []
    brokers: list[BrokerAddress] = []
    for udp in range(6000, 6000 + draw(st.integers(least, 8))):
        where = draw(st.sampled_from(["somewhere"] * 4 + ["same port", "same machine"])) if machines else "somewhere"
        if where != "same machine":
            machines.append(port(draw(st.integers(1, size))) if where == "somewhere" else machines[-1])
        brokers.append(broker_at(len(machines) - 1, udp, six))
        topology.attach(brokers[-1], *machines[-1])
    return Network(topology, brokers)


def ofms(six: bool = False) -> st.SearchStrategy[Ofm]:
    """OFMs of every kind."""
    return st.builds(
        Ofm,
        address=st.just(OfmAddress("ff05:77::9", 5001) if six else ADDRESS),
        number=st.integers(0, 1 << 20),
        loopback=st.just(Loopback("fd00::ffff" if six else "10.0.255.254", "02:ff:00:00:00:01")),
        service=st.sampled_from([Service(), Service(dscp=46, queue=1)]),
        per_port=st.booleans(),
        limit=st.sampled_from([0, 1_000_000]),  # more than any test sends at once
    )


def sent_by(broker: BrokerAddress, ofm: Ofm, payload: bytes = b"hello") -> Packet:
    """What a broker sends to the OFM address."""
    ip = ipaddress.ip_address(ofm.address.ip)
    tail = int(ip) & (0xFFFFFFFF if ip.version == 6 else 0x7FFFFF)
    return Packet(
        eth_src=mac(broker.mac),
        eth_dst=(0x3333 << 32 if ip.version == 6 else 0x01005E << 24) | tail,
        ip_src=int(ipaddress.ip_address(broker.ip)),
        ip_dst=int(ip),
        udp_src=broker.port,
        udp_dst=ofm.address.port,
        payload=payload,
        eth_type=ETH_IPV6 if ip.version == 6 else ETH_IPV4,
    )


def received_by(broker: BrokerAddress, packet: Packet, ofm: Ofm, *, returned: bool) -> Packet:
    """What a broker gets of a sent packet; `returned`: out of the port of the switch that it was sent into."""
    dscp = packet.ip_dscp if ofm.service.dscp is None else ofm.service.dscp
    copy = replace(
        packet,
        eth_dst=mac(broker.mac),
        ip_dst=int(ipaddress.ip_address(broker.ip)),
        udp_dst=broker.port,
        ip_dscp=dscp,
    )
    if not returned:
        return copy
    source = int(ipaddress.ip_address(ofm.loopback.ip))
    return replace(copy, eth_src=mac(ofm.loopback.mac), ip_src=source, udp_src=ofm.address.port)


def wanted(plan: Plan, sender: BrokerAddress, packet: Packet) -> Counter[tuple[Port, Packet]]:
    """All copies that must come out when a broker of the tree sends: one at each other broker that is not silent, and
    the loopback packet."""
    here = plan.tree.brokers[sender]
    return Counter(
        (place, received_by(broker, packet, plan.ofm, returned=place == here))
        for broker, place in plan.tree.brokers.items()
        if broker == sender or broker not in plan.silent
    )


def came_out(outcome: Outcome) -> Counter[tuple[Port, Packet]]:
    return Counter((arrival.at, arrival.packet) for arrival in outcome.receiver)


def fabric_with(topology: Topology, *plans: Plan, capacity: int | None = None) -> Fabric:
    """Switches that hold the baseline and the plans. Their own forwarding floods, so that nothing leaks unnoticed."""
    fabric = Fabric(topology, capacity=capacity, normal=lambda dpid: lambda port, packet: (1, 2, 3, OUTSIDER))
    for dpid, switch in fabric.switches.items():
        desired = BASELINE
        for plan in plans:
            desired = desired.with_(plan.tables.get(dpid, Tables()))
        switch.apply(difference(Tables(), desired))
    return fabric


def subsets(network: Network) -> st.SearchStrategy[Collection[BrokerAddress]]:
    return st.frozensets(st.sampled_from(network.brokers))
