"""Keeps what switches forward by `NORMAL` free of loops: closes the links beyond a spanning tree to it, and cables
between two ports of one switch.

A closed link still carries OFMs and stateless delivery, whose entries have higher priorities, and link probes. A link
stays open or closed as long as it works, so that repairs move no traffic. Switches have learned addresses behind links
that no longer lead there, and OpenFlow cannot make them forget. So after a change the controller announces all known
hosts in their names (`Announce`), as a hypervisor does for a virtual machine that has moved.

A switch that has lost its controller goes on flooding. So its links count until a port of theirs goes down, or until
it has been back for `RETURNED` seconds without them. A new link floods until its first probes have come, and both ends
have confirmed that it is closed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from saps.ofm.controller.events import Announce
from saps.ofm.flows.plan import CLOSED, COOKIE
from saps.ofm.flows.tables import Flow, Masked, Match, Tables
from saps.ofm.network.forest import joining
from saps.ofm.network.network import Network
from saps.ofm.network.topology import Link
from saps.ofm.openflow.base import ARP, SOLICITATION
from saps.ofm.trees.tree import pair_of

logger = logging.getLogger(__name__)

RETURNED = 10.0
"""Seconds for which the links of a switch that is back count although they have not been found again."""
_REST = 1
"""Priority of the entry that drops what comes in by a closed port: above the table-miss entry, below all others."""
_NOTHING = Tables()


class SpanningTree:
    """The links that are open to the switches' own forwarding. `closes` is whether others are closed."""

    def __init__(self, network: Network, closes: bool) -> None:
        self._network, self._closes = network, closes
        self._links: frozenset[Link] = frozenset()
        """Links over which switches flood, open or closed."""
        self._open: frozenset[Link] = frozenset()
        self._wanted: set[int] = set()
        """Switches whose closed ports have been chosen."""
        self._seen: tuple[object, ...] | None = None
        """Version of the topology that these were chosen for, whether it had settled, and the loops at switches; None:
        choose again."""
        self._away: dict[int, float] = {}
        """Switches that were away -> time at which their links must have been found again; infinite while away."""
        self._now = 0.0
        self._full: set[int] = set()
        """Switches that have refused the entries since the last `at`."""
        self._changed: set[int] = set()
        """Switches that must confirm their entries before hosts are announced."""
        self._announces = False
        """Whether hosts are to be announced then."""

    def at(self, now: float) -> None:
        """Set the time in seconds: what waits for it is chosen again by the next `run`."""
        self._now = now
        back = [dpid for dpid, until in self._away.items() if until <= now]
        for dpid in back:
            del self._away[dpid]
        if back or self._full:
            self._seen, self._full = None, set()

    def run(self) -> list[int]:
        """Choose the open links of the present network. Return the switches whose wanted tables have changed.

        At a start nothing is chosen before all switches have been read, as they may have closed ports."""
        network = self._network
        if not self._closes:
            return []
        self._watch()
        self._links = network.topology.usable | {link for link in self._links if self._floods(link)}
        seen = network.topology.version, network.settled, network.loops
        if seen == self._seen or not (network.settled or network.all_read):
            return []
        self._seen = seen
        held = {dpid: frozenset(closed_in(tables)) for dpid, tables in network.found(CLOSED).items()}
        before = self._open

        def order(link: Link) -> tuple[bool, bool, Link]:
            return any(end.port in held.get(end.dpid, ()) for end in link), link not in before, link

        ordered = sorted(self._links, key=order)
        self._open = frozenset(ordered[place] for place in joining(map(pair_of, ordered)))
        self._announces |= network.settled and not self._open <= before
        closed: dict[int, set[int]] = {dpid: set() for dpid in self._wanted}
        for dpid, ports in held.items():  # until the network has settled, what an earlier run has closed stays closed
            closed[dpid] = set() if network.settled else set(ports)
        for pair in (*(self._links - self._open), *network.loops):
            for end in pair:
                closed.setdefault(end.dpid, set()).add(end.port)
        return [dpid for dpid, ports in sorted(closed.items()) if self._close(dpid, ports, held.get(dpid, frozenset()))]

    def _close(self, dpid: int, ports: set[int], held: frozenset[int]) -> bool:
        """Close these ports of a switch, of which those `held` are closed. Return whether its wanted tables change."""
        if dpid in self._full:
            return False
        self._wanted.add(dpid)
        if ports != held:
            self._changed.add(dpid)
            self._announces = True
        return self._network.want(dpid, CLOSED, entries(ports))

    def _watch(self) -> None:
        """Note which switches are away, and which are back."""
        for dpid in {end.dpid for link in self._links for end in link}:
            if not self._network.known(dpid):
                self._away[dpid] = float("inf")
            elif self._away.get(dpid) == float("inf"):
                self._away[dpid] = self._now + RETURNED

    def _floods(self, link: Link) -> bool:
        """Return whether a link that is not found any more may still be there: a switch at its end was away, and no
        port of it is known to be down or to lead elsewhere."""
        topology = self._network.topology
        return any(end.dpid in self._away for end in link) and all(
            not self._network.known(end.dpid) or (topology.is_up(end) and topology.trunk(end) in (None, link))
            for end in link
        )

    def refused(self, dpid: int) -> list[int]:
        """Do without closed ports at a switch that has refused them, until the next `at`. Return the switches whose
        wanted tables have changed."""
        logger.warning("switch %016x closes no ports: its own traffic may go round without an end", dpid)
        self._full.add(dpid)
        self._changed.discard(dpid)
        self._wanted.discard(dpid)
        return [dpid] if self._network.want(dpid, CLOSED, _NOTHING) else []

    def announcements(self) -> list[Announce]:
        """Return the hosts to announce, once all switches have confirmed a change."""
        if not self._announces or not all(self._network.confirmed(dpid, CLOSED) for dpid in self._changed):
            return []
        self._changed, self._announces = set(), False
        topology = self._network.topology
        return [Announce(mac, at) for mac, at in self._network.hosts.items() if not topology.is_trunk(at)]


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
