"""Derives links and hosts from packet-ins and port changes, as events for the controller. Pure."""

from __future__ import annotations

from typing import TypeAlias

from saps.ofm.network.topology import Port
from saps.ofm.openflow.discovery import LinkEvent, LinkTable
from saps.ofm.openflow.hosts import HostEvent, HostTable, sender
from saps.ofm.openflow.lldp import is_lldp, probe, read_probe

Sighting: TypeAlias = LinkEvent | HostEvent


class Tracker:
    """The links and hosts of one network. `secret` signs the probes; its holder can invent links. `ttl` is the probes'
    time to live in seconds."""

    def __init__(self, secret: bytes, ttl: int) -> None:
        self.links = LinkTable()
        self.hosts = HostTable()
        self._secret = secret
        self._ttl = ttl
        self._probes: dict[Port, bytes] = {}
        self._sources: dict[bytes, Port] = {}
        """The ports by their probes."""

    def probe(self, source: Port, mac: int) -> bytes:
        """Return the frame to send out of a port whose MAC address is `mac`."""
        frame = self._probes.get(source)
        if frame is None:
            frame = self._probes[source] = probe(source, mac, self._ttl, self._secret)
            self._sources[frame] = source
        return frame

    def probed(self, source: Port, watched: set[int]) -> list[Sighting]:
        """Count a probe sent out of a port. It counts only if the switch behind the port is `watched`, that is,
        connected."""
        far = self.links.far(source)
        return [*self.links.sent(source)] if far is not None and far.dpid in watched else []

    def frame(self, at: Port, frame: bytes) -> tuple[list[Sighting], bool]:
        """Take in a frame at a port. Return what is new, and whether to send a probe back at once, because the port was
        not known to lead to a switch."""
        if is_lldp(frame):
            source = self._read(frame)
            return self._link(source, at) if source else ([], False)
        mac = sender(frame)
        if mac is None or self.links.is_internal(at):
            return [], False
        return [self.hosts.seen(mac, at)], False

    def _read(self, frame: bytes) -> Port | None:
        """Return the port that sent a probe, or None. A probe that arrives unchanged needs no check of its code."""
        source = self._sources.get(frame)
        return source if source is not None else read_probe(frame, self._secret)

    def _link(self, source: Port, at: Port) -> tuple[list[Sighting], bool]:
        fresh = [port for port in (source, at) if not self.links.is_internal(port)]
        events: list[Sighting] = [*self.links.arrived(source, at)]
        events += [event for port in fresh if self.links.is_internal(port) for event in self.hosts.port_internal(port)]
        return events, at in fresh

    def ports(self, dpid: int) -> list[Port]:
        """Return the ports of a switch where a link or a host is known, ascending."""
        return sorted({*self.links.ports(dpid), *(at for at in self.hosts.hosts.values() if at.dpid == dpid)})

    def port_lost(self, port: Port) -> list[Sighting]:
        """Forget the links and hosts at a port that is down or removed. Return what changes."""
        self._sources.pop(self._probes.pop(port, b""), None)
        return [*self.links.port_lost(port), *self.hosts.port_lost(port)]

    def switch_lost(self, dpid: int) -> list[Sighting]:
        """Forget the links of a switch that is gone for good. Its hosts are kept, since no port reported them gone.
        Return what changes."""
        self._probes = {port: frame for port, frame in self._probes.items() if port.dpid != dpid}
        self._sources = {frame: port for port, frame in self._probes.items()}
        return [*self.links.switch_lost(dpid)]
