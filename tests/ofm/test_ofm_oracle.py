"""The software switch and Open vSwitch, side by side: the same tables, the same packets in, the same packets out."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv6Address

import pytest
from msgspec.structs import replace

from saps.ofm.flows.plan import Loopback, Ofm, Service, plan
from saps.ofm.flows.reconcile import difference
from saps.ofm.flows.tables import (
    ETH_IPV4,
    ETH_IPV6,
    IN_PORT,
    UDP,
    Action,
    Bucket,
    Flow,
    Group,
    Masked,
    Match,
    Output,
    SetField,
    SetQueue,
    Tables,
    ToGroup,
    mac,
)
from saps.ofm.network.topology import Link, Port
from saps.ofm.stateless.address import Receivers
from saps.ofm.stateless.tables import Layout
from saps.ofm.stateless.tables import tables as stateless
from saps.ofm.switch.packets import Packet
from saps.ofm.switch.switch import Switch
from saps.ofm.trees.tree import Tree
from tests.ofm.frames import captured, encode, flow_text, group_text
from tests.ofm.networks import ADDRESS, BASELINE, broker_at, sent_by
from tests.ofm.openflow.ovs import TIMEOUT, Ovs, needs_ovs, open_vswitch

pytestmark = [pytest.mark.network, needs_ovs]

PORTS = (1, 2, 3, 4)
LAST = Packet(eth_src=2, eth_dst=4, ip_src=1, ip_dst=2, udp_src=1, udp_dst=0xFFFF, payload=b"the last one")
"""Sent after all others and let out of every port: when it is there, so is all that came before."""


@pytest.fixture(scope="module")
def ovs() -> Iterator[Ovs]:
    with open_vswitch() as running:
        yield running


@pytest.fixture
def bridge(ovs: Ovs, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh bridge with ports that write what goes out of them to files."""
    name = f"br{abs(hash(request.node.nodeid)) % 100000}"
    ovs.bridge(name, 1, [f"{name}p{port}" for port in PORTS])
    for port in PORTS:
        ovs.vsctl("set", "interface", f"{name}p{port}", f"options:tx_pcap={ovs.home}/{name}p{port}.pcap")
    yield name
    ovs.vsctl("del-br", name)


def through_ovs(
    ovs: Ovs, bridge: str, tables: Tables, packets: list[tuple[int, Packet]]
) -> Counter[tuple[int, Packet]]:
    """What comes out of Open vSwitch's ports, but for `LAST`."""
    control = f"unix:{ovs.home / bridge}.mgmt"
    rules = [flow_text(flow) for flow in tables.flows.values()]
    rules.append("priority=65535,udp,tp_dst=65535,actions=" + ",".join(f"output:{port}" for port in PORTS) + ",in_port")
    for what, texts in (("groups", [group_text(group) for group in tables.groups.values()]), ("flows", rules)):
        file = ovs.home / what
        file.write_text("\n".join(texts))
        ovs.ofctl(f"add-{what}", control, str(file))
    for port, packet in packets:
        ovs.receive(f"{bridge}p{port}", encode(packet))
    # The ports are read one by one, so each gets a last packet of its own.
    for port in PORTS:
        ovs.receive(f"{bridge}p{port}", encode(replace(LAST, udp_src=port)))
    out: Counter[tuple[int, Packet]] = Counter()
    end = time.monotonic() + TIMEOUT
    while sum(count for (_, packet), count in out.items() if packet.payload == LAST.payload) < len(PORTS) ** 2:
        assert time.monotonic() < end, "the last packet did not come out"
        time.sleep(0.01)
        out = Counter((port, packet) for port in PORTS for packet in captured(ovs.home / f"{bridge}p{port}.pcap"))
    return Counter({entry: count for entry, count in out.items() if entry[1].payload != LAST.payload})


def through_switch(tables: Tables, packets: list[tuple[int, Packet]]) -> Counter[tuple[int, Packet]]:
    switch = Switch()
    switch.apply(difference(Tables(), tables))
    return Counter(copy for port, packet in packets for copy in switch.receive(port, packet))


@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize("per_port", [False, True])
def test_a_plan_does_the_same_on_open_vswitch(ovs: Ovs, bridge: str, six: bool, per_port: bool) -> None:
    brokers = [broker_at(machine, 6000 + n, six) for n, machine in enumerate((1, 2, 2, 3))]
    places = dict(zip(brokers, (Port(1, 2), Port(1, 3), Port(1, 3), Port(1, 4)), strict=True))
    address = ADDRESS._replace(ip="ff05:77::9") if six else ADDRESS
    loopback = Loopback("fd00::ffff" if six else "10.0.255.254", "02:ff:00:00:00:01")
    ofm = Ofm(address, 3, loopback, Service(dscp=46, queue=1), per_port)
    tree = Tree(frozenset({Link.of(Port(1, 1), Port(2, 1))}), {**places, broker_at(9, 6009, six): Port(2, 2)})
    made = plan(ofm, tree, silent=brokers[3:])
    tables = BASELINE.with_(made.tables[1])
    packets = [(place.port, sent_by(broker, ofm, f"from {broker.port}".encode())) for broker, place in places.items()]
    packets.append((1, sent_by(broker_at(9, 6009, six), ofm, b"over the link")))
    packets.append((4, sent_by(brokers[0], ofm, b"from a stranger")))
    out = through_switch(tables, packets)
    assert len(out) > len(packets)
    assert through_ovs(ovs, bridge, tables, packets) == out


