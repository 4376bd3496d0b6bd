"""From a tree to flows and groups: what each of its switches must hold so that an OFM works (SAPS 2016, 3.1, Fig. 11).

On each switch of the tree one ALL group has a bucket for every tree link (the packet as it is) and for every broker
that receives (destination MAC, IP and port rewritten to the broker's own). Flows send packets into it: one for each
port of a tree link, or one for all of them; and one for each broker, which also returns the loopback packet. A switch
suppresses a bucket that would send a packet back where it came from.

Where a tree spreads its traffic over parallel links to a neighbour, these are the buckets of a SELECT group beside that
group: the switch takes one of them, the same for all packets of a sender to the topic, as long as its port is up; or
of a FAST_FAILOVER group, of which it takes the first whose port is up (5.6.1). Either leaves out a link that fails
without asking anybody. The
flows name such groups one by one, since a switch does not know that another link leads back where a packet came from.

A broker sends from the address in its broker list entry: its flow matches it, so nobody else sends in its name, and
several brokers may share a port of a switch or a host. What arrives at any other place is dropped by the `baseline`.
Where an OFM has a limit, each port that a broker sends by has a meter: whoever speaks in a broker's name there cannot
have the tree copy more than that.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
from msgspec.structs import force_setattr

from saps.ofm.controller.addresses import Network, OfmAddress
from saps.ofm.flows.tables import (
    ETH_IPV4,
    ETH_IPV6,
    IN_PORT,
    NORMAL,
    UDP,
    Action,
    Bucket,
    Flow,
    Group,
    GroupKind,
    Masked,
    Match,
    Meter,
    Output,
    SetField,
    SetQueue,
    Tables,
    ToGroup,
    mac,
    mac_text,
)
from saps.ofm.network.topology import BrokerAddress, Link
from saps.ofm.trees.tree import Tree

COOKIE, COOKIE_MASK = 0x5A50_5300_0000_0000, 0xFFFF_FFFF_0000_0000
"""Cookie of our flows: these upper bits, and the group id of the OFM below (0: the baseline)."""
GROUPS, GROUPS_MASK = 0x5000_0000, 0xF000_0000
"""Group id of an OFM: these upper bits, and the number of its address in the pool below."""

SELECTS, SELECT_KINDS = 0x6000_0000, 9
"""Group id of what spreads an OFM's traffic over parallel links: this, plus the number of the port that names it modulo
so many in the upper four bits, and the number of the OFM's address. So as many neighbours of a switch have one."""

LINK_GROUPS = (GroupKind.SELECT, GroupKind.FAST_FAILOVER)
"""What such a group is."""

PLANES = 0x4000_0000
"""Upper bits of the group ids, and part, of stateless delivery (`saps.ofm.stateless.tables`)."""

METERS, METER_KINDS = 0x8000_0000, 7
"""Id of a meter: this bit, the number of its port modulo so many in the next three (7 would be the specification's
reserved ids), and the number of the OFM's address. So ports that are a multiple of it apart share one."""

BROKER, TRUNK, GUARD, MISS = 0xA000, 0x9000, 0x1000, 0
"""Priorities: a broker's flow, a tree link's flow, the drop of stray packets to OFM addresses, and all else."""


class Loopback(msgspec.Struct, frozen=True, gc=False):
    """Where loopback packets seem to come from: an unused address of the brokers' subnet, one for all OFMs. Hosts drop
    packets that seem to come from a multicast address, from themselves or (with rp_filter) from another subnet.

    Raises `ValueError` for what is no address."""

    ip: str
    mac: str

    def __post_init__(self) -> None:
        force_setattr(self, "ip", str(ipaddress.ip_address(self.ip)))
        force_setattr(self, "mac", mac_text(mac(self.mac)))


class Service(msgspec.Struct, frozen=True, gc=False):
    """How the network should treat a topic's packets; None leaves it as it is."""

    dscp: int | None = None
    """Differentiated services code point written at the sender's switch, 0 to 63 (RFC 2474)."""
    queue: int | None = None
    """Egress queue on every port of the tree."""


