"""Ethernet frames of hosts."""

from __future__ import annotations

import ipaddress
import struct

BROADCAST = b"\xff" * 6


def mac(number: int) -> bytes:
    """The unicast MAC address of a host's number."""
    return bytes([2, 0, 0, 0, 0, number])


def arp(number: int, ip: str, wanted: str = "10.0.0.99") -> bytes:
    """A host asks who has an address (RFC 826)."""
    spa, tpa = ipaddress.IPv4Address(ip).packed, ipaddress.IPv4Address(wanted).packed
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac(number) + spa + bytes(6) + tpa
    return BROADCAST + mac(number) + b"\x08\x06" + body + bytes(18)


def tagged(frame: bytes, kind: int, vlan: int) -> bytes:
    """A frame in a VLAN (IEEE 802.1Q, 9.5)."""
    return frame[:12] + struct.pack("!HH", kind, vlan) + frame[12:]


def solicitation(number: int, ip: str) -> bytes:
    """A host asks for a neighbour (RFC 4861, 4.3); the checksum is not right."""
    target = ipaddress.IPv6Address("2001:db8::99").packed
    group = ipaddress.IPv6Address("ff02::1:ff00:99").packed
    head = struct.pack("!IHBB", 6 << 28, 24, 58, 255) + ipaddress.IPv6Address(ip).packed + group
    return b"\x33\x33\xff\x00\x00\x99" + mac(number) + b"\x86\xdd" + head + b"\x87\0\0\0\0\0\0\0" + target


def udp4(number: int, ip: str, to: str, port: int) -> bytes:
    """A UDP packet without checksum."""
    head = struct.pack("!BBHHHBBH", 0x45, 0, 28, 0, 0, 64, 17, 0)
    addresses = ipaddress.IPv4Address(ip).packed + ipaddress.IPv4Address(to).packed
    total = sum(struct.unpack("!10H", head + addresses))
    total = (total >> 16) + (total & 0xFFFF)
    check = struct.pack("!H", 0xFFFF - (total + (total >> 16) & 0xFFFF))
    packet = head[:10] + check + addresses + struct.pack("!HHHH", port, port, 8, 0)
    return b"\x01\x00\x5e" + addresses[5:8] + mac(number) + b"\x08\x00" + packet + bytes(18)
