"""A host of a software switch: turns a broker's datagrams into Ethernet frames, and answers ARP and neighbour
discovery, by which switches find it. Pure.

It does for a broker without an interface of its own what the kernel does for one with an interface.
"""

from __future__ import annotations

import struct
from ipaddress import ip_address

from saps.ofm.flows.tables import ETH_IPV4, ETH_IPV6, UDP, mac, mac_text
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.switch.ethernet import parse, solicitation, solicited, udp
from saps.ofm.switch.packets import Packet

_BROADCAST = (1 << 48) - 1
_GROUP, _GROUP_6 = 0x01005E000000, 0x333300000000
"""Prefixes of the MAC addresses of IPv4 and IPv6 multicast (RFC 1112, 6.4; RFC 2464, 7)."""
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_ASKS, _ANSWERS = 1, 2


class Host:
    """The host's end of a cable to a switch."""

    def __init__(self, element: BrokerAddress) -> None:
        """`element` is the broker's element in broker lists."""
        address = ip_address(element.ip)
        self._type = ETH_IPV6 if address.version == 6 else ETH_IPV4
        self._ip, self._mac, self._port = int(address), mac(element.mac), element.port

    def announcement(self) -> bytes:
        """Return the frame that announces this host to switch and controller (RFC 5227, 2.3): a request for its own
        address."""
        if self._type == ETH_IPV6:
            return solicitation(self._mac, self._ip, self._ip)
        return self._arp(_ASKS, _BROADCAST, 0, self._ip)

    def frame(self, target: int, port: int, payload: bytes, dscp: int = 0) -> bytes:
        """Return the frame for a datagram to a multicast address, given as a number."""
        kind = self._type
        to = _GROUP_6 | target & 0xFFFFFFFF if kind == ETH_IPV6 else _GROUP | target & 0x7FFFFF
        return udp(Packet(self._mac, to, self._ip, target, self._port, port, payload, kind, ip_dscp=dscp))

    def receive(self, frame: bytes) -> tuple[bytes | None, bytes | None]:
        """Handle a frame. Return the payload of a datagram for this broker or None, and a frame that answers it or
        None."""
        packet = parse(frame)
        if packet is None:
            return None, None
        if packet.eth_type == 0x0806:
            return None, self._answer(packet.payload)
        if self._type == ETH_IPV6 and packet.eth_src != self._mac and solicited(packet) == self._ip:
            return None, solicitation(self._mac, self._ip, packet.ip_src)
        mine = (packet.eth_type, packet.ip_proto, packet.eth_dst, packet.ip_dst, packet.udp_dst)
        if mine == (self._type, UDP, self._mac, self._ip, self._port):
            return packet.payload, None
        return None, None

    def _answer(self, arp: bytes) -> bytes | None:
        """Return the answer to an ARP request for this host (RFC 826), or None. A probe (RFC 5227, 2.1.1) is answered
        like a request."""
        try:
            kind, protocol, *sizes, operation, asker, asking, _, target = _ARP.unpack_from(arp)
        except struct.error:
            return None
        if (kind, protocol, sizes, operation) != (1, ETH_IPV4, [6, 4], _ASKS) or int.from_bytes(target, "big") != (
            self._ip
        ):
            return None
        if int.from_bytes(asker, "big") == self._mac:
            return None
        return self._arp(_ANSWERS, int.from_bytes(asker, "big"), int.from_bytes(asker, "big"), _number(asking))

    def _arp(self, operation: int, to: int, target_mac: int, target: int) -> bytes:
        own, ip = self._mac.to_bytes(6, "big"), self._ip.to_bytes(4, "big")
        body = _ARP.pack(
            1, ETH_IPV4, 6, 4, operation, own, ip, target_mac.to_bytes(6, "big"), target.to_bytes(4, "big")
        )
        return (to.to_bytes(6, "big") + own + b"\x08\x06" + body).ljust(60, b"\0")


def mac_for(ip: str) -> str:
    """Return a MAC address for a host that has none: locally administered, from its IPv4 address or the last 32 bits of
    its IPv6 address, as in a lab. Raises `ValueError` for a malformed IP address."""
    return mac_text(0x0200 << 32 | int(ip_address(ip)) & 0xFFFFFFFF)


def _number(address: bytes) -> int:
    return int.from_bytes(address, "big")
