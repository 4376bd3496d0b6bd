"""Addresses that name their receivers: ``ff15:SSPP:`` and 96 bits.

8 bits *set* (which 96 brokers), 8 bits *plane* (which spanning tree), then one bit for each broker of the set, the one
of position 0 last. As draft-pfister-bier-over-ipv6 has it, with BIER's sets (RFC 8279, 1); planes are ours. ``ff15`` is
transient and of site scope (RFC 4291, 2.7).
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address, IPv6Network
from typing import NamedTuple

RANGE = IPv6Network("ff15::/16")
BITS = 96
"""Brokers of a set."""
SETS = PLANES = 256
"""Most sets of a network, and most planes."""
EVERY_TOPIC = "$stateless"
"""Stands for all topics where an OFM, or a key, is for one."""
PORT = 7400
"""UDP port of all addresses: switches do not look at it."""
_PREFIX = int(RANGE.network_address)


class Receivers(NamedTuple):
    """Whom an address names, and by which tree it reaches them."""

    set: int
    plane: int
    bits: int
    """Bit i: the broker at position i of the set."""

    @property
    def positions(self) -> list[int]:
        """Of the brokers in their set, ascending."""
        return [position for position in range(BITS) if self.bits >> position & 1]

    @property
    def address(self) -> IPv6Address:
        """The address. Raises `ValueError` if a number is too large for its field."""
        if not (0 <= self.set < SETS and 0 <= self.plane < PLANES and 0 <= self.bits < 1 << BITS):
            raise ValueError(f"no address for set {self.set}, plane {self.plane}, bits {self.bits:#x}")
        return IPv6Address(_PREFIX | self.set << 104 | self.plane << 96 | self.bits)


def read(address: IPv6Address) -> Receivers | None:
    """Whom an address names; None if it is none of ours."""
    if address not in RANGE:
        return None
    value = int(address)
    return Receivers(value >> 104 & 0xFF, value >> 96 & 0xFF, value & (1 << BITS) - 1)


def bits_of(positions: Iterable[int]) -> int:
    """The bits of brokers at these positions of a set."""
    bits = 0
    for position in positions:
        bits |= 1 << position
    return bits
