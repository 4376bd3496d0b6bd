"""The switches' tables for stateless delivery: their entries grow with links and brokers, never with topics.

On a tree each bit lies behind exactly one link of a switch. A switch does not send a packet back where it came from, so
no bit need ever be cleared. A masked match cannot express "some bit of these", but it can express "none of these". So a
switch has one table for each of its tree links, and for each of its brokers.

=======  ======================================================  ======================================
table    match                                                   then
=======  ======================================================  ======================================
0        in by a tree link, set and plane                        the first table of that plane
0        in by a broker's port from its address, set, no bit     table 1
         that the broker may not address
0        other packets to these addresses                        dropped
1        set and plane                                           the first table of that plane
a link   set and plane, no bit behind the link                   the next table of that plane
a link   set and plane                                           out by the link, then the next table
a broker set and its bit                                         its group, then the next table
a broker set                                                     the next table
=======  ======================================================  ======================================

A broker's group rewrites MAC, IP and port to its own. All planes of a set share the brokers' tables. A broker that
names itself gets its packet back from the loopback address, as the sender of a tree does (SAPS 2016, 3.1.2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv6Address
from itertools import pairwise

from saps.ofm.flows.plan import BROKER, COOKIE, GUARD, PLANES, TRUNK, Loopback
from saps.ofm.flows.reconcile import Stage
from saps.ofm.flows.tables import (
    ETH_IPV6,
    IN_PORT,
    UDP,
    Bucket,
    Flow,
    Group,
    GroupKind,
    Masked,
    Match,
    Output,
    SetField,
    Tables,
    ToGroup,
    mac,
)
from saps.ofm.network.topology import BrokerAddress, Port
from saps.ofm.stateless.address import BITS, RANGE, Receivers
from saps.ofm.stateless.planes import behind
from saps.ofm.trees.tree import Tree

GROUPS = PLANES
"""Base of the group ids. A broker's group id adds 512 times the number of its set and twice its position. The next id
is the group that returns packets to the port they came by."""
STATELESS = COOKIE | PLANES
"""Cookie of all flows of stateless delivery."""
GENERAL, SPECIAL, BESIDE = 1, 2, 3
"""Priorities in the tables of links and brokers."""
_SET, _PLANE = 0xFFFF_FF << 104, 0xFFFF_FFFF << 96
"""Masks of an address: up to its set, up to its plane."""


class TooFewTablesError(Exception):
    """A switch with more links and brokers in the planes than it has tables for."""

    def __init__(self, dpid: int, needed: int, there: int) -> None:
        super().__init__(f"switch {dpid:016x} needs {needed} tables and has {there}")
        self.dpid, self.needed = dpid, needed


@dataclass(frozen=True)
class Layout:
    """Sets of brokers and the planes that reach them. Equal layouts get equal tables.

    Raises `ValueError` for a broker without an IPv6 address, a set of more than 96 brokers, or a broker in two sets.
    """

    sets: tuple[tuple[BrokerAddress | None, ...], ...]
    """The broker at each position of each set; None for a free position."""
    planes: tuple[Tree, ...]
    """The planes, each over all brokers of all sets. A plane does not reach brokers that are missing in it."""
    barred: Mapping[BrokerAddress, frozenset[BrokerAddress]] = field(default_factory=dict)
    """Broker -> brokers that it may not address."""
    loopback: Loopback | None = None
    """Source address of packets that return to their port. With None nothing returns to the only broker at a port."""

    def __post_init__(self) -> None:
        named = [broker for members in self.sets for broker in members if broker is not None]
        if len(set(named)) < len(named) or any(len(members) > BITS for members in self.sets):
            raise ValueError(f"a broker stands in one set, of at most {BITS}")
        if four := [broker.ip for broker in named if ":" not in broker.ip]:
            raise ValueError(f"no IPv6 address: {', '.join(four)}")

    @cached_property
    def receivers(self) -> dict[BrokerAddress, tuple[int, int]]:
        """Set and position of each broker."""
        return {
            broker: (number, position)
            for number, members in enumerate(self.sets)
            for position, broker in enumerate(members)
            if broker is not None
        }

    def bits_at(self, number: int, plane: Tree) -> dict[int, int]:
        """Return the bits of a set's brokers at each switch of a plane."""
        found: dict[int, int] = {}
        for position, broker in enumerate(self.sets[number]):
            if broker is not None and broker in plane.brokers:
                dpid = plane.brokers[broker].dpid
                found[dpid] = found.get(dpid, 0) | 1 << position
        return found


