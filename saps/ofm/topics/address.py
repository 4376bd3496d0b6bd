"""Makes IPv6 multicast addresses of events: 25 fixed bits, the event type, the word of the topic (SDNPS 2016, Figure
3)."""

from __future__ import annotations

from enum import IntEnum
from ipaddress import IPv6Address, IPv6Network
from typing import NamedTuple

from saps.ofm.flows.tables import Masked
from saps.ofm.topics.coding import WORD_BITS

RANGE = IPv6Network("ff18::/25")
"""The fixed bits: a transient multicast address of organization-local scope (RFC 4291, 2.7). The paper gives only their
number, 25."""
CODE_BITS = 103
TYPE_BITS = CODE_BITS - WORD_BITS


class EventType(IntEnum):
    """The type of an event; switches flood all types but the first. The paper gives two bits and no values."""

    PUBLISH = 0
    SUBSCRIBE = 1
    UNSUBSCRIBE = 2


class Identifier(NamedTuple):
    """The paper's ``typetp``: event type and topic."""

    event: EventType
    word: str


def address(event: EventType, word: str) -> IPv6Address:
    """Return the address of an event. Raises `ValueError` unless the word has `WORD_BITS` bits."""
    if len(word) != WORD_BITS:
        raise ValueError(f"a word has {WORD_BITS} bits, not {len(word)}")
    return IPv6Address(int(RANGE.network_address) | event << WORD_BITS | int(word, 2))


def identifier(of: IPv6Address) -> Identifier:
    """Return the event type and topic word of an address, the inverse of `address`. Raises `ValueError` for an address
    out of `RANGE`."""
    if of not in RANGE:
        raise ValueError(f"{of} is not in {RANGE}")
    bits = f"{int(of):0128b}"[-CODE_BITS:]
    return Identifier(EventType(int(bits[:TYPE_BITS], 2)), bits[TYPE_BITS:])


def match(event: EventType, prefix: str) -> Masked:
    """Return what a flow's ``ipv6_dst`` must match for the events whose words begin with a prefix."""
    return Masked(int(address(event, prefix.ljust(WORD_BITS, "0"))), int(network(prefix).netmask))


def network(prefix: str, event: EventType = EventType.PUBLISH) -> IPv6Network:
    """Return the address prefix of the events whose words begin with `prefix`."""
    length = 128 - CODE_BITS + TYPE_BITS + len(prefix)
    return IPv6Network((int(address(event, prefix.ljust(WORD_BITS, "0"))), length))
