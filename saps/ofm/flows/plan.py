"""Turns a tree into the flows and groups that each of its switches must hold (SAPS 2016, 3.1, Fig. 11).

On each switch of the tree, one ALL group has a bucket for every tree link and for every receiving broker. A link's
bucket sends the packet as it is; a broker's bucket rewrites the destination MAC, IP and port to the broker's own. Flows
send packets into the group. There is one flow for each port of a tree link, or one for all of them. Each broker has a
flow, too, which also returns the loopback packet. A switch suppresses a bucket that would send a packet out of the port
it came by.

Where a tree spreads its traffic over parallel links to a neighbour, these links are the buckets of a second group. In a
SELECT group, the switch takes one bucket, the same for all packets of a sender to the topic, as long as its port is up.
In a FAST_FAILOVER group, it takes the first bucket whose port is up (5.6.1). Both skip a failed link without the
controller. The flows name these groups one by one, since a switch does not know that another link leads back to the
neighbour a packet came from.

A broker sends from the address in its broker list entry. Its flow matches this address and its port, so no other port
can send in its name, and several brokers may share a switch port or a host. The `baseline` drops packets that arrive
elsewhere. Where an OFM has a limit, each port that a broker sends by has a meter. A forger of a broker's address at
this port cannot make the tree copy more than the limit.
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
"""Cookie of SAPS's flows: these upper bits, and below them the group id of the OFM (0: the baseline)."""
GROUPS, GROUPS_MASK = 0x5000_0000, 0xF000_0000
"""Group id of an OFM: these upper bits, and below them the number of its address in the pool."""

SELECTS, SELECT_KINDS = 0x6000_0000, 9
"""Group id of a group that spreads an OFM's traffic over parallel links. The id is `SELECTS` plus, in the upper four
bits, the number of the naming port modulo `SELECT_KINDS`; below it, the number of the OFM's address. So at most
`SELECT_KINDS` neighbours of a switch have such a group."""

LINK_GROUPS = (GroupKind.SELECT, GroupKind.FAST_FAILOVER)
"""Kinds of the groups that spread traffic over parallel links."""

PLANES = 0x4000_0000
"""Upper bits of the group ids of stateless delivery, and its part id (`saps.ofm.stateless.tables`)."""

CLOSED = 0x7000_0000
"""Part id of the entries that close ports (`saps.ofm.controller.spanning_tree`), and the lower bits of their cookie."""

METERS, METER_KINDS = 0x8000_0000, 7
"""Meter id: this bit, then three bits with the port number modulo `METER_KINDS`, then the number of the OFM's address.
Modulo 7, as an 8th kind would reach the specification's reserved ids. Ports that differ by a multiple of `METER_KINDS`
share a meter."""

BROKER, TRUNK, GUARD, MISS = 0xA000, 0x9000, 0x1000, 0
"""Priorities of a broker's flow, a tree link's flow, the drop of stray packets to OFM addresses, and the rest."""


class Loopback(msgspec.Struct, frozen=True, gc=False):
    """The source of loopback packets: an unused address of the brokers' subnet, the same for all OFMs. Hosts drop
    packets from a multicast address, from themselves or (with rp_filter) from another subnet.

    Raises `ValueError` for a malformed address."""

    ip: str
    mac: str

    def __post_init__(self) -> None:
        force_setattr(self, "ip", str(ipaddress.ip_address(self.ip)))
        force_setattr(self, "mac", mac_text(mac(self.mac)))


class Service(msgspec.Struct, frozen=True, gc=False):
    """How the network should treat a topic's packets; None leaves a field unchanged."""

    dscp: int | None = None
    """Differentiated services code point written at the sender's switch, 0 to 63 (RFC 2474)."""
    queue: int | None = None
    """Egress queue on every port of the tree."""