def test_stateless_tables_do_the_same_on_open_vswitch(ovs: Ovs, bridge: str) -> None:
    """A switch with two links, in two planes, and three brokers, of which two share a port; any receivers."""
    brokers = [broker_at(machine, 6000 + machine, six=True) for machine in range(7)]
    places = [Port(1, 3), Port(1, 4), Port(1, 4), Port(2, 9), Port(2, 10), Port(3, 9), Port(4, 9)]
    places_of = dict(zip(brokers, places, strict=True))
    far = [Link.of(Port(2, 2), Port(3, 2)), Link.of(Port(3, 3), Port(4, 1))]
    one, other = Link.of(Port(1, 1), Port(2, 1)), Link.of(Port(1, 2), Port(3, 1))
    planes = (Tree(frozenset({one, *far}), places_of), Tree(frozenset({one, other, far[1]}), places_of))
    sets = tuple(brokers[:5]), (None, None, *brokers[5:])
    made = stateless(Layout(sets, planes, {brokers[1]: frozenset({brokers[4]})}))[1]
    rng = random.Random(1)
    packets = []
    for number in range(120):
        broker = rng.choice(brokers)
        receivers = Receivers(rng.choice((0, 0, 0, 1, 2)), rng.choice((0, 0, 1, 1, 2)), rng.getrandbits(7))
        packet = Packet(
            eth_src=mac(broker.mac),
            eth_dst=0x3333 << 32 | receivers.bits,
            ip_src=int(IPv6Address(broker.ip)),
            ip_dst=int(receivers.address),
            udp_src=broker.port,
            udp_dst=7401,
            payload=b"%d" % number,
            eth_type=ETH_IPV6,
        )
        by = places_of[broker].port if places_of[broker].dpid == 1 else rng.choice((1, 2))
        packets.append((by if number % 4 else rng.choice(PORTS), packet))
    out = through_switch(made, packets)
    assert len(out) > len(packets) / 2
    assert {port for port, _ in out} == set(PORTS)
    assert through_ovs(ovs, bridge, made, packets) == out


@pytest.mark.parametrize("round_", range(3))
def test_random_tables_do_the_same_on_open_vswitch(ovs: Ovs, bridge: str, round_: int) -> None:
    rng = random.Random(round_)
    tables = random_tables(rng)
    packets = [(rng.choice(PORTS), random_packet(rng, number)) for number in range(60)]
    out = through_switch(tables, packets)
    assert out
    assert through_ovs(ovs, bridge, tables, packets) == out


def random_packet(rng: random.Random, number: int) -> Packet:
    eth_type = rng.choice((ETH_IPV4, ETH_IPV6))
    return Packet(
        eth_src=0x020000000000 | rng.randrange(4),
        eth_dst=0x020000000010 | rng.randrange(4),
        ip_src=rng.randrange(1, 9),
        ip_dst=rng.randrange(1, 9),
        udp_src=rng.randrange(1, 5),
        udp_dst=rng.randrange(1, 5),
        payload=b"%d" % number,
        eth_type=eth_type,
        ip_dscp=rng.randrange(64),
    )


def random_tables(rng: random.Random) -> Tables:
    """Overlapping masked matches of distinct priorities; groups in groups; several outputs and rewrites in a bucket;
    gotos to later tables."""
    groups: list[Group] = []
    for id in range(1, 6):
        buckets = [Bucket(random_actions(rng, groups)) for _ in range(rng.randrange(4))]
        groups.append(Group(id, tuple(buckets)))
    flows = [
        Flow(priority, random_match(rng), random_actions(rng, groups), table, priority, goto=rng.choice((None, 2, 5)))
        for table, priority in zip((0, 0, 0, 1, 1) * 16, range(1, 81), strict=True)
    ]
    flows += [
        Flow(priority, random_match(rng), random_actions(rng, groups), table=2, goto=rng.choice((None, 5)))
        for priority in range(1, 20)
    ]
    flows += [Flow(priority, random_match(rng), random_actions(rng, groups), table=5) for priority in range(1, 10)]
    return Tables.of(flows, groups)


def random_match(rng: random.Random) -> Match:
    six = rng.random() < 0.5
    fields: dict[str, int | Masked] = {"eth_type": ETH_IPV6 if six else ETH_IPV4, "ip_proto": UDP}
    prefix, bits = ("ipv6", 128) if six else ("ipv4", 32)
    high = (1 << bits) - 8
    choices: dict[str, int | Masked] = {
        "in_port": rng.choice(PORTS),
        "eth_src": Masked(rng.randrange(4), rng.randrange(1, 4)),
        f"{prefix}_src": Masked(rng.randrange(8), rng.randrange(1, 8)),
        f"{prefix}_dst": Masked(rng.randrange(8), high | rng.randrange(8)),
        "udp_dst": Masked(rng.randrange(1, 5), rng.randrange(1, 8)),
        "udp_src": rng.randrange(1, 5),
        "ip_dscp": rng.randrange(64),
    }
    fields |= {name: choices[name] for name in rng.sample(sorted(choices), rng.randrange(3))}
    return Match.of(**fields)


def random_actions(rng: random.Random, groups: list[Group]) -> tuple[Action, ...]:
    choices: list[Action] = [Output(port) for port in PORTS]
    choices += [Output(IN_PORT), SetQueue(1)]
    choices += [SetField("eth_dst", 0x0200000000AA), SetField("eth_src", 0x0200000000BB), SetField("ip_dscp", 46)]
    choices += [SetField("udp_dst", 7), SetField("udp_src", 8)]
    choices += [ToGroup(group.id) for group in groups]
    return tuple(rng.choice(choices) for _ in range(rng.randrange(7)))
