"""Short names on a link: brokers and slices are named once in a session, and then by number.

Each direction of a link has its own numbers, and so has its express lane; those that a sender has given end with the
session (docs/wire-protocol.md, Publications).
"""

from __future__ import annotations

from collections.abc import Callable

from saps.overlay.delivery.tree import Branch, divide
from saps.overlay.frames.base import ProtocolError
from saps.overlay.frames.delivery import DefineBroker, DefineSlice
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef, KeyOrder

SLICES = 4096
"""Slices remembered per link and direction; beyond it the sender begins anew."""
NUMBERED = 1 << 17
"""Brokers that may have numbers on a link. Beyond it the link is ended, and its numbers with it."""
ENTRIES = 1 << 20
"""Brokers in all slices that are remembered for a link and direction: 8 MiB. Beyond it the sender begins anew."""


class SentLinkIds:
    """What the receiver of a lane, one life of a broker, has been told the numbers for; they are greater than
    `above`."""

    __slots__ = ("above", "brokers", "entries", "slices", "to")

    def __init__(self, to: BrokerRef, above: int = 0) -> None:
        self.to = to
        self.above = above
        self.brokers: dict[BrokerRef, int] = {}
        self.slices: dict[tuple[BrokerRef, ...], int] = {}
        self.entries = 0
        """Brokers in all of the slices."""

    def name(self, ref: BrokerRef, port: Port) -> int:
        """Give a broker its number, and tell the receiver."""
        number = self.brokers[ref] = self.above + len(self.brokers) + 1
        port.send(self.to, DefineBroker(number, ref))
        return number

    def name_slice(self, members: tuple[BrokerRef, ...], port: Port) -> int:
        """Give a slice its number, and tell the receiver."""
        if len(self.slices) >= SLICES or self.entries + len(members) > ENTRIES:
            self.slices.clear()
            self.entries = 0
        self.entries += len(members)
        numbers = [self.brokers.get(ref) or self.name(ref, port) for ref in members]
        number = self.slices[members] = self.above + len(self.slices) + 1
        port.send(self.to, DefineSlice(number, numbers))
        return number


class ReceivedLinkIds:
    """What a sender has told this broker the numbers for: brokers, and slices as the branches they lead to."""

    __slots__ = ("branches", "brokers", "died", "listed", "of", "sizes")

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerRef] = {}
        self.branches: dict[int, list[Branch]] = {0: []}
        self.sizes: dict[int, int] = {}
        """Of the slices, in brokers."""
        self.listed = 0
        """The sum of them."""
        self.of: BrokerRef | None = None
        """The life of the sender that has begun the session."""
        self.died = 0.0
        """When the sender was taken for dead the last time."""

    def give(self, number: int, ref: BrokerRef) -> None:
        """The number stands for a broker. Raises `ProtocolError` if there are too many."""
        if len(self.brokers) >= NUMBERED and number not in self.brokers:
            raise ProtocolError(f"more than {NUMBERED} brokers with numbers")
        self.brokers[number] = ref

    def define(self, number: int, members: tuple[BrokerRef, ...], me: BrokerRef, order: KeyOrder) -> None:
        """The number stands for a slice. Raises `ProtocolError` if it cannot be for this broker."""
        if any(ref.name == me.name for ref in members):
            raise ProtocolError("a slice that contains its receiver")
        self.listed += len(members) - self.sizes.get(number, 0)
        self.sizes[number] = len(members)
        if len(self.sizes) > 2 * SLICES or self.listed > 3 * ENTRIES:
            raise ProtocolError("too many slices")
        self.branches[number] = divide(me, members, order)

    def without(self, ended: Callable[[int], bool]) -> ReceivedLinkIds:
        """What is left of it when a lane begins anew: all but the numbers of that lane."""
        left = ReceivedLinkIds()
        left.brokers = {number: ref for number, ref in self.brokers.items() if not ended(number)}
        left.branches |= {number: branches for number, branches in self.branches.items() if not ended(number)}
        left.sizes = {number: size for number, size in self.sizes.items() if not ended(number)}
        left.listed = sum(left.sizes.values())
        return left