class Ofm(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What all flows of an OFM have in common.

    Raises `ValueError` for a number out of range, or a loopback address of another IP version."""

    address: OfmAddress
    number: int
    """The number of the address in its pool, 0 to 2^28 - 1; the lower bits of the group id."""
    loopback: Loopback
    service: Service = Service()
    per_port: bool = True
    """Whether each tree link of a switch has a flow of its own. Then a switch with outdated tables closes no loop, and
    nobody outside the tree can send. False: one flow for all links, as in the paper. This saves (links - 1) entries and
    gives up both properties."""
    limit: int = 0
    """Most packets a second that may enter by one port that brokers send by; 0: no limit."""
    weights: tuple[tuple[Link, int], ...] = ()
    """Weights of links over which traffic is spread, ascending by link; 1 for links not named."""
    failover: bool = False
    """Whether parallel links carry traffic by failover: all of it takes the first link that is up."""

    def __post_init__(self) -> None:
        if not 0 <= self.number < 1 << 28:
            raise ValueError(f"number of the address must be 0 to 2^28 - 1: {self.number}")
        if _version(self.loopback.ip) != _version(self.address.ip):
            raise ValueError(f"loopback address {self.loopback.ip} and {self.address} are of two IP versions")

    @property
    def group(self) -> int:
        """The OFM's group id on every switch."""
        return GROUPS | self.number

    @property
    def cookie(self) -> int:
        """The cookie of the OFM's flows."""
        return COOKIE | self.group

    def select(self, port: int) -> int:
        """Return the id of the group that spreads traffic over the links named by this port."""
        return SELECTS + (select_kind(port) << 28) | self.number

    def meter(self, port: int) -> int | None:
        """Return the id of the meter at a port that brokers send by, or None if there is no limit."""
        return METERS | port % METER_KINDS << 28 | self.number if self.limit else None


@dataclass(frozen=True, slots=True)
class Plan:
    """An OFM's tables on each of its switches. `plan` makes equal plans from equal arguments."""

    ofm: Ofm
    tree: Tree
    silent: frozenset[BrokerAddress] = frozenset()
    """Brokers of the tree that only send: they receive nothing but their loopback packets."""
    muted: frozenset[BrokerAddress] = frozenset()
    """Brokers of the tree that may not send for the moment and receive no loopback packets."""
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
    """Return the plan of a tree, which need not be connected: a switch's tables depend only on its own ports and
    brokers.

    `silent` brokers only send; `muted` brokers do not send for the moment. `idle` are links of the tree, parallel to
    others, that accept packets and carry none. `at` restricts the plan to the tables of these switches.

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
    trunks = _trunks(ofm, tree, idle) if tree.spread else _single_trunks(tree, at)
    tables = {}
    for dpid in sorted(trunks.keys() | brokers.keys() if at is None else (trunks.keys() | brokers.keys()) & set(at)):
        here = sorted(brokers.get(dpid, ()), key=_by_broker)
        names = [broker for _, broker in here]
        tables[dpid] = _tables(
            ofm, tuple(trunks.get(dpid, ())), tuple(here), silent.intersection(names), muted.intersection(names)
        )
    return Plan(ofm, tree, silent, muted, tables)


def replanned(before: Plan | None, ofm: Ofm, tree: Tree, silent: Iterable[BrokerAddress]) -> Plan:
    """Return the same plan as `plan` does, and reuse the tables that have not changed since `before`."""
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
    """Return what every switch must hold before any OFM. Packets to OFM addresses that belong to no tree are dropped,
    not flooded. Everything else goes the switch's own way (hybrid mode)."""
    flows = [Flow(MISS, Match(), (Output(NORMAL),), cookie=COOKIE)]
    for network in networks:
        eth_type, name = (ETH_IPV4, "ipv4_dst") if network.version == 4 else (ETH_IPV6, "ipv6_dst")
        to = Masked(int(network.network_address), int(network.netmask))
        flows.append(Flow(GUARD, Match.of(eth_type=eth_type, ip_proto=UDP, **{name: to}), (), cookie=COOKIE))
    return Tables.of(flows)


def ours(tables: Tables) -> Tables:
    """Return the part of a switch's tables that this module's plans may have put there."""
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
    """Return the group id of the OFM that a group belongs to, `PLANES` for stateless delivery, or None for a foreign
    group."""
    if id & GROUPS_MASK == PLANES:
        return PLANES
    spreading = SELECTS <= id < SELECTS + (SELECT_KINDS << 28)
    return GROUPS | id & ~GROUPS_MASK if spreading or id & GROUPS_MASK == GROUPS else None


def select_kind(port: int) -> int:
    """Return the part of a port's number that enters the id of a group that spreads traffic under its name."""
    return port % SELECT_KINDS


def kind_of_select(id: int) -> int:
    """Return the `select_kind` in an id that `Ofm.select` gave."""
    return (id - SELECTS) >> 28


def part_of_meter(id: int) -> int | None:
    """Return the group id of the OFM that a meter belongs to, or None for a foreign meter."""
    ours = METERS <= id < METERS | METER_KINDS << 28
    return GROUPS | id & ~GROUPS_MASK if ours else None


class _Trunk(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A switch's ports to one neighbour."""

    ports: tuple[int, ...]
    onward: Bucket | None
    """The bucket that sends to the neighbour by one link; None if traffic is spread."""
    group: Group | None
    """The group that sends to the neighbour over parallel links; None for one link."""


def _by_broker(entry: tuple[int, BrokerAddress]) -> BrokerAddress:
    return entry[1]


@lru_cache(4096)
def _single_trunk(port: int) -> _Trunk:
    return _Trunk((port,), Bucket((Output(port),)), None)


def _single_trunks(tree: Tree, at: Collection[int] | None) -> dict[int, list[_Trunk]]:
    """Return the trunks of each switch that has links, or of those `at`, for a tree with one link to each neighbour."""
    found: dict[int, list[int]] = {}
    for link in tree.links:
        for dpid, port in link:
            if at is None or dpid in at:
                found.setdefault(dpid, []).append(port)
    return {dpid: [_single_trunk(port) for port in sorted(ports)] for dpid, ports in found.items()}


def _trunks(ofm: Ofm, tree: Tree, idle: Collection[Link]) -> dict[int, list[_Trunk]]:
    """Return the trunks of each switch, ascending by ports."""
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
    """Return one switch's tables. `trunks` lead to its neighbours, `brokers` are at its other ports. Results are
    cached, as most plans of a `rollout` share them."""
    onwards = [trunk.onward for trunk in trunks if trunk.onward is not None]
    spreading = [trunk.group for trunk in trunks if trunk.group is not None]
    receiver = [Bucket((*_to(broker), Output(port))) for port, broker in brokers if broker not in silent]
    names = tuple(group.id for group in spreading)
    flows = _trunk_flows(ofm, trunks)
    for port, broker in brokers:
        if broker not in muted:
            beside = tuple(other for at, other in brokers if at == port and other != broker and other not in silent)
            flows.append(_broker_flow(ofm, port, broker, beside, names))
    meters = [Meter(id, ofm.limit) for id in sorted({flow.meter for flow in flows if flow.meter is not None})]
    return Tables.of(flows, [Group(ofm.group, (*onwards, *receiver)), *spreading], meters)


def _trunk_flows(ofm: Ofm, trunks: Sequence[_Trunk]) -> list[Flow]:
    """Return the flows from tree links into the groups. Packets from brokers have their DSCP mark already. A flow
    leaves out the group of the neighbour a packet came from; where one link leads there, the switch itself suppresses
    the bucket."""
    if not ofm.per_port:
        return [_trunk_flow(ofm, None, ())] if trunks else []
    flows = []
    for trunk in trunks:
        onward = tuple(ToGroup(other.group.id) for other in trunks if other.group is not None and other is not trunk)
        flows += [_trunk_flow(ofm, port, onward) for port in trunk.ports]
    return flows


@lru_cache(1 << 16)
def _trunk_flow(ofm: Ofm, port: int | None, onward: tuple[ToGroup, ...]) -> Flow:
    """Return the flow from one tree link, or from all (None). Results are cached, as switches use the same port
    numbers."""
    match = Match.of(**({} if port is None else {"in_port": port}), **_addressed(ofm.address))
    return Flow(TRUNK, match, (*_queue(ofm.service), ToGroup(ofm.group), *onward), cookie=ofm.cookie)


@lru_cache(1024)
def _broker_flow(
    ofm: Ofm, port: int, broker: BrokerAddress, beside: tuple[BrokerAddress, ...], spreading: tuple[int, ...]
) -> Flow:
    """Return the flow from a broker into the groups, and then back to it as the loopback packet. Results are cached for
    the plans of one rollout.

    The group skips the broker's own port, so this flow also serves the brokers `beside` it on that port. Their copies
    seem to come from the loopback address as well, because the sender may be on their own host."""
    six = _version(broker.ip) == 6
    match = Match.of(
        in_port=port,
        udp_src=broker.port,
        **{"ipv6_src" if six else "ipv4_src": _number(broker.ip)},
        **_addressed(ofm.address),
    )
    actions: list[Action] = []
    if ofm.service.dscp is not None:
        actions.append(SetField("ip_dscp", ofm.service.dscp))
    actions += [*_queue(ofm.service), ToGroup(ofm.group), *map(ToGroup, spreading)]
    # The group has made its copies by now, so these rewrites affect only the loopback packet and those beside it.
    actions += [
        SetField("eth_src", mac(ofm.loopback.mac)),
        SetField("ipv6_src" if six else "ipv4_src", _number(ofm.loopback.ip)),
        SetField("udp_src", ofm.address.port),
    ]
    for receiver in (broker, *beside):
        actions += [*_to(receiver), Output(IN_PORT)]
    return Flow(BROKER, match, tuple(actions), cookie=ofm.cookie, meter=ofm.meter(port))


def _addressed(address: OfmAddress) -> dict[str, int | Masked]:
    """Return the match fields of a packet to an OFM."""
    six = _version(address.ip) == 6
    return {
        "eth_type": ETH_IPV6 if six else ETH_IPV4,
        "ip_proto": UDP,
        "ipv6_dst" if six else "ipv4_dst": _number(address.ip),
        "udp_dst": address.port,
    }


@lru_cache(1 << 14)
def _to(broker: BrokerAddress) -> tuple[SetField, SetField, SetField]:
    """Return the actions that rewrite the destination to the broker's listen address."""
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
