"""The network as the controller knows it: switches, their ports, the links between them, and the places of brokers.

The picture is mutable and has a version number. Discovery feeds it: switches by their handshake, links by LLDP, ports
by PORT_STATUS, and brokers by their MAC address (ARP, packet-in, or the host tracking of another controller).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import force_setattr

from saps.ofm.flows.tables import mac, mac_text


class Port(NamedTuple):
    """A port of a switch."""

    dpid: int
    port: int

    def __str__(self) -> str:
        return f"{self.dpid:016x}:{self.port}"


class Link(NamedTuple):
    """A link between two switches, used in both directions; `a < b`. Make it with `Link.of`."""

    a: Port
    b: Port

    @classmethod
    def of(cls, one: Port, other: Port) -> Link:
        """Return the link between two ports, in either order. Raises `ValueError` if both are of one switch."""
        if one.dpid == other.dpid:
            raise ValueError(f"a link must join two switches: {one} - {other}")
        return cls(min(one, other), max(one, other))

    def far(self, dpid: int) -> int:
        """Return the switch at the other end."""
        return self.b.dpid if dpid == self.a.dpid else self.a.dpid

    def near(self, dpid: int) -> Port:
        """Return the port at this switch's end."""
        return self.a if dpid == self.a.dpid else self.b


