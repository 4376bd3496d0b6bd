"""Derives the links between switches from the probes that arrived. Pure: time is counted in probes sent.

A link exists once probes have crossed it both ways. It ends in three cases:

- Several probes in a row have not crossed it one way.
- One of its ports goes down or is removed.
- A probe shows that a port is connected elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from saps.ofm.network.topology import Link, Port

MISSES = 3
"""Most probes in a row that may be lost; the next one sent in vain takes the link down. Packet-ins are lossy."""


@dataclass(frozen=True, slots=True)
class LinkUp:
    """A link that is now usable both ways."""

    link: Link


@dataclass(frozen=True, slots=True)
class LinkDown:
    """A link that is no longer usable."""

    link: Link


@dataclass(frozen=True, slots=True)
class LoopFound:
    """A cable between two ports of one switch, which is no link; `a < b`."""

    a: Port
    b: Port


LinkEvent: TypeAlias = LinkUp | LinkDown | LoopFound


class LinkTable:
    """All links of the network."""

    def __init__(self) -> None:
        self._far: dict[Port, Port] = {}
        """The port where the probes of each port arrive."""
        self._unseen: dict[Port, int] = {}
        """Probes that each port has sent since one arrived."""
        self._loops: set[LoopFound] = set()

    @property
    def links(self) -> set[Link]:
        """The links that exist now."""
        return {Link.of(near, far) for near, far in self._far.items() if self._far.get(far) == near}

    def far(self, port: Port) -> Port | None:
        """Return the port where the probes of a port arrive, or None."""
        return self._far.get(port)

    def ports(self, dpid: int) -> set[Port]:
        """Return the ports of a switch that probes have crossed."""
        pairs = [*self._far.items(), *((loop.a, loop.b) for loop in self._loops)]
        return {port for pair in pairs for port in pair if port.dpid == dpid}

    def is_internal(self, port: Port) -> bool:
        """Return whether probes have arrived from or at this port. Packets that come in there come from another
        switch."""
        return port in self._far or port in self._far.values()

    def sent(self, source: Port) -> list[LinkEvent]:
        """Count a probe sent out of `source`. Return the link that ends by it, if any."""
        if source not in self._far:
            return []
        self._unseen[source] += 1
        return self._forget(source) if self._unseen[source] > MISSES + 1 else []

    def arrived(self, source: Port, at: Port) -> list[LinkEvent]:
        """Take in a probe of `source` that came in at a port. Return the links that it ends or begins, or the loop that
        it shows for the first time."""
        if source.dpid == at.dpid:
            loop = LoopFound(min(source, at), max(source, at))
            if source == at or loop in self._loops:  # a host's bridge may return what it gets
                return []
            self._loops.add(loop)
            return [loop]
        self._unseen[source] = 0
        if self._far.get(source) == at:
            return []
        # A port has one far end: what was known of either port before is outdated.
        events = self._forget(source)
        events += [event for other in self._to(at) for event in self._forget(other)]
        self._far[source] = at
        self._unseen[source] = 0
        if self._far.get(at) == source:
            events.append(LinkUp(Link.of(source, at)))
        return events

    def port_lost(self, port: Port) -> list[LinkEvent]:
        """End the links of a port that is down or removed."""
        self._loops = {loop for loop in self._loops if port not in (loop.a, loop.b)}
        return [event for source in (port, *self._to(port)) for event in self._forget(source)]

    def switch_lost(self, dpid: int) -> list[LinkEvent]:
        """End the links of a switch that is gone."""
        return [event for port in sorted(self.ports(dpid)) for event in self.port_lost(port)]

    def _to(self, port: Port) -> list[Port]:
        return [source for source, far in self._far.items() if far == port]

    def _forget(self, source: Port) -> list[LinkEvent]:
        far = self._far.pop(source, None)
        self._unseen.pop(source, None)
        return [LinkDown(Link.of(source, far))] if far is not None and self._far.get(far) == source else []