def assign(
    sets: Sequence[Sequence[BrokerAddress | None]], brokers: Sequence[BrokerAddress]
) -> tuple[tuple[BrokerAddress | None, ...], ...]:
    """Return the brokers in sets. A broker that has a position keeps it; a new one gets the first free position."""
    wanted = set(brokers)
    found = [[broker if broker in wanted else None for broker in members] for members in sets]
    placed = {broker for members in found for broker in members}
    new = deque(broker for broker in brokers if broker not in placed)
    for members in found:
        members[:] = [new.popleft() if broker is None and new else broker for broker in members]
        while new and len(members) < BITS:
            members.append(new.popleft())
    while new:
        found.append([new.popleft() for _ in range(min(BITS, len(new)))])
    return tuple(map(tuple, found))


def tables(
    layout: Layout, *, muted: frozenset[int] = frozenset(), available: Mapping[int, int] | None = None
) -> dict[int, Tables]:
    """Return the tables of every switch of the planes. Planes in `muted` take no packets from brokers. `available` has
    the number of tables of a switch, 254 by default; with None it is not checked.

    Raises `TooFewTablesError`.
    """
    switches = sorted({dpid for plane in layout.planes for dpid in plane.switches})
    lies = {
        (number, plane): behind(tree, layout.bits_at(number, tree))
        for number in range(len(layout.sets))
        for plane, tree in enumerate(layout.planes)
    }
    brokers: dict[int, dict[BrokerAddress, Port]] = {}
    for plane in layout.planes:
        for broker, place in plane.brokers.items():
            if broker in layout.receivers:
                brokers.setdefault(place.dpid, {})[broker] = place
    ports: dict[int, dict[tuple[int, int], dict[int, int]]] = {dpid: {} for dpid in switches}
    for key, ends in lies.items():
        for end, bits in ends.items():
            ports[end.dpid].setdefault(key, {})[end.port] = bits
    found = {}
    for dpid in switches:
        made = _SwitchTables(layout, ports[dpid], brokers.get(dpid, {}), muted)
        if available is not None and made.needed > (most := available.get(dpid, 254)):
            raise TooFewTablesError(dpid, made.needed, most)
        found[dpid] = made.tables()
    return found


def rollout(before: Layout | None, after: Layout | None) -> list[Stage]:
    """Return the tables that switches shall hold at each stage from one layout to the next; None as a layout means that
    there is none. A plane that moves to other links takes no packets from brokers until all switches have changed, so
    that no packet meets two trees. All other planes carry on, also those that only grow or shrink. While one switch
    changes, its tables may be numbered both ways: a receiver may get a copy twice."""
    old, new = (layout.planes if layout else () for layout in (before, after))
    changed = frozenset(
        number
        for number in range(max(len(old), len(new)))
        if not _nested(*(planes[number] if number < len(planes) else Tree() for planes in (old, new)))
    )
    steps = [
        tables(layout, muted=muted) if layout else {}
        for layout, muted in ((before, frozenset[int]()), (before, changed), (after, changed), (after, frozenset()))
    ]
    nothing = Tables()
    stages = [
        {
            dpid: other.get(dpid, nothing)
            for dpid in sorted(one.keys() | other.keys())
            if one.get(dpid, nothing) != other.get(dpid, nothing)
        }
        for one, other in pairwise(steps)
    ]
    return [stage for stage in stages if stage]


def _nested(one: Tree, other: Tree) -> bool:
    return one.links <= other.links or other.links <= one.links