class BrokerAddress(msgspec.Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """An element of a broker list, `<IP, MAC, port>` (SAPS 2016, 3.1.1): the broker's UDP listen address for OFM. Texts
    are brought to canonical form.

    Raises `ValueError` for an address that is not unicast, or a port outside 1 to 65535."""

    ip: str
    mac: str
    port: int

    def __post_init__(self) -> None:
        value = mac(self.mac)
        if value >> 40 & 1 or not value:
            raise ValueError(f"not a unicast MAC address: {self.mac}")
        if not 1 <= self.port <= 65535:
            raise ValueError(f"not a UDP port: {self.port}")
        force_setattr(self, "ip", _unicast(self.ip))
        force_setattr(self, "mac", mac_text(value))

    @property
    def endpoint(self) -> str:
        """IP address and UDP port as one text, by which brokers, controllers and statistics are compared."""
        return f"{self.ip}:{self.port}"


@lru_cache(1 << 14)
def _unicast(text: str) -> str:
    """Return the canonical form of a unicast IP address. Raises `ValueError` for any other text."""
    ip = ipaddress.ip_address(text)
    if ip.is_multicast or ip.is_unspecified:
        raise ValueError(f"not a unicast address: {text}")
    return str(ip)


class Topology:
    """Switches, ports, links and brokers. Every method that changes something returns whether it did; if so, `version`
    has increased. Only `links`, `link_at`, `neighbours`, `piece` and `where` are limited to what can carry packets
    now."""

    def __init__(self) -> None:
        self.version = 0
        self._switches: dict[int, dict[int, bool]] = {}
        """Each switch's known ports, and whether each port is up."""
        self._links: dict[Port, Link] = {}
        """Each link by both its ends, up or not."""
        self._places: dict[str, Port] = {}
        """The place of each MAC address."""
        self._brokers: set[BrokerAddress] = set()
        self._around: dict[int, list[tuple[int, Link]]] = {}
        """Cache of `neighbours` since the last change."""
        self._pieces: dict[int, int] = {}
        """Cache of `piece` since the last change."""
        self._usable: frozenset[Link] | None = None
        """Cache of `usable` since the last change."""

    # -- what happens to the network

    def switch_up(self, dpid: int, ports: Iterable[int] = ()) -> bool:
        """Add a switch that has connected with these ports up; it may be known already."""
        known = self._switches.get(dpid)
        wanted = {**(known or {}), **dict.fromkeys(ports, True)}
        self._switches[dpid] = wanted
        return self._changed(known != wanted)

    def switch_down(self, dpid: int) -> bool:
        """Remove a switch with its links. Brokers there have no place until it is back. A switch continues to forward
        without its controller, so wait a little before you call this."""
        if self._switches.pop(dpid, None) is None:
            return False
        for port in [port for port in self._links if port.dpid == dpid]:
            self._unlink(port)
        return self._changed(True)

    def port_status(self, dpid: int, port: int, *, up: bool | None) -> bool:
        """Note that a port has gone up or down (PORT_STATUS). Its link, if any, is unusable while it is down. None: the
        port does not exist any more. Then its link has ended, and brokers there have no place."""
        ports = self._switches.get(dpid, {})
        if up is not None:
            changed = dpid in self._switches and ports.get(port) is not up
            ports[port] = up
            return self._changed(changed)
        at = Port(dpid, port)
        known, linked, hosts = ports.pop(port, None) is not None, self._unlink(at), self.hosts_at(at)
        for host in hosts:
            del self._places[host]
        return self._changed(known or linked or bool(hosts))

    def link_up(self, a: Port, b: Port) -> bool:
        """Add a link that was seen; either direction is enough. It replaces what was known of its ports: another link,
        or a broker whose packets had only come through the other switch. Raises `ValueError` for a link within a
        switch."""
        link = Link.of(a, b)
        for end in link:
            self._switches.setdefault(end.dpid, {}).setdefault(end.port, True)
        if self._links.get(a) == link:
            return False
        for end in link:
            self._unlink(end)
            self._links[end] = link
        # Hosts seen at these ports are behind the other switch; discovery will locate them anew.
        self._places = {host: place for host, place in self._places.items() if place not in link}
        return self._changed(True)

    def link_down(self, a: Port, b: Port) -> bool:
        """Remove a link that is no longer seen. Both ports may carry something else from now on."""
        return self._changed(self._links.get(a) == Link.of(a, b) and self._unlink(a))

    def attach(self, broker: BrokerAddress, dpid: int, port: int) -> bool:
        """Place a broker at the port where it was seen, perhaps after it moved. All brokers of its MAC address are
        placed there. A port that carries a link is not a host's port: then nothing changes."""
        place = Port(dpid, port)
        if self.is_trunk(place):
            return False
        known = self._places.get(broker.mac) == place and broker in self._brokers
        self._places[broker.mac] = place
        self._brokers.add(broker)
        return self._changed(not known)

    def detach(self, broker: BrokerAddress) -> bool:
        """Remove a broker, and the place of its MAC address if no other broker has it."""
        if broker not in self._brokers:
            return False
        self._brokers.remove(broker)
        if all(other.mac != broker.mac for other in self._brokers):
            self._places.pop(broker.mac, None)
        return self._changed(True)

    # -- what it is like now

    @property
    def switches(self) -> list[int]:
        """All switches, ascending."""
        return sorted(self._switches)

    def ports(self, dpid: int) -> list[int]:
        """Return the known ports of a switch, up or not, ascending."""
        return sorted(self._switches.get(dpid, ()))

    @property
    def links(self) -> list[Link]:
        """The links that can carry packets now, ascending."""
        return sorted(self.usable)

    @property
    def usable(self) -> frozenset[Link]:
        """The links that can carry packets now: both ends are up."""
        if self._usable is None:
            self._usable = frozenset(link for link in self._links.values() if self.is_up(link.a) and self.is_up(link.b))
        return self._usable

    @property
    def brokers(self) -> Mapping[BrokerAddress, Port | None]:
        """All brokers, ascending, each with its place (see `where`)."""
        return {broker: self.where(broker) for broker in sorted(self._brokers)}

    @property
    def redundant(self) -> int:
        """The number of links beyond a spanning tree of each piece; 0 if the network has no cycle."""
        return len(self.links) - len(self._switches) + len({self.piece(dpid) for dpid in self._switches})

    def is_up(self, port: Port) -> bool:
        """Return whether the port's switch is present and the port is not known to be down."""
        ports = self._switches.get(port.dpid)
        return ports is not None and ports.get(port.port, True)

    def carries(self, link: Link) -> bool:
        """Return whether the link exists and both its ports are up."""
        return link in self.usable

    def is_trunk(self, port: Port) -> bool:
        """Return whether the port carries a link, usable or not."""
        return port in self._links

    def trunk(self, port: Port) -> Link | None:
        """Return the link of this port, usable or not, or None."""
        return self._links.get(port)

    def hosts_at(self, port: Port) -> list[str]:
        """Return the MAC addresses of brokers' hosts at a port, up or not."""
        return [host for host, place in self._places.items() if place == port]

    def link_at(self, port: Port) -> Link | None:
        """Return the link of this port if it can carry packets, or None."""
        link = self._links.get(port)
        return link if link is not None and self.carries(link) else None

    def neighbours(self, dpid: int) -> Iterator[tuple[int, Link]]:
        """Yield the switches one link away, each with the link, by ascending port. A switch with two links comes
        twice."""
        around = self._around.get(dpid)
        if around is None:
            links = (self.link_at(Port(dpid, port)) for port in sorted(self._switches.get(dpid, ())))
            around = self._around[dpid] = [(link.far(dpid), link) for link in links if link is not None]
        return iter(around)

    def piece(self, dpid: int) -> int:
        """Return the lowest of the switches that this one reaches now."""
        if dpid not in self._pieces:
            reached = [dpid]
            for each in reached:  # the list grows during the loop
                self._pieces[each] = dpid
                reached += {other for other, _ in self.neighbours(each)} - self._pieces.keys()
            self._pieces |= dict.fromkeys(reached, min(reached))
        return self._pieces[dpid]

    def where(self, broker: BrokerAddress) -> Port | None:
        """Return the port where packets to the broker leave the network, if it is known and up. The MAC address
        decides: the broker itself need not be attached if another broker on its host is."""
        place = self._places.get(broker.mac)
        return place if place is not None and self.is_up(place) else None

    # -- as plain data

    @property
    def picture(self) -> Picture:
        """The whole topology as typed data. Switches are 16 hexadecimal digits, as in Ryu's API."""
        return Picture(
            version=self.version,
            switches=[
                _Switch(f"{dpid:016x}", [_PortState(port, ports[port]) for port in sorted(ports)])
                for dpid, ports in sorted(self._switches.items())
            ],
            links=[_LinkEnds(_End.of(a), _End.of(b)) for a, b in sorted(set(self._links.values()))],
            hosts=[_Host(host, _End.of(place)) for host, place in sorted(self._places.items())],
            brokers=[_Broker(broker.ip, broker.mac, broker.port) for broker in sorted(self._brokers)],
        )

    def to_json(self) -> dict[str, Any]:
        """Return the picture as plain data for `json.dumps`."""
        data: dict[str, Any] = msgspec.to_builtins(self.picture)
        return data

    @classmethod
    def from_json(cls, data: object) -> Topology:
        """Return the topology in plain data, the inverse of `to_json`. Raises `ValueError` that says where the data is
        wrong."""
        try:
            picture = msgspec.convert(data, Picture)
        except msgspec.ValidationError as error:
            raise ValueError(f"not a topology: {error}") from None
        topology = cls()
        for switch in picture.switches:
            topology._switches[int(switch.dpid, 16)] = {state.port: state.up for state in switch.ports}
        for ends in picture.links:
            topology.link_up(ends.a.to_port(), ends.b.to_port())
        for host in picture.hosts:
            topology._places[mac_text(mac(host.mac))] = host.at.to_port()
        topology._brokers = {BrokerAddress(entry.ip, entry.mac, entry.port) for entry in picture.brokers}
        topology.version = picture.version
        return topology

    def copy(self) -> Topology:
        """Return an independent copy of the same version."""
        return Topology.from_json(self.to_json())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def _unlink(self, port: Port) -> bool:
        link = self._links.pop(port, None)
        if link is not None:
            del self._links[link.b if port == link.a else link.a]
        return link is not None

    def _changed(self, really: bool) -> bool:
        self.version += really
        if really:
            self._around.clear()
            self._pieces.clear()
            self._usable = None
        return really


class _End(msgspec.Struct):
    dpid: str
    port: int

    @classmethod
    def of(cls, port: Port) -> _End:
        return cls(f"{port.dpid:016x}", port.port)

    def to_port(self) -> Port:
        return Port(int(self.dpid, 16), self.port)


class _PortState(msgspec.Struct):
    port: int
    up: bool


class _Switch(msgspec.Struct):
    dpid: str
    ports: list[_PortState]


class _LinkEnds(msgspec.Struct, omit_defaults=True):
    a: _End
    b: _End
    capacity: float | None = None
    """Capacity in bit/s; None unless the controller adds it (`saps.ofm.network.traffic`)."""


class _Host(msgspec.Struct):
    mac: str
    at: _End


class _Broker(msgspec.Struct):
    ip: str
    mac: str
    port: int


class Picture(msgspec.Struct):
    """The typed form of `Topology.to_json`."""

    version: int
    switches: list[_Switch]
    links: list[_LinkEnds]
    hosts: list[_Host]
    brokers: list[_Broker]
