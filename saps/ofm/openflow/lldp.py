"""Makes and reads link probes: LLDP frames (IEEE 802.1AB-2016, 8 and 9) that name the port and switch that sent them.

A probe carries a message authentication code, so that a host cannot invent links. A host that forwards probes between
two switches can still feign a link between them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator

from saps.ofm.network.topology import Port

ETHERTYPE = 0x88CC
NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
"""Destination address that no bridge forwards (7.1)."""
CODE = 16
"""Length of the authentication code in bytes: truncated HMAC-SHA-256."""

_CHASSIS, _PORT, _TTL, _ORGANIZATION, _END = 1, 2, 3, 127, 0
_LOCAL = b"\x07"
"""Subtype "locally assigned" of chassis and port."""
_OURS = bytes.fromhex("02 5a b5 01")
"""A locally administered organization, and SAPS's subtype of its TLVs."""


def probe(source: Port, mac: int, ttl: int, secret: bytes) -> bytes:
    """Return the frame to send out of `source`, whose MAC address is `mac`. Bystanders may forget it after `ttl`
    seconds."""
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
    """Return whether an Ethernet frame is LLDP, a probe of SAPS or not."""
    return frame[12:14] == ETHERTYPE.to_bytes(2, "big")


def read_probe(frame: bytes, secret: bytes) -> Port | None:
    """Return the port that sent a frame, or None if the frame is not a probe with a valid code."""
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
    """Yield the TLVs up to the first end or malformed one (8.4)."""
    start = 0
    while start + 2 <= len(data):
        head = int.from_bytes(data[start : start + 2], "big")
        kind, end = head >> 9, start + 2 + (head & 0x1FF)
        if kind == _END or end > len(data):
            return
        yield kind, data[start + 2 : end]
        start = end