class _SwitchTables:
    """The tables of one switch."""

    def __init__(
        self,
        layout: Layout,
        ports: Mapping[tuple[int, int], Mapping[int, int]],
        brokers: Mapping[BrokerAddress, Port],
        muted: frozenset[int],
    ) -> None:
        """`ports` has the ports of the tree links, with the bits behind each, by set and plane."""
        self.layout, self.muted = layout, muted
        self.behind = {key: {port: bits for port, bits in ends.items() if bits} for key, ends in ports.items()}
        self.trunks = {key: sorted(ends) for key, ends in ports.items()}
        self.brokers = sorted(brokers, key=lambda broker: (brokers[broker], broker))
        self.ports = {broker: brokers[broker].port for broker in brokers}
        links = sorted({port for ends in self.behind.values() for port in ends})
        self.link_table = {port: 2 + index for index, port in enumerate(links)}
        self.broker_table = {broker: 2 + len(links) + index for index, broker in enumerate(self.brokers)}
        self.needed = 2 + len(links) + len(self.brokers)

    def tables(self) -> Tables:
        flows = list(SHUT.flows.values())
        for number in range(len(self.layout.sets)):
            for plane in range(len(self.layout.planes)):
                flows += self._plane(number, plane)
        for broker in self.brokers:
            flows += self._guards(broker)
            flows += self._receiver(broker)
        return Tables.of(flows, [group for broker in self.brokers for group in self._groups(broker)])

    def _local(self, number: int) -> list[BrokerAddress]:
        return [broker for broker in self.brokers if self.layout.receivers[broker][0] == number]

    def _plane(self, number: int, plane: int) -> list[Flow]:
        """Return the entries of a plane for a set: those that let packets in, and the tables of the links."""
        lies = self.behind.get((number, plane), {})
        receivers = [self.broker_table[broker] for broker in self._local(number)]
        chain = [*(self.link_table[port] for port in sorted(lies)), *receivers[:1]]
        if not chain:
            return []
        to = Masked(_address(number, plane, 0), _PLANE)
        flows = [
            _flow(TRUNK, to, ip_proto=UDP, in_port=port, goto=chain[0])
            for port in self.trunks.get((number, plane), ())
            if lies.keys() - {port} or receivers
        ]
        if self.brokers and plane not in self.muted:
            flows.append(_flow(GENERAL, to, table=1, goto=chain[0]))
        for index, port in enumerate(sorted(lies)):
            table, onward = chain[index], chain[index + 1] if index + 1 < len(chain) else None
            none = Masked(to.value, to.mask | lies[port])
            flows.append(_flow(SPECIAL, none, table=table, goto=onward))
            flows.append(_flow(GENERAL, to, table=table, actions=(Output(port),), goto=onward))
        return flows

    def _guards(self, broker: BrokerAddress) -> list[Flow]:
        """Return the entries that permit a broker to address the others: one for each set."""
        barred = self.layout.barred.get(broker, frozenset())
        flows = []
        for number, members in enumerate(self.layout.sets):
            bits = sum(1 << position for position, other in enumerate(members) if other in barred)
            flows.append(
                _flow(
                    BROKER,
                    Masked(_address(number, 0, 0), _SET | bits),
                    ip_proto=UDP,
                    in_port=self.ports[broker],
                    ipv6_src=int(IPv6Address(broker.ip)),
                    udp_src=broker.port,
                    goto=1,
                )
            )
        return flows

    def _receiver(self, broker: BrokerAddress) -> list[Flow]:
        """Return the entries of a broker's own table."""
        number, position = self.layout.receivers[broker]
        local = self._local(number)
        table, index = self.broker_table[broker], local.index(broker)
        onward = self.broker_table[local[index + 1]] if index + 1 < len(local) else None
        to = Masked(_address(number, 0, 1 << position), _SET | 1 << position)
        flows = [_flow(SPECIAL, to, table=table, actions=(ToGroup(self._group(broker)),), goto=onward)]
        if self._shares(broker):
            back = (ToGroup(self._group(broker) + 1),)
            port = self.ports[broker]
            flows.append(_flow(BESIDE, to, table=table, in_port=port, actions=back, goto=onward))
        if onward is not None:
            flows.append(_flow(GENERAL, Masked(_address(number, 0, 0), _SET), table=table, goto=onward))
        return flows

    def _shares(self, broker: BrokerAddress) -> bool:
        """Return whether packets may have to return to the port they came by."""
        return self.layout.loopback is not None or list(self.ports.values()).count(self.ports[broker]) > 1

    def _group(self, broker: BrokerAddress) -> int:
        number, position = self.layout.receivers[broker]
        return GROUPS | number << 9 | position << 1

    def _groups(self, broker: BrokerAddress) -> list[Group]:
        rewrites = (
            SetField("eth_dst", mac(broker.mac)),
            SetField("ipv6_dst", int(IPv6Address(broker.ip))),
            SetField("udp_dst", broker.port),
        )
        found = [Group(self._group(broker), (Bucket((*rewrites, Output(self.ports[broker]))),), GroupKind.INDIRECT)]
        if self._shares(broker):
            bucket = Bucket((*_from(self.layout.loopback), *rewrites, Output(IN_PORT)))
            found.append(Group(self._group(broker) + 1, (bucket,), GroupKind.INDIRECT))
        return found


def _from(loopback: Loopback | None) -> tuple[SetField, ...]:
    """Return the actions that set the source to the loopback address: a host drops packets that seem to come from
    itself."""
    if loopback is None:
        return ()
    return SetField("eth_src", mac(loopback.mac)), SetField("ipv6_src", int(IPv6Address(loopback.ip)))


def _address(number: int, plane: int, bits: int) -> int:
    return int(Receivers(number, plane, bits).address)


def _flow(
    priority: int,
    to: Masked,
    *,
    table: int = 0,
    actions: tuple[Output | ToGroup, ...] = (),
    goto: int | None = None,
    **fields: int,
) -> Flow:
    match = Match.of(eth_type=ETH_IPV6, ipv6_dst=to, **fields)
    return Flow(priority, match, actions, table, STATELESS, goto=goto)


SHUT = Tables.of([_flow(GUARD, Masked(int(RANGE.network_address), int(RANGE.netmask)), ip_proto=UDP)])
"""The tables of a switch that drops all packets to these addresses."""
