"""Manages OFM addresses `<IP:port>`: their pool, preregistered as a range, and their owners (SAPS 2016, 3.1.1).

A topic's address follows from its name, so controllers that start from nothing tend to assign the same one. A released
address is unlikely to go to another topic while packets to it are still on their way.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

LARGEST_POOL = 1 << 28
"""Most addresses in a pool. Each has a number, which the planner turns into a 32-bit group id."""

_RANGE = re.compile(r"^(?:\[(?P<six>[^\]]*)\]|(?P<four>[^:\[\]]*)):(?P<first>\d+)(?:-(?P<last>\d+))?$")


class OfmAddress(NamedTuple):
    """The destination of a topic's packets. `ip` is in its canonical text form."""

    ip: str
    port: int

    @classmethod
    def parse(cls, text: str) -> OfmAddress:
        """Return the address in a text, the inverse of `str`: `239.77.0.1:5000` or `[ff05::1]:5000`. Raises
        `ValueError`."""
        ip, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal() or not 1 <= int(port) <= 65535:
            raise ValueError(f"not an OFM address <IP:port>: {text!r}")
        address = ipaddress.ip_address(ip.removeprefix("[").removesuffix("]"))
        return cls(str(address), int(port))

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


@dataclass(frozen=True, slots=True)
class AddressRange:
    """All addresses of `network` with all ports from `first` to `last`."""

    network: Network
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> AddressRange:
        """Return the range in a text: `239.77.0.0/16:5000-5999` or `[ff05:77::/112]:5000`. Raises `ValueError` that
        says what is wrong."""
        found = _RANGE.match(text.strip())
        if found is None:
            raise ValueError(f"OFM range {text!r}: expected NETWORK:PORT or NETWORK:FIRST-LAST, IPv6 in brackets")
        try:
            network: Network = ipaddress.ip_network(found["six"] if found["six"] is not None else found["four"])
        except ValueError as error:
            raise ValueError(f"OFM range {text!r}: {error}") from None
        if (network.version == 6) != (found["six"] is not None):
            raise ValueError(f"OFM range {text!r}: brackets are for IPv6, and IPv6 is in brackets")
        first, last = int(found["first"]), int(found["last"] or found["first"])
        if not 1 <= first <= last <= 65535:
            raise ValueError(f"OFM range {text!r}: ports must rise within 1 to 65535")
        _refuse_unusable(text, network)
        if network.num_addresses * (last - first + 1) > LARGEST_POOL:
            raise ValueError(f"OFM range {text!r}: more than {LARGEST_POOL} addresses; take a longer prefix")
        return cls(network, first, last)

    @property
    def ports(self) -> int:
        """Number of ports of each IP address."""
        return self.last - self.first + 1

    def __len__(self) -> int:
        return int(self.network.num_addresses) * self.ports

    def __getitem__(self, number: int) -> OfmAddress:
        """Return the address with this number, from 0. Raises `IndexError` beyond the range."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        host, port = divmod(number, self.ports)
        return OfmAddress(str(self.network[host]), self.first + port)

    def number(self, address: OfmAddress) -> int:
        """Return the number of an address, the inverse of `[]`. Raises `ValueError` for an address outside the
        range."""
        ip = ipaddress.ip_address(address.ip)
        if ip not in self.network or not self.first <= address.port <= self.last:
            raise ValueError(f"{address} is not in {self}")
        return (int(ip) - int(self.network.network_address)) * self.ports + address.port - self.first

    def __str__(self) -> str:
        network = f"[{self.network}]" if self.network.version == 6 else str(self.network)
        return f"{network}:{self.first}-{self.last}"


def _refuse_unusable(text: str, network: Network) -> None:
    """Check that hosts and routers treat the addresses as ordinary ones. Raises `ValueError` otherwise."""
    for bad, why in (
        ("224.0.0.0/24", "local network control (RFC 5771): routing protocols use it"),
        ("127.0.0.0/8", "loopback: never leaves the host"),
        ("0.0.0.0/8", "this network: not a destination"),
        ("255.255.255.255/32", "broadcast"),
        ("ff00::/16", "reserved scope"),
        ("ff01::/16", "interface-local scope: never leaves the host"),
        ("ff02::/16", "link-local scope: forces a link-local source"),
        ("::/127", "unspecified and loopback"),
    ):
        other = ipaddress.ip_network(bad)
        if other.version == network.version and network.overlaps(other):
            raise ValueError(f"OFM range {text!r} overlaps {bad}, {why}")


class PoolExhaustedError(Exception):
    """A pool without a free address."""


class AddressPool:
    """The owners of the addresses of a range. An owner (a topic, or a topic's next tree) has at most one address."""

    def __init__(self, addresses: AddressRange) -> None:
        self.range = addresses
        self._by_owner: dict[str, OfmAddress] = {}
        self._owners: dict[OfmAddress, str] = {}
        self._numbers: dict[OfmAddress, int] = {}
        """Numbers of the addresses in use."""

    @classmethod
    def parse(cls, text: str) -> AddressPool:
        """Return an empty pool over the range in a text. Raises `ValueError`."""
        return cls(AddressRange.parse(text))

    def allocate(self, owner: str) -> OfmAddress:
        """Return the owner's address. An owner without one gets the address of its name's hash, or the next free one
        after it. Raises `PoolExhaustedError`."""
        if (held := self._by_owner.get(owner)) is not None:
            return held
        size = len(self.range)
        if len(self._owners) >= size:
            raise PoolExhaustedError(f"all {size} addresses of {self.range} are in use")
        start = int.from_bytes(blake2b(owner.encode(), digest_size=8).digest(), "big") % size
        # There are fewer owners than addresses, so the search ends.
        step = next(step for step in range(size) if self.range[(start + step) % size] not in self._owners)
        return self._give(owner, self.range[(start + step) % size])

    def reserve(self, owner: str, address: OfmAddress) -> None:
        """Give the owner this address, which it had before a restart of the controller.

        Raises `ValueError` if the address is outside the range or belongs to another owner, or if the owner has another
        address."""
        self.range.number(address)
        if self._owners.get(address, owner) != owner:
            raise ValueError(f"{address} belongs to {self._owners[address]!r}")
        if self._by_owner.get(owner, address) != address:
            raise ValueError(f"{owner!r} has {self._by_owner[owner]}")
        self._give(owner, address)

    def release(self, owner: str) -> OfmAddress | None:
        """Release the owner's address. Return it, or None if the owner has none."""
        address = self._by_owner.pop(owner, None)
        if address is not None:
            del self._owners[address], self._numbers[address]
        return address

    def exchange(self, one: str, other: str) -> None:
        """Exchange the addresses of two owners. Raises `KeyError` if one has none."""
        first, second = self._by_owner[one], self._by_owner[other]
        self._give(one, second)
        self._give(other, first)

    def number(self, address: OfmAddress) -> int:
        """Return the address's number in the range, the same after every restart. Raises `ValueError` for an address
        outside the range."""
        known = self._numbers.get(address)
        return self.range.number(address) if known is None else known

    @property
    def held(self) -> Mapping[str, OfmAddress]:
        """The address of every owner."""
        return self._by_owner

    def _give(self, owner: str, address: OfmAddress) -> OfmAddress:
        self._by_owner[owner] = address
        self._owners[address] = owner
        self._numbers[address] = self.range.number(address)
        return address
