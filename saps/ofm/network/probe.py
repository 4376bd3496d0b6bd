"""Builds frames that make hosts show themselves, and frames that show hosts to switches. Pure.

Probes leave by ports where hosts may be. A host answers an ARP probe (RFC 5227, 2.1.1), and the answer reaches the
controller as every ARP packet does. An IPv6 neighbour solicitation without the sender's link-layer address makes the
host ask for that address in turn (RFC 4861, 7.2.3), and this question reaches the controller.
"""

from __future__ import annotations

import ipaddress
import struct

from saps.ofm.flows.tables import mac
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.switch.ethernet import checksum

ASKER = bytes.fromhex("025a50530001")
"""The source MAC address of probes, which no host has."""
_ASKER_IP = ipaddress.IPv6Address("fe80::5a50:53ff:fe00:1")
_BROADCAST = b"\xff" * 6


def probe(broker: BrokerAddress) -> bytes:
    """Return the frame that a broker's host answers."""
    ip = ipaddress.ip_address(broker.ip)
    return _arp(ip.packed) if ip.version == 4 else _solicitation(ip.packed, mac(broker.mac).to_bytes(6, "big"))


def announcement(host: str) -> bytes:
    """Return a broadcast frame in the name of a host, from which all switches learn its place: the RARP request (RFC
    903) that hypervisors send for a virtual machine that has moved."""
    address = mac(host).to_bytes(6, "big")
    return _resolution(0x8035, 3, address, address, bytes(4))


def _arp(target: bytes) -> bytes:
    """Return an ARP probe for `target`. Its sender address is zero, so that no cache changes."""
    return _resolution(0x0806, 1, ASKER, bytes(6), target)


def _resolution(kind: int, operation: int, sender: bytes, hardware: bytes, target: bytes) -> bytes:
    """Return a broadcast frame of ARP or RARP, by its Ethernet type, for the addresses `hardware` and `target`. The
    sender's IP address is zero."""
    head = struct.pack("!HHHBBH", kind, 1, 0x0800, 6, 4, operation)
    return (_BROADCAST + sender + head + sender + bytes(4) + hardware + target).ljust(60, b"\0")


def _solicitation(target: bytes, to: bytes) -> bytes:
    """Return a neighbour solicitation to the host alone. A multicast one would need the sender's link-layer address
    (RFC 4861, 4.3)."""
    source = _ASKER_IP.packed
    body = bytes([135, 0, 0, 0]) + bytes(4) + target
    pseudo = source + target + struct.pack("!II", len(body), 58)
    body = body[:2] + checksum(pseudo + body).to_bytes(2, "big") + body[4:]
    ip = struct.pack("!IHBB", 6 << 28, len(body), 58, 255) + source + target
    return to + ASKER + b"\x86\xdd" + ip + body
