"""Locates hosts by packets that switches hand to the controller: ARP (RFC 826), neighbour discovery, or any IP. Pure.

A switch sees a host's packets at the port where the host is attached and, on their way, at ports to other switches. The
latter do not count, even if they are recognized only later.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TypeAlias

from saps.ofm.network.topology import Port

MOST = 65536
"""Most hosts remembered; beyond it the one not seen for longest is forgotten. A host costs about 300 bytes."""
TAGS = (b"\x81\x00", b"\x88\xa8")
"""Ethernet types of VLAN tags (IEEE 802.1Q, 9.5)."""
MOST_TAGS = 2
TRACES = 16
"""Most ports remembered of one host. Only the last one that does not lead to a switch counts."""


@dataclass(frozen=True, slots=True)
class HostSeen:
    """A packet of a host has come in where the host is attached."""

    mac: int
    at: Port


@dataclass(frozen=True, slots=True)
class HostGone:
    """A host whose place is no longer known."""

    mac: int


HostEvent: TypeAlias = HostSeen | HostGone


def sender(frame: bytes) -> int | None:
    """Return the MAC address of an Ethernet frame's sender, or None without a unicast MAC and IP address. VLAN tags are
    skipped, up to `MOST_TAGS`."""
    kind, source, body = frame[12:14], frame[6:12], frame[14:]
    for _ in range(MOST_TAGS):
        if kind not in TAGS:
            break
        kind, body = body[2:4], body[4:]
    ip = b""
    if kind == b"\x08\x06" and body[:6] == b"\0\x01\x08\0\x06\x04" and body[8:14] == source and len(body) >= 28:
        ip = body[14:18]
    elif kind == b"\x08\0" and len(body) >= 20 and body[0] >> 4 == 4:
        ip = body[12:16]
    elif kind == b"\x86\xdd" and len(body) >= 40 and body[0] >> 4 == 6:
        ip = body[8:24]
    if not ip or source[0] & 1 or not any(source):
        return None
    address = ipaddress.ip_address(ip)
    if address.is_unspecified or address.is_multicast or address.is_loopback or ip == b"\xff\xff\xff\xff":
        return None
    return int.from_bytes(source, "big")


class HostTable:
    """All hosts seen, by MAC address. A host may have several IP addresses, but is at one port."""

    def __init__(self) -> None:
        self._traces: dict[int, tuple[Port, ...]] = {}
        """The ports where each host was seen, the latest last. The host not seen for longest comes first."""

    @property
    def hosts(self) -> dict[int, Port]:
        """All hosts and their ports."""
        return {mac: ports[-1] for mac, ports in self._traces.items()}

    def seen(self, mac: int, at: Port) -> HostSeen:
        """Take in a packet of a host at a port that is not known to lead to a switch. No event tells that a host was
        forgotten for want of room: it is still there."""
        before = self._traces.pop(mac, ())
        self._traces[mac] = (*(port for port in before[1 - TRACES :] if port != at), at)
        if len(self._traces) > MOST:
            del self._traces[next(iter(self._traces))]
        return HostSeen(mac, at)

    def port_lost(self, port: Port) -> list[HostEvent]:
        """Forget the hosts at a port that has gone down or was removed. Return what changes."""
        return self._leave(port, keep=False)

    def port_internal(self, port: Port) -> list[HostEvent]:
        """Discount a port that is found to lead to a switch: hosts seen there return to their previous ports. Return
        what changes."""
        return self._leave(port, keep=True)

    def _leave(self, port: Port, *, keep: bool) -> list[HostEvent]:
        events: list[HostEvent] = []
        for mac, ports in [(mac, ports) for mac, ports in self._traces.items() if port in ports]:
            rest = tuple(other for other in ports if other != port)
            if rest and (keep or ports[-1] != port):
                self._traces[mac] = rest
                if ports[-1] == port:
                    events.append(HostSeen(mac, rest[-1]))
            else:
                del self._traces[mac]
                events.append(HostGone(mac))
        return events
