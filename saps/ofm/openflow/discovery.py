"""The links between switches, from the probes that arrived. Pure: time is counted in probes sent.

A link exists once probes have crossed it both ways. It exists no more when probes in a row have not crossed it one way,
when a port of it goes down or away, or when a probe shows that a port is connected elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from saps.ofm.network.topology import Link, Port

MISSES = 3
"""Probes in a row that may be lost; the next one sent in vain takes the link down. Packet-ins are lossy."""


@dataclass(frozen=True, slots=True)
class LinkUp:
    """The link can be used, both ways."""

    link: Link


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The link cannot be used any more."""

    link: Link


LinkEvent: TypeAlias = LinkUp | LinkDown


class LinkTable:
    """All links of the network."""

    def __init__(self) -> None:
        self._far: dict[Port, Port] = {}
        """Where the probes of a port arrive."""
        self._unseen: dict[Port, int] = {}
        """Probes a port has sent since one arrived."""

    @property
    def links(self) -> set[Link]:
        """The links that exist now."""
        return {Link.of(near, far) for near, far in self._far.items() if self._far.get(far) == near}

    def far(self, port: Port) -> Port | None:
        """Where the probes of a port arrive."""
        return self._far.get(port)

    def ports(self, dpid: int) -> set[Port]:
        """The ports of a switch that probes have crossed."""
        return {port for pair in self._far.items() for port in pair if port.dpid == dpid}

    def is_internal(self, port: Port) -> bool:
        """Probes have arrived from or at this port: what comes in here comes from another switch."""
        return port in self._far or port in self._far.values()

    def sent(self, source: Port) -> list[LinkEvent]:
        """A probe goes out of `source`."""
        if source not in self._far:
            return []
        self._unseen[source] += 1
        return self._forget(source) if self._unseen[source] > MISSES + 1 else []

    def arrived(self, source: Port, at: Port) -> list[LinkEvent]:
        """A probe of `source` came in `at` a port."""
        if source.dpid == at.dpid:
            return []
        self._unseen[source] = 0
        if self._far.get(source) == at:
            return []
        events = self._forget(source)
        events += [event for other in self._to(at) for event in self._forget(other)]
        self._far[source] = at
        self._unseen[source] = 0
        if self._far.get(at) == source:
            events.append(LinkUp(Link.of(source, at)))
        return events

    def port_lost(self, port: Port) -> list[LinkEvent]:
        """A port is down or has gone."""
        return [event for source in (port, *self._to(port)) for event in self._forget(source)]

    def switch_lost(self, dpid: int) -> list[LinkEvent]:
        """A switch is gone."""
        return [event for port in sorted(self.ports(dpid)) for event in self.port_lost(port)]

    def _to(self, port: Port) -> list[Port]:
        return [source for source, far in self._far.items() if far == port]

    def _forget(self, source: Port) -> list[LinkEvent]:
        far = self._far.pop(source, None)
        self._unseen.pop(source, None)
        return [LinkDown(Link.of(source, far))] if far is not None and self._far.get(far) == source else []
