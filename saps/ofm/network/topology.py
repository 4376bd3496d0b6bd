"""The network as the controller knows it: switches, their ports, the links between them, and where brokers are.

A mutable picture with a version number. Discovery feeds it: switches by their handshake, links by LLDP, ports by
PORT_STATUS, brokers by their MAC address (ARP, packet-in, or the host tracking of another controller).
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
        """The link between two ports, in either order. Raises `ValueError` if both are of one switch."""
        if one.dpid == other.dpid:
            raise ValueError(f"a link must join two switches: {one} - {other}")
        return cls(min(one, other), max(one, other))

    def far(self, dpid: int) -> int:
        """The switch at the other end."""
        return self.b.dpid if dpid == self.a.dpid else self.a.dpid

    def near(self, dpid: int) -> Port:
        """The port at this switch's end."""
        return self.a if dpid == self.a.dpid else self.b


class BrokerAddress(msgspec.Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """An element of a broker list, `<IP, MAC, port>` (SAPS 2016, 3.1.1): the broker's UDP listen address for OFM.

    Texts are brought to canonical form. Raises `ValueError` for what is not a unicast address or a port."""

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


@lru_cache(1 << 14)
def _unicast(text: str) -> str:
    """The canonical form of a unicast IP address. Raises `ValueError`."""
    ip = ipaddress.ip_address(text)
    if ip.is_multicast or ip.is_unspecified:
        raise ValueError(f"not a unicast address: {text}")
    return str(ip)


class Topology:
    """Switches, ports, links and brokers. Every method that changes something returns whether it did; if so, `version`
    has gone up. Only `links`, `neighbours` and `where` speak of what can carry packets now."""

    def __init__(self) -> None:
        self.version = 0
        self._switches: dict[int, dict[int, bool]] = {}
        """Each switch's known ports, and whether they are up."""
        self._links: dict[Port, Link] = {}
        """Both ends of every link, up or not."""
        self._places: dict[str, Port] = {}
        """Where each MAC address is."""
        self._brokers: set[BrokerAddress] = set()
        self._around: dict[int, list[tuple[int, Link]]] = {}
        """`neighbours`, as far as asked for since the last change."""
        self._pieces: dict[int, int] = {}
        """`piece`, the same."""

    # -- what happens to the network

    def switch_up(self, dpid: int, ports: Iterable[int] = ()) -> bool:
        """A switch has connected, with these ports up; it may be known already."""
        known = self._switches.get(dpid)
        wanted = {**(known or {}), **dict.fromkeys(ports, True)}
        self._switches[dpid] = wanted
        return self._changed(known != wanted)

    def switch_down(self, dpid: int) -> bool:
        """A switch is gone, with its links; brokers there have no place until it is back. A switch forwards on without
        its controller, so wait a little before you call this."""
        if self._switches.pop(dpid, None) is None:
            return False
        for port in [port for port in self._links if port.dpid == dpid]:
            self._unlink(port)
        return self._changed(True)

    def port_status(self, dpid: int, port: int, *, up: bool) -> bool:
        """A port has gone up or down (PORT_STATUS). Its link, if any, is unusable while it is down."""
        ports = self._switches.get(dpid)
        if ports is None or ports.get(port) is up:
            return False
        ports[port] = up
        return self._changed(True)

    def link_up(self, a: Port, b: Port) -> bool:
        """A link was seen (either direction is enough). It replaces what was thought of its ports: another link, or a
        broker, whose packets had only come through the other switch. Raises `ValueError` for a link within a switch."""
        link = Link.of(a, b)
        for end in link:
            self._switches.setdefault(end.dpid, {}).setdefault(end.port, True)
        if self._links.get(a) == link:
            return False
        for end in link:
            self._unlink(end)
            self._links[end] = link
        self._places = {host: place for host, place in self._places.items() if place not in link}
        return self._changed(True)

    def link_down(self, a: Port, b: Port) -> bool:
        """A link is no longer seen: both ports may carry something else from now on."""
        return self._changed(self._links.get(a) == Link.of(a, b) and self._unlink(a))

    def attach(self, broker: BrokerAddress, dpid: int, port: int) -> bool:
        """A broker was seen at a port, perhaps after it moved: all brokers of its MAC address are there. A port that
        carries a link is not a host's port, whatever comes in there: then nothing changes."""
        place = Port(dpid, port)
        if self.is_trunk(place):
            return False
        known = self._places.get(broker.mac) == place and broker in self._brokers
        self._places[broker.mac] = place
        self._brokers.add(broker)
        return self._changed(not known)

    def detach(self, broker: BrokerAddress) -> bool:
        """A broker has gone."""
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

    @property
    def links(self) -> list[Link]:
        """The links that can carry packets, ascending."""
        return sorted(link for link in set(self._links.values()) if self.carries(link))

    @property
    def brokers(self) -> Mapping[BrokerAddress, Port | None]:
        """All brokers, ascending, each with its place (see `where`)."""
        return {broker: self.where(broker) for broker in sorted(self._brokers)}

    @property
    def redundant(self) -> int:
        """Links beyond those of a spanning tree of each piece: 0, if the network has no cycle."""
        return len(self.links) - len(self._switches) + len({self.piece(dpid) for dpid in self._switches})

    def is_up(self, port: Port) -> bool:
        """Its switch is there and nobody has said that the port is down."""
        ports = self._switches.get(port.dpid)
        return ports is not None and ports.get(port.port, True)

    def carries(self, link: Link) -> bool:
        """The link exists and both its ports are up."""
        return self._links.get(link.a) == link and self.is_up(link.a) and self.is_up(link.b)

    def is_trunk(self, port: Port) -> bool:
        """The port carries a link, usable or not."""
        return port in self._links

    def trunk(self, port: Port) -> Link | None:
        """The link of this port, usable or not."""
        return self._links.get(port)

    def hosts_at(self, port: Port) -> list[str]:
        """The MAC addresses of brokers' hosts at a port, up or not."""
        return [host for host, place in self._places.items() if place == port]

    def link_at(self, port: Port) -> Link | None:
        """The link of this port, if it can carry packets."""
        link = self._links.get(port)
        return link if link is not None and self.carries(link) else None

    def neighbours(self, dpid: int) -> Iterator[tuple[int, Link]]:
        """The switches one link away, by ascending port; twice if there are two links."""
        around = self._around.get(dpid)
        if around is None:
            links = (self.link_at(Port(dpid, port)) for port in sorted(self._switches.get(dpid, ())))
            around = self._around[dpid] = [(link.far(dpid), link) for link in links if link is not None]
        return iter(around)

    def piece(self, dpid: int) -> int:
        """The lowest of the switches that this one reaches now."""
        if dpid not in self._pieces:
            reached = [dpid]
            for each in reached:  # grows
                self._pieces[each] = dpid
                reached += {other for other, _ in self.neighbours(each)} - self._pieces.keys()
            self._pieces |= dict.fromkeys(reached, min(reached))
        return self._pieces[dpid]

    def where(self, broker: BrokerAddress) -> Port | None:
        """Where packets to the broker leave the network: known by its MAC address, and up. It need not be attached
        itself: another broker on its host is enough."""
        place = self._places.get(broker.mac)
        return place if place is not None and self.is_up(place) else None

    # -- as plain data

    @property
    def picture(self) -> Picture:
        """The whole; switches are 16 hexadecimal digits, as in Ryu's API."""
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
        """The picture as plain data for `json.dumps`."""
        data: dict[str, Any] = msgspec.to_builtins(self.picture)
        return data

    @classmethod
    def from_json(cls, data: object) -> Topology:
        """The inverse of `to_json`. Raises `ValueError` that says where the data is wrong."""
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
        """An independent copy, of the same version."""
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
    """bit/s, where the controller tells it (`saps.ofm.network.traffic`)."""


class _Host(msgspec.Struct):
    mac: str
    at: _End


class _Broker(msgspec.Struct):
    ip: str
    mac: str
    port: int


class Picture(msgspec.Struct):
    """`Topology.to_json`, typed."""

    version: int
    switches: list[_Switch]
    links: list[_LinkEnds]
    hosts: list[_Host]
    brokers: list[_Broker]
