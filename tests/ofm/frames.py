"""Real Ethernet frames for `Packet` values, and tables as `ovs-ofctl` reads them: to ask Open vSwitch."""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path

from saps.ofm.flows.tables import (
    ETH_IPV6,
    IN_PORT,
    UDP,
    Action,
    Bucket,
    Flow,
    Group,
    Match,
    Output,
    SetField,
    SetQueue,
    mac_text,
)
from saps.ofm.switch.packets import Packet


def encode(packet: Packet) -> bytes:
    """The frame, with right checksums."""
    width = 16 if packet.eth_type == ETH_IPV6 else 4
    source, destination = packet.ip_src.to_bytes(width, "big"), packet.ip_dst.to_bytes(width, "big")
    length = 8 + len(packet.payload)
    udp = struct.pack("!HHHH", packet.udp_src, packet.udp_dst, length, 0) + packet.payload
    pseudo = source + destination + struct.pack("!HH", UDP, length)
    udp = udp[:6] + struct.pack("!H", _checksum(pseudo + udp) or 0xFFFF) + udp[8:]
    if width == 16:
        ip = struct.pack("!IHBB", 6 << 28 | packet.ip_dscp << 22, length, UDP, 64) + source + destination
    else:
        head = struct.pack("!BBHHHBB", 0x45, packet.ip_dscp << 2, 20 + length, 0, 0, 64, UDP)
        ip = head + struct.pack("!H", _checksum(head + b"\0\0" + source + destination)) + source + destination
    ethernet = packet.eth_dst.to_bytes(6, "big") + packet.eth_src.to_bytes(6, "big")
    return ethernet + packet.eth_type.to_bytes(2, "big") + ip + udp


def decode(frame: bytes) -> Packet:
    """The inverse of `encode`; a wrong checksum or length is an `AssertionError`."""
    eth_type = int.from_bytes(frame[12:14], "big")
    six = eth_type == ETH_IPV6
    width, ip = (16, frame[14:54]) if six else (4, frame[14:34])
    udp = frame[14 + len(ip) :]
    udp_src, udp_dst, length, _ = struct.unpack("!HHHH", udp[:8])
    found = Packet(
        eth_src=int.from_bytes(frame[6:12], "big"),
        eth_dst=int.from_bytes(frame[:6], "big"),
        ip_src=int.from_bytes(ip[-2 * width : -width], "big"),
        ip_dst=int.from_bytes(ip[-width:], "big"),
        udp_src=udp_src,
        udp_dst=udp_dst,
        payload=udp[8:length],
        eth_type=eth_type,
        ip_dscp=int.from_bytes(ip[:2], "big") >> 6 & 0x3F if six else ip[1] >> 2,
    )
    assert encode(found) == frame[: len(encode(found))], "a checksum or a header is wrong"
    return found


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def captured(path: Path) -> list[Packet]:
    """The packets in a capture file, as far as it is written."""
    data = path.read_bytes() if path.exists() else b""
    packets, at = [], 24
    while at + 16 <= len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        if at + 16 + length > len(data):
            break
        packets.append(decode(data[at + 16 : at + 16 + length]))
        at += 16 + length
    return packets


_NAMES = {
    "eth_src": "dl_src", "eth_dst": "dl_dst", "eth_type": "dl_type", "ip_proto": "nw_proto", "ipv4_src": "nw_src",
    "ipv4_dst": "nw_dst", "ipv6_src": "ipv6_src", "ipv6_dst": "ipv6_dst", "udp_src": "tp_src", "udp_dst": "tp_dst",
    "in_port": "in_port", "ip_dscp": "ip_dscp",
}  # fmt: skip
_FIRST = ("in_port", "eth_type", "ip_proto")
"""Fields that must come before those that require them."""


def flow_text(flow: Flow) -> str:
    """As `ovs-ofctl add-flow` takes it."""
    head = f"cookie={flow.cookie:#x},table={flow.table},priority={flow.priority}"
    actions = [*map(_action_text, flow.actions), *([] if flow.goto is None else [f"goto_table:{flow.goto}"])]
    return ",".join([head, *_match_texts(flow.match)]) + f",actions={','.join(actions) or 'drop'}"


def group_text(group: Group) -> str:
    """As `ovs-ofctl add-group` takes it."""
    return ",".join([f"group_id={group.id},type={group.kind.value}", *map(_bucket_text, group.buckets)])


def _match_texts(match: Match) -> list[str]:
    found = []
    for name, masked in sorted(match.fields, key=lambda entry: (entry[0] not in _FIRST, entry[0])):
        exact = name in (*_FIRST, "ip_dscp")
        value = str(masked.value) if exact else _value_text(name, masked.value)
        found.append(f"{_NAMES[name]}={value}" if exact else f"{_NAMES[name]}={value}/{_value_text(name, masked.mask)}")
    return found


def _value_text(name: str, value: int) -> str:
    if name.startswith("eth"):
        return mac_text(value)
    if name.startswith("ipv4"):
        return ".".join(map(str, value.to_bytes(4, "big")))
    if name.startswith("ipv6"):
        return str(ipaddress.IPv6Address(value))
    return hex(value)


def _bucket_text(bucket: Bucket) -> str:
    weight = f"weight:{bucket.weight}," if bucket.weight else ""
    watch = "" if bucket.watch is None else f"watch_port:{bucket.watch},"
    return f"bucket={weight}{watch}actions={_actions_text(bucket.actions)}"


def _actions_text(actions: tuple[Action, ...]) -> str:
    return ",".join(map(_action_text, actions)) or "drop"


def _action_text(action: Action) -> str:
    if isinstance(action, SetField):
        plain = action.field in ("ip_dscp", "udp_src", "udp_dst")
        value = str(action.value) if plain else _value_text(action.field, action.value)
        return f"set_field:{value}->{action.field.replace('ipv4', 'ip')}"
    if isinstance(action, SetQueue):
        return f"set_queue:{action.queue}"
    if isinstance(action, Output):
        return "in_port" if action.port == IN_PORT else f"output:{action.port}"
    return f"group:{action.group}"
