"""Keeps what switches forward by `NORMAL` free of loops: closes the links beyond a spanning tree to it.

A closed link still carries OFMs and stateless delivery, whose entries have higher priorities, and link probes. A link
stays open or closed as long as it works, so that repairs move no traffic. Switches have learned addresses behind links
that close, and OpenFlow cannot make them forget. So after each change the controller has all known hosts announce
themselves again (`Announce`), as a hypervisor does for a virtual machine that has moved. A switch without room for the
entries is asked again each second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from saps.ofm.controller.events import Announce
from saps.ofm.flows.plan import CLOSED, COOKIE
from saps.ofm.flows.tables import Flow, Masked, Match, Tables
from saps.ofm.network.network import Network
from saps.ofm.network.topology import Link, Port
from saps.ofm.openflow.base import ARP, SOLICITATION

_REST = 1
"""Priority of the entry that drops what comes in by a closed port: above the table-miss entry, below all others."""


class SpanningTree:
    """The links that are open to the switches' own forwarding. `closes` is whether others are closed."""

    def __init__(self, network: Network, closes: bool) -> None:
        self._network, self._closes = network, closes
        self._open: frozenset[Link] = frozenset()
        self._closed: dict[int, frozenset[int]] = {}
        """Closed ports by switch."""
        self._version = -1
        """Version of the topology that these were chosen for."""
        self._changing: set[int] = set()
        """Switches that have not confirmed their closed ports."""

    def run(self) -> list[int]:
        """Choose the open links of the present network. Return the switches whose wanted tables have changed.

        At a start nothing is chosen before all switches have been read, as they may have closed ports."""
        network = self._network
        if not self._closes or network.topology.version == self._version or not (network.settled or network.all_read):
            return []
        self._version = network.topology.version
        usable = network.topology.usable
        held = {Port(dpid, port) for dpid, tables in network.found(CLOSED).items() for port in closed_in(tables)}
        self._open = spanning(usable, lambda link: (link not in self._open, not held.isdisjoint(link), link))
        closed: dict[int, set[int]] = {}
        for link in usable - self._open:
            for end in link:
                closed.setdefault(end.dpid, set()).add(end.port)
        before, self._closed = self._closed, {dpid: frozenset(ports) for dpid, ports in closed.items()}
        touched = []
        for dpid in sorted(before.keys() | closed.keys()):
            if before.get(dpid) != self._closed.get(dpid):
                wanted = entries(closed.get(dpid, ()))
                if network.switch_state(dpid).holds(CLOSED) != wanted:  # else a run before has closed them
                    self._changing.add(dpid)
                if network.want(dpid, CLOSED, wanted):
                    touched.append(dpid)
        return touched

    def announcements(self) -> list[Announce]:
        """Return the hosts that must announce themselves, once all switches have confirmed a change."""
        if not self._changing or not all(self._network.confirmed(dpid, CLOSED) for dpid in self._changing):
            return []
        self._changing = set()
        topology = self._network.topology
        return [Announce(mac, at) for mac, at in self._network.hosts.items() if not topology.is_trunk(at)]


def spanning(links: Iterable[Link], order: Callable[[Link], tuple[bool, bool, Link]]) -> frozenset[Link]:
    """Return the links of a spanning forest that come first in an order (Kruskal 1956)."""
    above: dict[int, int] = {}

    def root(dpid: int) -> int:
        while (higher := above.get(dpid, dpid)) != dpid:
            above[dpid] = above.get(higher, higher)
            dpid = higher
        return dpid

    found = []
    for link in sorted(links, key=order):
        a, b = root(link.a.dpid), root(link.b.dpid)
        if a != b:
            above[b] = a
            found.append(link)
    return frozenset(found)


def entries(ports: Iterable[int]) -> Tables:
    """Return the entries that drop what comes in by these ports and belongs to no tree. ARP packets and neighbour
    solicitations need entries of their own, since the base flows of both are above the trees'."""
    flows = []
    for port in sorted(ports):
        flows.append(Flow(_REST, Match.of(in_port=port), (), cookie=COOKIE | CLOSED))
        for base in (ARP, SOLICITATION):
            match = Match(tuple(sorted([*base.match.fields, ("in_port", Masked(port, 0xFFFFFFFF))])))
            flows.append(Flow(base.priority + 1, match, (), cookie=COOKIE | CLOSED))
    return Tables.of(flows)


def closed_in(tables: Tables) -> list[int]:
    """Return the ports that entries close."""
    found = (dict(flow.match.fields) for flow in tables.flows.values() if flow.priority == _REST)
    return [fields["in_port"].value for fields in found if "in_port" in fields]
