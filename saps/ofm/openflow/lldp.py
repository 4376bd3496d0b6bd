"""Probes of links: LLDP frames (IEEE 802.1AB-2016, 8 and 9) that say which port of which switch sent them.

A probe carries a message authentication code, so that a host cannot invent links. One that forwards probes between two
switches can still pretend a link between them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator

from saps.ofm.network.topology import Port

ETHERTYPE = 0x88CC
NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
"""Destination that no bridge forwards (7.1)."""
CODE = 16
"""Bytes of the authentication code: HMAC-SHA-256, cut."""

_CHASSIS, _PORT, _TTL, _ORGANIZATION, _END = 1, 2, 3, 127, 0
_LOCAL = b"\x07"
"""Subtype "locally assigned" of chassis and port."""
_OURS = bytes.fromhex("02 5a b5 01")
"""A locally administered organization, and our subtype of its TLVs."""


def probe(source: Port, mac: int, ttl: int, secret: bytes) -> bytes:
    """The frame to send out of `source`, whose MAC address is `mac`; bystanders may forget it after `ttl` seconds."""
    chassis, number = _names(source)
    body = b"".join(
        [
            _tlv(_CHASSIS, _LOCAL + chassis),
            _tlv(_PORT, _LOCAL + number),
            _tlv(_TTL, ttl.to_bytes(2, "big")),
            _tlv(_ORGANIZATION, _OURS + _code(chassis, number, secret)),
            _tlv(_END, b""),
        ]
    )
    return NEAREST_BRIDGE + mac.to_bytes(6, "big") + ETHERTYPE.to_bytes(2, "big") + body


def is_lldp(frame: bytes) -> bool:
    """Whether an Ethernet frame is LLDP, ours or not."""
    return frame[12:14] == ETHERTYPE.to_bytes(2, "big")


def read_probe(frame: bytes, secret: bytes) -> Port | None:
    """The port that sent a frame, or None if it is no probe of ours."""
    if not is_lldp(frame):
        return None
    found = dict(_tlvs(frame[14:]))
    chassis, number, code = found.get(_CHASSIS, b""), found.get(_PORT, b""), found.get(_ORGANIZATION, b"")
    if (len(chassis), len(number), len(code)) != (9, 5, 4 + CODE) or code[:4] != _OURS:
        return None
    if not hmac.compare_digest(code[4:], _code(chassis[1:], number[1:], secret)):
        return None
    return Port(int.from_bytes(chassis[1:], "big"), int.from_bytes(number[1:], "big"))


def _names(port: Port) -> tuple[bytes, bytes]:
    return port.dpid.to_bytes(8, "big"), port.port.to_bytes(4, "big")


def _code(chassis: bytes, number: bytes, secret: bytes) -> bytes:
    return hmac.digest(secret, chassis + number, hashlib.sha256)[:CODE]


def _tlv(kind: int, value: bytes) -> bytes:
    return (kind << 9 | len(value)).to_bytes(2, "big") + value


def _tlvs(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The TLVs up to the first end or fault (8.4)."""
    start = 0
    while start + 2 <= len(data):
        head = int.from_bytes(data[start : start + 2], "big")
        kind, end = head >> 9, start + 2 + (head & 0x1FF)
        if kind == _END or end > len(data):
            return
        yield kind, data[start + 2 : end]
        start = end
