"""The network in the hands of the controller: where everything is, and what each switch holds and shall hold.

News of the network changes the picture (`topology`) and says which switches have to be read anew (`switch_state`).
Nothing here knows what an OFM is: only whose entries are whose (`switch_state.Part`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeAlias

from saps.ofm.controller.events import (
    HostMoved,
    LinkChanged,
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

_NOTHING = Tables()


class Network:
    """`hear` takes in news, `expect` and `dismiss` brokers, `want` what switches shall hold."""

    def __init__(self, baseline: Tables, switch_state: Callable[[Tables], AnySwitchState] = SwitchState) -> None:
        """`switch_state` makes what keeps the tables of one switch, of the baseline."""
        self._new_switch_state = switch_state
        self.baseline = baseline
        """What every switch shall hold whatever the OFMs are."""
        self.topology = Topology()
        self.hosts: dict[str, Port] = {}
        """Where MAC addresses were seen."""
        self.switch_states: dict[int, AnySwitchState] = {}
        """The tables of every switch that was heard of, or is wanted to hold something."""
        self.settled = False
        """It has had its time to show itself: whoever is not seen is not there."""
        self._expected: Counter[BrokerAddress] = Counter()
        """Brokers that OFMs are concerned with, and how many."""

    # -- brokers

    def expect(self, brokers: Iterable[BrokerAddress]) -> None:
        """One OFM more is concerned with each of these brokers."""
        for broker in brokers:
            self._expected[broker] += 1
            if (place := self.hosts.get(broker.mac)) is not None:
                self.topology.attach(broker, *place)

    def dismiss(self, brokers: Iterable[BrokerAddress]) -> None:
        """One OFM less does."""
        for broker in brokers:
            self._expected[broker] -= 1
            if not self._expected[broker]:
                del self._expected[broker]
                self.topology.detach(broker)

    @property
    def missing(self) -> list[BrokerAddress]:
        """Brokers that OFMs are concerned with and that have not been seen anywhere."""
        return sorted(broker for broker in self._expected if self.topology.where(broker) is None)

    # -- news

    def hear(self, news: News) -> bool:
        """Takes it in. Says whether OFMs may be concerned. A switch that is up is to be read."""
        topology, before = self.topology, self.topology.version
        match news:
            case SwitchUp(dpid=dpid, ports=ports):
                topology.switch_up(dpid, [port for port, up in ports.items() if up])
                for port in [port for port, up in ports.items() if not up]:
                    topology.port_status(dpid, port, up=False)
                self.switch_state(dpid).lost()
            case SwitchDown(dpid):
                self.switch_state(dpid).lost()
            case SwitchGone(dpid):
                self._gone(dpid)
            case PortChanged(at=at, up=up):
                topology.port_status(*at, up=up)
            case LinkChanged(link, up):
                (topology.link_up if up else topology.link_down)(*link)
            case HostMoved(mac, at):
                self._moved(mac, at)
            case Settled():
                self._settle(news)
        return topology.version != before or isinstance(news, SwitchUp | SwitchDown | Settled)

    def _gone(self, dpid: int) -> None:
        """What is wanted of the switch stays so: it may come back after all."""
        self.topology.switch_down(dpid)
        self.switch_state(dpid).lost()

    def _moved(self, mac: str, at: Port | None) -> None:
        if at is None:
            self.hosts.pop(mac, None)
        else:
            self.hosts[mac] = at
        for broker in [broker for broker in self._expected if broker.mac == mac]:
            if at is None:
                self.topology.detach(broker)
            else:
                self.topology.attach(broker, *at)

    def _settle(self, found: Settled) -> None:
        self.settled = True
        for dpid in [dpid for dpid in self.topology.switches if dpid not in found.switches]:
            self._gone(dpid)
        for link in [link for link in self.topology.links if link not in found.links]:
            self.topology.link_down(*link)
        for dpid in self.switch_states:
            self._evict(dpid)

    # -- tables

    def switch_state(self, dpid: int) -> AnySwitchState:
        """The tables of a switch, which may be new, or not have connected yet: links and trees may lead there."""
        if dpid not in self.switch_states:
            self.switch_states[dpid] = self._new_switch_state(self.baseline)
        return self.switch_states[dpid]

    def read(self, dpid: int, tables: Tables) -> set[Part]:
        """This is in a switch now. Gives the parts of which that is news."""
        other = self.switch_state(dpid).read(tables)
        if self.settled:
            self._evict(dpid)
        return other

    def want(self, dpid: int, part: Part, tables: Tables) -> bool:
        """From now on a switch shall hold this of a part. Says whether that is new."""
        return self.switch_state(dpid).want(part, tables)

    def confirmed(self, dpid: int, part: Part) -> bool:
        """Has a switch what it shall hold of a part? One that is away and has no link left can do no harm."""
        switch_state = self.switch_state(dpid)
        return switch_state.settled(part) or not (switch_state.known or any(self.topology.neighbours(dpid)))

    def known(self, dpid: int) -> bool:
        """It is known what a switch holds."""
        return dpid in self.switch_states and self.switch_states[dpid].known

    def holds(self, dpid: int, part: Part) -> bool:
        """A switch is known to hold all that is wanted of a part and of every switch."""
        state = self.switch_state(dpid)
        return state.settled(part) and state.settled(BASE)

    def assured(self, dpid: int, part: Part) -> bool:
        """It was so at some time since the switch was last read: what is under way leads from one wanted state to the
        next, and repairs nothing."""
        state = self.switch_state(dpid)
        return state.assured(part) and state.assured(BASE)

    @property
    def all_read(self) -> bool:
        """It is known what all switches hold that were heard of."""
        return all(map(self.known, self.topology.switches))

    def found(self, part: Part) -> dict[int, Tables]:
        """What switches hold of a part, as far as it is known: left there by an earlier run, if nothing was wanted."""
        held = {dpid: switch_state.holds(part) for dpid, switch_state in self.switch_states.items()}
        return {dpid: tables for dpid, tables in held.items() if tables != _NOTHING}

    def _evict(self, dpid: int) -> None:
        """Takes away what belongs to no OFM."""
        for part in self.switch_states[dpid].strangers:
            self.want(dpid, part, _NOTHING)
