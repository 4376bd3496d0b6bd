"""Keeps the controller's view of the network: the place of everything, and what each switch holds and shall hold.

News of the network changes the `topology` and marks switches that must be read anew (`switch_state`). This module does
not know OFMs, only the owner of each entry (`switch_state.Part`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeAlias

from saps.ofm.controller.events import (
    HostMoved,
    LinkChanged,
    LoopFound,
    News,
    PortChanged,
    Settled,
    SwitchDown,
    SwitchGone,
    SwitchUp,
)
from saps.ofm.flows.shared_switch_state import SharedSwitchState
from saps.ofm.flows.switch_state import BASE, Part, SwitchState
from saps.ofm.flows.tables import Tables
from saps.ofm.network.topology import BrokerAddress, Port, Topology

AnySwitchState: TypeAlias = SwitchState | SharedSwitchState

MOST_HOSTS = 65536
"""Most hosts remembered; beyond it those of no broker are forgotten. A host costs about 200 bytes."""

_NOTHING = Tables()


class Network:
    """The network of a controller. Give news to `hear`, brokers to `expect` and `dismiss`, and the tables that switches
    shall hold to `want`."""

    def __init__(self, baseline: Tables, switch_state: Callable[[Tables], AnySwitchState] = SwitchState) -> None:
        """`switch_state` makes the state of one switch from the baseline."""
        self._new_switch_state = switch_state
        self.baseline = baseline
        """What every switch shall hold, independent of OFMs."""
        self.topology = Topology()
        self.hosts: dict[str, Port] = {}
        """The port at which each MAC address was seen."""
        self.switch_states: dict[int, AnySwitchState] = {}
        """The tables of every switch that was heard of, or shall hold something."""
        self.table_counts: dict[int, int] = {}
        """The number of flow tables of each switch that has connected and is not gone."""
        self.loops: frozenset[tuple[Port, Port]] = frozenset()
        """Pairs of ports of one switch that a cable joins."""
        self.settled = False
        """Whether the network has had time to show itself: what has not been seen by then is absent."""
        self._expected: dict[str, Counter[BrokerAddress]] = {}
        """The number of OFMs that each broker takes part in, by MAC address."""
        self._unconfirmed: set[str] = set()
        """The hosts of an earlier run that have not been seen in this one."""

    # -- brokers

    def expect(self, brokers: Iterable[BrokerAddress]) -> None:
        """Count one more OFM for each of these brokers."""
        for broker in brokers:
            self._expected.setdefault(broker.mac, Counter())[broker] += 1
            if (place := self.hosts.get(broker.mac)) is not None:
                self.topology.attach(broker, *place)

    def dismiss(self, brokers: Iterable[BrokerAddress]) -> None:
        """Count one OFM less for each of these brokers, and forget a broker without any."""
        for broker in brokers:
            here = self._expected[broker.mac]
            here[broker] -= 1
            if not here[broker]:
                del here[broker]
                self.topology.detach(broker)
            if not here:
                del self._expected[broker.mac]

    @property
    def missing(self) -> list[BrokerAddress]:
        """Brokers of OFMs that have not been seen anywhere in this run, ascending."""
        where, unconfirmed = self.topology.where, self._unconfirmed
        expected = (broker for brokers in self._expected.values() for broker in brokers)
        return sorted(broker for broker in expected if broker.mac in unconfirmed or where(broker) is None)

    def locates(self, mac: str, at: Port) -> bool:
        """Return whether a host is known to be at a port, and was seen there in this run."""
        return self.hosts.get(mac) == at and mac not in self._unconfirmed

    def resume(self, topology: Topology, hosts: dict[str, Port]) -> None:
        """Take over the topology and the places of hosts of an earlier run. Hosts may have moved since."""
        self.topology, self.hosts, self._unconfirmed = topology, hosts, set(hosts)

    # -- news

    def hear(self, news: News) -> bool:
        """Take in a piece of news. Return whether OFMs may be affected. After `SwitchUp`, the caller must read the
        switch."""
        topology, before = self.topology, self.topology.version
        match news:
            case SwitchUp(dpid=dpid, ports=ports, tables=tables):
                self.table_counts[dpid] = tables
                topology.switch_up(dpid, [port for port, up in ports.items() if up])
                for port in topology.ports(dpid):
                    self._port(Port(dpid, port), ports.get(port))
                self.switch_state(dpid).lost()
            case SwitchDown(dpid):
                self.switch_state(dpid).lost()
            case SwitchGone(dpid):
                self._gone(dpid)
            case PortChanged(at=at, up=up):
                self._port(at, up)
            case LinkChanged(link, up):
                (topology.link_up if up else topology.link_down)(*link)
            case LoopFound(a, b):
                self.loops |= {(a, b)}
            case HostMoved(mac, at):
                self._moved(mac, at)
            case Settled():
                self._settle(news)
        return topology.version != before or isinstance(news, SwitchUp | SwitchDown | Settled)

    def _gone(self, dpid: int) -> None:
        """Remove a switch from the topology. What is wanted of it stays, as it may come back."""
        self.topology.switch_down(dpid)
        self.loops = frozenset(pair for pair in self.loops if pair[0].dpid != dpid)
        self.table_counts.pop(dpid, None)
        self.switch_state(dpid).gone()
        if self.switch_states[dpid].idle:
            del self.switch_states[dpid]

    def _port(self, at: Port, up: bool | None) -> None:
        """Take in that a port is up or down; None: it does not exist any more."""
        self.topology.port_status(*at, up=up)
        if not up:
            self.loops = frozenset(pair for pair in self.loops if at not in pair)
        if up is None:
            self.hosts = {mac: place for mac, place in self.hosts.items() if place != at}

    def _moved(self, mac: str, at: Port | None) -> None:
        topology, before = self.topology, self.hosts.pop(mac, None)
        if at is not None:
            self.hosts[mac] = at
            if len(self.hosts) > MOST_HOSTS:
                self.hosts = {
                    host: place for host, place in self.hosts.items() if host == mac or host in self._expected
                }
            if not topology.is_trunk(at):
                self._unconfirmed.discard(mac)
        for broker in self._expected.get(mac, ()):
            if at is not None:
                topology.attach(broker, *at)
            elif before is None or not topology.is_trunk(before):  # at a trunk, it was seen in transit only
                topology.detach(broker)

    def _settle(self, found: Settled) -> None:
        self.settled = True
        # The topology may come from a saved state: switches and links that have not shown themselves are gone.
        for dpid in [dpid for dpid in self.topology.switches if dpid not in found.switches]:
            self._gone(dpid)
        for link in [link for link in self.topology.links if link not in found.links]:
            self.topology.link_down(*link)
        for dpid in self.switch_states:
            self._evict(dpid)

    # -- tables

    def switch_state(self, dpid: int) -> AnySwitchState:
        """Return the tables of a switch, which may be new or not yet connected: links and trees may lead there
        already."""
        if dpid not in self.switch_states:
            self.switch_states[dpid] = self._new_switch_state(self.baseline)
        return self.switch_states[dpid]

    def read(self, dpid: int, tables: Tables) -> set[Part]:
        """Take `tables` as a switch's present content. Return the parts that this is news for."""
        other = self.switch_state(dpid).read(tables)
        if self.settled:
            self._evict(dpid)
        return other

    def want(self, dpid: int, part: Part, tables: Tables) -> bool:
        """Set what a switch shall hold of a part. Return whether that is a change."""
        return self.switch_state(dpid).want(part, tables)

    def confirmed(self, dpid: int, part: Part) -> bool:
        """Return whether a switch has confirmed what it shall hold of a part. A switch that is away and has no link
        left counts as confirmed, since it can do no harm."""
        switch_state = self.switch_state(dpid)
        return switch_state.settled(part) or not (switch_state.known or any(self.topology.neighbours(dpid)))

    def known(self, dpid: int) -> bool:
        """Return whether the content of a switch is known."""
        return dpid in self.switch_states and self.switch_states[dpid].known

    def holds(self, dpid: int, part: Part) -> bool:
        """Return whether a switch is known to hold all that is wanted of a part and of the baseline."""
        state = self.switch_state(dpid)
        return state.settled(part) and state.settled(BASE)

    def assured(self, dpid: int, part: Part) -> bool:
        """Return whether the switch held the part and the baseline as wanted at some time since it was last read. Then
        a batch under way leads from one wanted state to the next, and repairs nothing."""
        state = self.switch_state(dpid)
        return state.assured(part) and state.assured(BASE)

    @property
    def all_read(self) -> bool:
        """Whether the content of all switches in the topology is known."""
        return all(map(self.known, self.topology.switches))

    def found(self, part: Part) -> dict[int, Tables]:
        """Return what switches are known to hold of a part. If nothing was wanted of it, an earlier run left it
        there."""
        held = {dpid: switch_state.holds(part) for dpid, switch_state in self.switch_states.items()}
        return {dpid: tables for dpid, tables in held.items() if tables != _NOTHING}

    def _evict(self, dpid: int) -> None:
        """Remove the entries of a switch that belong to no OFM."""
        for part in self.switch_states[dpid].strangers:
            self.want(dpid, part, _NOTHING)
