"""Reads Ethernet frames into a `Packet`, and writes frames with a packet's headers, for the software switch. Pure.

IPv4 and IPv6 with UDP are parsed, everything else is a payload. VLAN tags and IPv6 extension headers are not parsed.
"""

from __future__ import annotations

import struct

from saps.ofm.flows.tables import ETH_IPV4, ETH_IPV6, UDP
from saps.ofm.switch.packets import Packet

SHORTEST = 14
"""Length of an Ethernet header in bytes."""
TTL = 16
"""Hop limit of a new packet; OpenFlow trees have no routers."""
_IPV4 = struct.Struct("!BBHHHBBH4s4s")
_IPV6 = struct.Struct("!IHBB16s16s")
_UDP = struct.Struct("!HHHH")
ICMP = 58
"""Protocol number of ICMPv6."""
_SOLICITATION = 135
_SOLICITED = 0xFF02_0000_0000_0000_0000_0001_FF00_0000
"""Prefix of solicited-node groups: the last 24 bits are those of the target's address (RFC 4291, 2.7.1)."""


def parse(frame: bytes) -> Packet | None:
    """Return the packet in a frame, or None if it is malformed or cut short."""
    if len(frame) < SHORTEST:
        return None
    kind = frame[12] << 8 | frame[13]
    to, source = int.from_bytes(frame[:6], "big"), int.from_bytes(frame[6:12], "big")
    try:
        if kind == ETH_IPV4:
            return _ipv4(frame, to, source)
        if kind == ETH_IPV6:
            return _ipv6(frame, to, source)
    except struct.error:
        return None
    return Packet(source, to, 0, 0, 0, 0, frame[14:], kind, 0)


def _ipv4(frame: bytes, to: int, source: int) -> Packet | None:
    first, service, _, _, fragment, _, protocol, _, sender, target = _IPV4.unpack_from(frame, 14)
    start = 14 + (first & 15) * 4
    if first >> 4 != 4 or start < 34 or start > len(frame):
        return None
    port, other_port, *_ = _UDP.unpack_from(frame, start) if protocol == UDP and not fragment & 0x1FFF else (0, 0)
    payload = frame[start + 8 if protocol == UDP else start :]
    ip, other = int.from_bytes(sender, "big"), int.from_bytes(target, "big")
    return Packet(source, to, ip, other, port, other_port, payload, ETH_IPV4, protocol, service >> 2)


def _ipv6(frame: bytes, to: int, source: int) -> Packet | None:
    first, _, protocol, _, sender, target = _IPV6.unpack_from(frame, 14)
    if first >> 28 != 6:
        return None
    port, other_port, *_ = _UDP.unpack_from(frame, 54) if protocol == UDP else (0, 0)
    payload = frame[62 if protocol == UDP else 54 :]
    ip, other = int.from_bytes(sender, "big"), int.from_bytes(target, "big")
    return Packet(source, to, ip, other, port, other_port, payload, ETH_IPV6, protocol, first >> 22 & 0x3F)


def rewritten(frame: bytes, packet: Packet) -> bytes:
    """Return the frame that `packet` was parsed from, with the present headers of `packet`. The rest is unchanged."""
    new = bytearray(frame)
    new[:6], new[6:12] = packet.eth_dst.to_bytes(6, "big"), packet.eth_src.to_bytes(6, "big")
    if packet.eth_type == ETH_IPV4:
        start = 14 + (new[14] & 15) * 4
        new[15] = packet.ip_dscp << 2 | new[15] & 3
        new[26:30], new[30:34] = packet.ip_src.to_bytes(4, "big"), packet.ip_dst.to_bytes(4, "big")
        new[24:26] = bytes(2)
        new[24:26] = checksum(new[14:start]).to_bytes(2, "big")
        if not (new[20] << 8 | new[21]) & 0x1FFF:
            _rewrite_udp(new, packet, start, bytes(new[26:34]))
    elif packet.eth_type == ETH_IPV6:
        first = int.from_bytes(new[14:18], "big") & ~(0x3F << 22) | packet.ip_dscp << 22
        new[14:18] = first.to_bytes(4, "big")
        new[22:38], new[38:54] = packet.ip_src.to_bytes(16, "big"), packet.ip_dst.to_bytes(16, "big")
        _rewrite_udp(new, packet, 54, bytes(new[22:54]))
    return bytes(new)


