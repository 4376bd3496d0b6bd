"""Link ids: short numbers for brokers and slices on a link. A sender defines each once in a session, then uses it.

Each direction of a link has its own link ids, and so has the express lane. A sender's link ids end with its session
(docs/wire-protocol.md, Publications).
"""

from __future__ import annotations

from collections.abc import Callable

from saps.overlay.delivery.tree import Branch, divide
from saps.overlay.frames.base import ProtocolError
from saps.overlay.frames.delivery import DefineBroker, DefineSlice
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef, KeyOrder

SLICES = 4096
"""Most slices defined per link and direction; beyond it the sender defines all slices anew."""
NUMBERED = 1 << 17
"""Most brokers with link ids on a link. Beyond it the link is closed, and its link ids end."""
ENTRIES = 1 << 20
"""Most brokers in all slices defined on a link and direction, which take 8 MiB. Beyond it the sender defines all slices
anew."""


class SentLinkIds:
    """The link ids that this broker has defined on one lane to a receiver, one incarnation of a broker. They are
    greater than `above`."""

    __slots__ = ("above", "brokers", "entries", "slices", "to")

    def __init__(self, to: BrokerRef, above: int = 0) -> None:
        self.to = to
        self.above = above
        self.brokers: dict[BrokerRef, int] = {}
        self.slices: dict[tuple[BrokerRef, ...], int] = {}
        self.entries = 0
        """Number of brokers in all slices together."""

    def name(self, ref: BrokerRef, port: Port) -> int:
        """Define and return a link id for a broker: sends `DefineBroker` to the receiver."""
        number = self.brokers[ref] = self.above + len(self.brokers) + 1
        port.send(self.to, DefineBroker(number, ref))
        return number

    def name_slice(self, members: tuple[BrokerRef, ...], port: Port) -> int:
        """Define and return a link id for a slice: sends `DefineSlice` to the receiver, after the `DefineBroker` frames
        that it needs."""
        if len(self.slices) >= SLICES or self.entries + len(members) > ENTRIES:
            self.slices.clear()
            self.entries = 0
        self.entries += len(members)
        numbers = [self.brokers.get(ref) or self.name(ref, port) for ref in members]
        number = self.slices[members] = self.above + len(self.slices) + 1
        port.send(self.to, DefineSlice(number, numbers))
        return number


class ReceivedLinkIds:
    """The link ids that a sender has defined: brokers, and slices as the branches into which this broker divides
    them."""

    __slots__ = ("branches", "brokers", "died", "listed", "of", "sizes")

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerRef] = {}
        self.branches: dict[int, list[Branch]] = {0: []}
        self.sizes: dict[int, int] = {}
        """Number of brokers in each slice, by link id."""
        self.listed = 0
        """Sum of `sizes`."""
        self.of: BrokerRef | None = None
        """The incarnation of the sender that began the session."""
        self.died = 0.0
        """When the sender was last declared dead, in seconds of the port's clock."""

    def give(self, number: int, ref: BrokerRef) -> None:
        """Record the link id of a broker. Raises `ProtocolError` if the sender defines too many."""
        if len(self.brokers) >= NUMBERED and number not in self.brokers:
            raise ProtocolError(f"more than {NUMBERED} brokers with numbers")
        self.brokers[number] = ref

    def define(self, number: int, members: tuple[BrokerRef, ...], me: BrokerRef, order: KeyOrder) -> None:
        """Record the link id of a slice, and divide the slice into branches. Raises `ProtocolError` if the slice
        contains `me`, or if the sender defines too many."""
        if any(ref.name == me.name for ref in members):
            raise ProtocolError("a slice that contains its receiver")
        self.listed += len(members) - self.sizes.get(number, 0)
        self.sizes[number] = len(members)
        if len(self.sizes) > 2 * SLICES or self.listed > 3 * ENTRIES:
            raise ProtocolError("too many slices")
        self.branches[number] = divide(me, members, order)

    def without(self, ended: Callable[[int], bool]) -> ReceivedLinkIds:
        """Return a copy for a lane that begins anew: without the link ids for which `ended` returns True."""
        left = ReceivedLinkIds()
        left.brokers = {number: ref for number, ref in self.brokers.items() if not ended(number)}
        left.branches |= {number: branches for number, branches in self.branches.items() if not ended(number)}
        left.sizes = {number: size for number, size in self.sizes.items() if not ended(number)}
        left.listed = sum(left.sizes.values())
        return left
