"""The UDP packet as the software switch sees it: the headers that OpenFlow matches and rewrites, and a payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from saps.ofm.flows.tables import ETH_IPV4, ETH_IPV6, UDP, Field

HEADERS = {ETH_IPV4: 14 + 20 + 8, ETH_IPV6: 14 + 40 + 8}
"""Length of Ethernet, IP and UDP headers in bytes, by `eth_type`."""

_ATTRIBUTES: dict[int, dict[Field, str]] = {
    version: {
        "eth_type": "eth_type", "eth_src": "eth_src", "eth_dst": "eth_dst", "ip_proto": "ip_proto",
        "ip_dscp": "ip_dscp", f"{prefix}_src": "ip_src", f"{prefix}_dst": "ip_dst", "udp_src": "udp_src",
        "udp_dst": "udp_dst",
    }
    for version, prefix in ((ETH_IPV4, "ipv4"), (ETH_IPV6, "ipv6"))
}  # fmt: skip
_ETHERNET: dict[Field, str] = {name: name for name in ("eth_type", "eth_src", "eth_dst")}


class Packet(msgspec.Struct, frozen=True):
    """An Ethernet frame with a UDP datagram. With another `eth_type` or `ip_proto`, the fields of the missing headers
    mean nothing. Values are the numbers of the match fields."""

    eth_src: int
    eth_dst: int
    ip_src: int
    ip_dst: int
    udp_src: int
    udp_dst: int
    payload: bytes = b""
    eth_type: int = ETH_IPV4
    ip_proto: int = UDP
    ip_dscp: int = 0

    def field(self, name: Field) -> int | None:
        """Return the value of a match field (not `in_port`), or None if the packet has no such header."""
        attribute = _ATTRIBUTES.get(self.eth_type, _ETHERNET).get(name)
        if attribute is None or (name.startswith("udp") and self.ip_proto != UDP):
            return None
        value: int = getattr(self, attribute)
        return value

    def rewritten(self, fields: Mapping[Field, int]) -> Packet:
        """Return the packet with other values in these fields. Fields of headers that it lacks are skipped, as a switch
        does."""
        names = _ATTRIBUTES.get(self.eth_type, _ETHERNET)
        changes: dict[str, Any] = {names[name]: value for name, value in fields.items() if self.field(name) is not None}
        return replace(self, **changes) if changes else self

    @property
    def size(self) -> int:
        """Length on the link in bytes, without the frame check sequence."""
        without = 8 if self.eth_type in HEADERS and self.ip_proto != UDP else 0
        return HEADERS.get(self.eth_type, 14) - without + len(self.payload)