def _rewrite_udp(new: bytearray, packet: Packet, start: int, addresses: bytes) -> None:
    """Write ports and checksum in place. A checksum of 0 means that there is none (RFC 768), and stays."""
    if packet.ip_proto != UDP:
        return
    _, _, length, check = _UDP.unpack_from(new, start)
    _UDP.pack_into(new, start, packet.udp_src, packet.udp_dst, length, 0)
    if check:
        pseudo = addresses + struct.pack("!II", length, UDP)
        check = checksum(pseudo + new[start : start + length]) or 0xFFFF
        new[start + 6 : start + 8] = check.to_bytes(2, "big")


def udp(packet: Packet) -> bytes:
    """Return a frame for a UDP packet without a UDP checksum, since the carrying transport has one (with IPv6 see RFC
    6935)."""
    length = 8 + len(packet.payload)
    ports = _UDP.pack(packet.udp_src, packet.udp_dst, length, 0)
    if packet.eth_type == ETH_IPV6:
        return _six(packet, ports + packet.payload, TTL)
    ips = packet.ip_src.to_bytes(4, "big"), packet.ip_dst.to_bytes(4, "big")
    head = bytearray(_IPV4.pack(0x45, packet.ip_dscp << 2, 20 + length, 0, 0x4000, TTL, UDP, 0, *ips))
    head[10:12] = checksum(head).to_bytes(2, "big")
    ethernet = packet.eth_dst.to_bytes(6, "big") + packet.eth_src.to_bytes(6, "big") + b"\x08\x00"
    return ethernet + head + ports + packet.payload


def _six(packet: Packet, body: bytes, hops: int) -> bytes:
    ips = packet.ip_src.to_bytes(16, "big"), packet.ip_dst.to_bytes(16, "big")
    head = _IPV6.pack(6 << 28 | packet.ip_dscp << 22, len(body), packet.ip_proto, hops, *ips)
    return packet.eth_dst.to_bytes(6, "big") + packet.eth_src.to_bytes(6, "big") + b"\x86\xdd" + head + body


def solicitation(eth_src: int, ip_src: int, target: int) -> bytes:
    """Return a frame that asks for the owner of the IPv6 address `target`, sent to its multicast group (RFC 4861,
    4.3)."""
    source = eth_src.to_bytes(6, "big")
    to = _SOLICITED | target & 0xFFFFFF
    body = bytes([_SOLICITATION]) + bytes(7) + target.to_bytes(16, "big") + b"\x01\x01" + source
    pseudo = ip_src.to_bytes(16, "big") + to.to_bytes(16, "big") + struct.pack("!II", len(body), ICMP)
    body = body[:2] + checksum(pseudo + body).to_bytes(2, "big") + body[4:]
    packet = Packet(eth_src, 0x3333 << 32 | to & 0xFFFFFFFF, ip_src, to, 0, 0, b"", ETH_IPV6, ICMP)
    return _six(packet, body, 255)


def solicited(packet: Packet) -> int | None:
    """Return the IPv6 address that a packet asks for, or None if it is not a neighbour solicitation."""
    if packet.eth_type != ETH_IPV6 or packet.ip_proto != ICMP or packet.payload[:1] != bytes([_SOLICITATION]):
        return None
    return int.from_bytes(packet.payload[8:24], "big") if len(packet.payload) >= 24 else None


def checksum(data: bytes | bytearray) -> int:
    """Return the Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data = data + b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
