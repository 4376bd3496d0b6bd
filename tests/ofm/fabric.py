"""Software switches joined by the links of a topology: where does a packet come out, how often, over which links?

The same tables give the same answer; no clock, no queue limits, no loss, except at links that are down. Packets can be
moved hop by hop, so that tables may change while they are under way.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from saps.ofm.flows.tables import CONTROLLER
from saps.ofm.network.topology import Port, Topology
from saps.ofm.switch.counters import Count
from saps.ofm.switch.network import MOST_HOPS
from saps.ofm.switch.packets import Packet
from saps.ofm.switch.switch import Normal, Switch

MOST_COPIES = 1000
"""Copies under way of which no network without a loop has as many."""


class LoopError(Exception):
    """A packet goes round in circles."""


class Arrival(NamedTuple):
    """A copy that has left the fabric."""

    at: Port
    packet: Packet
    hops: int
    """Switches it has passed."""


@dataclass(slots=True)
class Outcome:
    """What became of the packets sent."""

    receiver: list[Arrival] = field(default_factory=list)
    """Copies that came out of ports without a link, to hosts."""
    crossed: Counter[tuple[Port, Port]] = field(default_factory=Counter)
    """Copies over each link, by direction."""
    to_controller: list[Arrival] = field(default_factory=list)
    """Packet-ins."""

    def at(self, port: Port) -> list[Packet]:
        """The copies that came out of one port."""
        return [arrival.packet for arrival in self.receiver if arrival.at == port]


class _Flight(NamedTuple):
    at: Port
    packet: Packet
    hops: int


NormalOf: TypeAlias = Callable[[int], Normal]
"""A switch's own forwarding, by its dpid."""


class Fabric:
    """The switches of a topology, which may change meanwhile: a link or switch that is down swallows packets."""

    def __init__(
        self,
        topology: Topology,
        *,
        capacity: int | None = None,
        most_meters: int | None = None,
        normal: NormalOf = lambda dpid: lambda port, packet: (),
    ) -> None:
        """`capacity`, `most_meters`, `normal`: see `Switch`."""
        self.topology = topology
        self.switches: dict[int, Switch] = {}
        """Change their tables by `Switch.apply`."""
        self._capacity, self._most_meters = capacity, most_meters
        self._normal = normal
        self.links: dict[tuple[Port, Port], Count] = {}
        """All traffic of each link, by direction."""
        self._flying: deque[_Flight] = deque()
        self._outcome = Outcome()
        for dpid in topology.switches:
            self.restart(dpid)

    def restart(self, dpid: int) -> Switch:
        """A switch starts, or starts again: with empty tables and counters."""
        self.switches[dpid] = Switch(
            capacity=self._capacity,
            most_meters=self._most_meters,
            normal=self._normal(dpid),
            alive=lambda port: self._alive(Port(dpid, port)),
        )
        return self.switches[dpid]

    def send(self, at: Port, packet: Packet) -> Outcome:
        """A host sends a packet into a port: what becomes of it, and of all that was under way. Raises `LoopError`."""
        self.inject(at, packet)
        while self.step():
            pass
        return self.outcome()

    def inject(self, at: Port, packet: Packet) -> None:
        """A host's packet is now under way to this port."""
        self._flying.append(_Flight(at, packet, 0))

    def step(self) -> bool:
        """The copy that has been under way for longest passes a switch; False if there is none. Raises `LoopError`."""
        if not self._flying:
            return False
        at, packet, hops = self._flying.popleft()
        if hops >= MOST_HOPS or len(self._flying) > MOST_COPIES:
            self._flying.clear()
            raise LoopError(f"{hops} hops, last into {at}: {packet}")
        switch = self.switches.get(at.dpid)
        if switch is not None and self.topology.is_up(at):
            for port, copy in switch.receive(at.port, packet):
                self._carry(Port(at.dpid, port), copy, hops + 1)
        return True

    def outcome(self) -> Outcome:
        """What has become of the packets since this was last asked."""
        outcome, self._outcome = self._outcome, Outcome()
        return outcome

    def _alive(self, port: Port) -> bool:
        """Has a port a carrier: with a link, only if both its ends are up?"""
        return self.topology.is_up(port) and (
            not self.topology.is_trunk(port) or self.topology.link_at(port) is not None
        )

    def _carry(self, out: Port, packet: Packet, hops: int) -> None:
        """A copy leaves a switch."""
        if out.port == CONTROLLER:
            self._outcome.to_controller.append(Arrival(out, packet, hops))
        elif not self.topology.is_trunk(out):
            if self.topology.is_up(out):
                self._outcome.receiver.append(Arrival(out, packet, hops))
        elif (link := self.topology.link_at(out)) is not None:
            far = link.b if out == link.a else link.a
            self._outcome.crossed[out, far] += 1
            self.links.setdefault((out, far), Count()).add(packet)
            self._flying.append(_Flight(far, packet, hops))