class Ofm(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What all flows of an OFM have in common."""

    address: OfmAddress
    number: int
    """Of the address in its pool: makes the group id."""
    loopback: Loopback
    service: Service = Service()
    per_port: bool = True
    """One flow for each tree link of a switch: a switch with outdated tables then closes no loop, and nobody outside
    the tree can send. False: one flow for all, as in the paper: (links - 1) entries fewer, without these two."""
    limit: int = 0
    """Packets a second that may enter by one port that brokers send by; 0: any number."""
    weights: tuple[tuple[Link, int], ...] = ()
    """Of links over which traffic is spread, ascending; 1 for those not named."""
    failover: bool = False
    """Traffic is not spread over parallel links: all takes the first that is up."""

    def __post_init__(self) -> None:
        if not 0 <= self.number < 1 << 28:
            raise ValueError(f"number of the address must be 0 to 2^28 - 1: {self.number}")
        if _version(self.loopback.ip) != _version(self.address.ip):
            raise ValueError(f"loopback address {self.loopback.ip} and {self.address} are of two IP versions")

    @property
    def group(self) -> int:
        """Its group id, on every switch."""
        return GROUPS | self.number

    @property
    def cookie(self) -> int:
        """The cookie of its flows."""
        return COOKIE | self.group

    def select(self, port: int) -> int:
        """The id of the group that spreads traffic over links under the name of this port."""
        return SELECTS + (select_kind(port) << 28) | self.number

    def meter(self, port: int) -> int | None:
        """The id of the meter at a port that brokers send by; None: there is no limit."""
        return METERS | port % METER_KINDS << 28 | self.number if self.limit else None


@dataclass(frozen=True, slots=True)
class Plan:
    """An OFM's tables on each of its switches. From equal arguments `plan` makes equal plans."""

    ofm: Ofm
    tree: Tree
    silent: frozenset[BrokerAddress] = frozenset()
    """Brokers of the tree that only send: they get nothing but their loopback packets."""
    muted: frozenset[BrokerAddress] = frozenset()
    """Brokers of the tree from which nothing is taken, and which get no loopback packet, for the moment."""
    tables: Mapping[int, Tables] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        """Flow entries on all switches."""
        return sum(tables.entries for tables in self.tables.values())

    @property
    def buckets(self) -> int:
        """Group buckets on all switches."""
        return sum(tables.buckets for tables in self.tables.values())


def plan(
    ofm: Ofm,
    tree: Tree,
    silent: Iterable[BrokerAddress] = (),
    *,
    muted: Iterable[BrokerAddress] = (),
    idle: Collection[Link] = frozenset(),
    at: Collection[int] | None = None,
) -> Plan:
    """The tables for a tree, which need not be in one piece: a switch's depend only on its own ports and brokers.
    `idle`: links of it, beside others between the same switches, by which packets are taken and none is sent. `at`:
    only the tables of these switches.

    Raises `ValueError` if a broker's address is of another IP version than the OFM's."""
    silent = frozenset(silent).intersection(tree.brokers)
    muted = frozenset(muted).intersection(tree.brokers)
    version = _version(ofm.address.ip)
    brokers: dict[int, list[tuple[int, BrokerAddress]]] = {}
    for broker, place in tree.brokers.items():
        if _version(broker.ip) != version:
            raise ValueError(f"broker {broker.ip} cannot take part in {ofm.address}: another IP version")
        if at is None or place.dpid in at:
            brokers.setdefault(place.dpid, []).append((place.port, broker))
    trunks = _trunks(ofm, tree, idle) if tree.spread else _single_trunks(tree)
    tables = {}
    for dpid in sorted(trunks.keys() | brokers.keys() if at is None else (trunks.keys() | brokers.keys()) & set(at)):
        here = sorted(brokers.get(dpid, ()), key=_by_broker)
        names = [broker for _, broker in here]
        tables[dpid] = _tables(
            ofm, tuple(trunks.get(dpid, ())), tuple(here), silent.intersection(names), muted.intersection(names)
        )
    return Plan(ofm, tree, silent, muted, tables)


def replanned(before: Plan | None, ofm: Ofm, tree: Tree, silent: Iterable[BrokerAddress]) -> Plan:
    """The same plan as `plan` makes. What it has in common with the one before is not made again."""
    if before is None or before.ofm != ofm or before.muted:
        return plan(ofm, tree, silent)
    old, silent = before.tree, frozenset(silent).intersection(tree.brokers)
    at = {place.dpid for _, place in old.brokers.items() ^ tree.brokers.items()}
    at |= {end.dpid for links in (old.links ^ tree.links, old.spread ^ tree.spread) for link in links for end in link}
    at |= {
        each.brokers[broker].dpid for broker in before.silent ^ silent for each in (old, tree) if broker in each.brokers
    }
    if tree.spread:  # weights and names of groups may change at either end of any link
        at |= {end.dpid for link in tree.links for end in link}
    part = plan(ofm, tree, silent, at=at)
    switches = tree.switches
    kept = {dpid: tables for dpid, tables in before.tables.items() if dpid not in at and dpid in switches}
    return Plan(ofm, tree, silent, part.muted, dict(sorted({**kept, **part.tables}.items())))


def baseline(networks: Iterable[Network]) -> Tables:
    """What every switch must hold before any OFM: packets to OFM addresses that belong to no tree there are dropped,
    not flooded, and everything else goes the switch's own way (hybrid mode)."""
    flows = [Flow(MISS, Match(), (Output(NORMAL),), cookie=COOKIE)]
    for network in networks:
        eth_type, name = (ETH_IPV4, "ipv4_dst") if network.version == 4 else (ETH_IPV6, "ipv6_dst")
        to = Masked(int(network.network_address), int(network.netmask))
        flows.append(Flow(GUARD, Match.of(eth_type=eth_type, ip_proto=UDP, **{name: to}), (), cookie=COOKIE))
    return Tables.of(flows)


def ours(tables: Tables) -> Tables:
    """The part of a switch's tables that this module's plans may have put there."""
    return Tables(
        {name: flow for name, flow in tables.flows.items() if flow.cookie & COOKIE_MASK == COOKIE},
        {
            id: group
            for id, group in tables.groups.items()
            if id & GROUPS_MASK in (GROUPS, PLANES) or (group.kind in LINK_GROUPS and part_of_group(id) is not None)
        },
        {id: meter for id, meter in tables.meters.items() if part_of_meter(id) is not None},
    )


def part_of_group(id: int) -> int | None:
    """The group id of the OFM that a group belongs to, `PLANES` if to no single one; None: it is none of ours."""
    if id & GROUPS_MASK == PLANES:
        return PLANES
    spreading = SELECTS <= id < SELECTS + (SELECT_KINDS << 28)
    return GROUPS | id & ~GROUPS_MASK if spreading or id & GROUPS_MASK == GROUPS else None


def select_kind(port: int) -> int:
    """What of a port goes into the id of a group that spreads traffic under its name."""
    return port % SELECT_KINDS


def kind_of_select(id: int) -> int:
    """The same, of the id that `Ofm.select` gives."""
    return (id - SELECTS) >> 28


def part_of_meter(id: int) -> int | None:
    """The group id of the OFM that a meter belongs to; None: it is none of ours."""
    ours = METERS <= id < METERS | METER_KINDS << 28
    return GROUPS | id & ~GROUPS_MASK if ours else None


class _Trunk(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A switch's links to one neighbour."""

    ports: tuple[int, ...]
    onward: Bucket | None
    """What sends there, if it is one link."""
    group: Group | None
    """What sends there, if traffic is spread."""


def _by_broker(entry: tuple[int, BrokerAddress]) -> BrokerAddress:
    return entry[1]


@lru_cache(4096)
def _single_trunk(port: int) -> _Trunk:
    return _Trunk((port,), Bucket((Output(port),)), None)


def _single_trunks(tree: Tree) -> dict[int, list[_Trunk]]:
    """The trunks of each switch with any, where one link leads to a neighbour."""
    found: dict[int, list[int]] = {}
    for link in tree.links:
        for dpid, port in link:
            found.setdefault(dpid, []).append(port)
    return {dpid: [_single_trunk(port) for port in sorted(ports)] for dpid, ports in found.items()}


def _trunks(ofm: Ofm, tree: Tree, idle: Collection[Link]) -> dict[int, list[_Trunk]]:
    """The trunks of each switch."""
    found: dict[int, list[_Trunk]] = {dpid: [] for dpid in tree.switches}
    anchors, weights = tree.anchors, dict(ofm.weights) if tree.spread else {}
    for pair, links in tree.pairs.items():
        for dpid in pair:
            ports = tuple(sorted(link.near(dpid).port for link in links))
            if (anchor := anchors.get(pair)) is None:
                found[dpid] += (_Trunk((port,), Bucket((Output(port),)), None) for port in ports)
                continue
            used = sorted((link.near(dpid).port, weights.get(link, 1)) for link in links if link not in idle)
            kind = GroupKind.FAST_FAILOVER if ofm.failover else GroupKind.SELECT
            buckets = tuple(Bucket((Output(port),), 0 if ofm.failover else weight, port) for port, weight in used)
            group = Group(ofm.select(anchor.near(dpid).port), buckets, kind)
            found[dpid].append(_Trunk(ports, None, group))
    return {dpid: sorted(trunks, key=lambda trunk: trunk.ports) for dpid, trunks in found.items()}


@lru_cache(1024)
def _tables(
    ofm: Ofm,
    trunks: Sequence[_Trunk],
    brokers: Sequence[tuple[int, BrokerAddress]],
    silent: Collection[BrokerAddress],
    muted: Collection[BrokerAddress],
) -> Tables:
    """One switch's part: `trunks` lead to its neighbours, `brokers` are at its other ports. Remembered, as most plans
    of a `rollout` have the same."""
    onwards = [trunk.onward for trunk in trunks if trunk.onward is not None]
    spreading = [trunk.group for trunk in trunks if trunk.group is not None]
    receiver = [Bucket((*_to(broker), Output(port))) for port, broker in brokers if broker not in silent]
    flows = _trunk_flows(ofm, trunks)
    for port, broker in brokers:
        if broker not in muted:
            beside = [other for at, other in brokers if at == port and other != broker and other not in silent]
            flows.append(_broker_flow(ofm, port, broker, beside, spreading))
    meters = [Meter(id, ofm.limit) for id in sorted({flow.meter for flow in flows if flow.meter is not None})]
    return Tables.of(flows, [Group(ofm.group, (*onwards, *receiver)), *spreading], meters)


def _trunk_flows(ofm: Ofm, trunks: Sequence[_Trunk]) -> list[Flow]:
    """Into the groups from tree links: what came from a broker has its marks already. Not back to the neighbour it has
    come from, which the switch sees to where there is one link."""
    if not ofm.per_port:
        flow = Flow(TRUNK, Match.of(**_addressed(ofm)), (*_queue(ofm.service), ToGroup(ofm.group)), cookie=ofm.cookie)
        return [flow] if trunks else []
    flows = []
    for trunk in trunks:
        onward = (ToGroup(other.group.id) for other in trunks if other.group is not None and other is not trunk)
        actions: tuple[Action, ...] = (*_queue(ofm.service), ToGroup(ofm.group), *onward)
        flows += [
            Flow(TRUNK, Match.of(in_port=port, **_addressed(ofm)), actions, cookie=ofm.cookie) for port in trunk.ports
        ]
    return flows


def _broker_flow(
    ofm: Ofm, port: int, broker: BrokerAddress, beside: Iterable[BrokerAddress], spreading: Iterable[Group]
) -> Flow:
    """Into the groups from a broker, then back to it as the loopback packet.

    The group leaves out the broker's own port, so brokers `beside` it there get their copies by this flow as well;
    these too seem to come from the loopback address, because the sender may be on their own host."""
    six = _version(broker.ip) == 6
    match = Match.of(
        in_port=port,
        udp_src=broker.port,
        **{"ipv6_src" if six else "ipv4_src": _number(broker.ip)},
        **_addressed(ofm),
    )
    actions: list[Action] = []
    if ofm.service.dscp is not None:
        actions.append(SetField("ip_dscp", ofm.service.dscp))
    actions += [*_queue(ofm.service), ToGroup(ofm.group), *(ToGroup(group.id) for group in spreading)]
    actions += [
        SetField("eth_src", mac(ofm.loopback.mac)),
        SetField("ipv6_src" if six else "ipv4_src", _number(ofm.loopback.ip)),
        SetField("udp_src", ofm.address.port),
    ]
    for receiver in (broker, *beside):
        actions += [*_to(receiver), Output(IN_PORT)]
    return Flow(BROKER, match, tuple(actions), cookie=ofm.cookie, meter=ofm.meter(port))


def _addressed(ofm: Ofm) -> dict[str, int | Masked]:
    """Match fields of a packet to the OFM."""
    six = _version(ofm.address.ip) == 6
    return {
        "eth_type": ETH_IPV6 if six else ETH_IPV4,
        "ip_proto": UDP,
        "ipv6_dst" if six else "ipv4_dst": _number(ofm.address.ip),
        "udp_dst": ofm.address.port,
    }


@lru_cache(1 << 14)
def _to(broker: BrokerAddress) -> tuple[SetField, SetField, SetField]:
    """Rewrites the destination to the broker's listen address."""
    return (
        SetField("eth_dst", mac(broker.mac)),
        SetField("ipv6_dst" if _version(broker.ip) == 6 else "ipv4_dst", _number(broker.ip)),
        SetField("udp_dst", broker.port),
    )


def _queue(service: Service) -> tuple[SetQueue, ...]:
    return () if service.queue is None else (SetQueue(service.queue),)


def _version(ip: str) -> int:
    return 6 if ":" in ip else 4


@lru_cache(1 << 16)
def _number(ip: str) -> int:
    return int(ipaddress.ip_address(ip))
