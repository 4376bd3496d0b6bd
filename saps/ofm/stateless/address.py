"""Addresses that name their receivers: ``ff15:SSPP:`` and 96 bits.

8 bits *set* (which 96 brokers), 8 bits *plane* (which spanning tree), then one bit for each broker of the set, with
position 0 as the last bit. The format follows draft-pfister-bier-over-ipv6, with BIER's sets (RFC 8279, 1); planes are
our own. ``ff15`` is transient and of site scope (RFC 4291, 2.7).
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address, IPv6Network
from typing import NamedTuple

RANGE = IPv6Network("ff15::/16")
BITS = 96
"""Most brokers of a set."""
SETS = PLANES = 256
"""Most sets of a network, and most planes."""
EVERY_TOPIC = "$stateless"
"""The topic that stands for all topics where an OFM or a key belongs to a topic."""
PORT = 7400
"""UDP port of all addresses. Switches do not look at it."""
_PREFIX = int(RANGE.network_address)


class Receivers(NamedTuple):
    """The receivers that an address names, and the plane that reaches them."""

    set: int
    plane: int
    bits: int
    """Bit i stands for the broker at position i of the set."""

    @property
    def positions(self) -> list[int]:
        """Positions of the receivers in their set, ascending."""
        return [position for position in range(BITS) if self.bits >> position & 1]

    @property
    def address(self) -> IPv6Address:
        """The address of these receivers. Raises `ValueError` if a number is too large for its field."""
        if not (0 <= self.set < SETS and 0 <= self.plane < PLANES and 0 <= self.bits < 1 << BITS):
            raise ValueError(f"no address for set {self.set}, plane {self.plane}, bits {self.bits:#x}")
        return IPv6Address(_PREFIX | self.set << 104 | self.plane << 96 | self.bits)


def read(address: IPv6Address) -> Receivers | None:
    """Return the receivers that an address names, or None if the address is not of this format."""
    if address not in RANGE:
        return None
    value = int(address)
    return Receivers(value >> 104 & 0xFF, value >> 96 & 0xFF, value & (1 << BITS) - 1)


def parse(text: str) -> Receivers:
    """Return the receivers that an address names, written alone or, as in `[ff15::1]:7400`, with a port. Raises
    `ValueError` for any other text."""
    host = text[1:].partition("]")[0] if text.startswith("[") else text
    if (found := read(IPv6Address(host))) is None:
        raise ValueError(f"{host} is not an address of stateless delivery, {RANGE}")
    return found


def bits_of(positions: Iterable[int]) -> int:
    """Return the bits of the brokers at these positions of a set."""
    bits = 0
    for position in positions:
        bits |= 1 << position
    return bits
