"""The directory of stateless delivery: the bit of each broker and the working planes, all that a sender needs to write
an address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from saps.ofm.stateless.address import BITS, PLANES, PORT, SETS, Receivers
from saps.ofm.stateless.spread import by_hash
from saps.overlay.ring.keys import BrokerRef

Incarnation = tuple[str, int]
"""Name and incarnation of a broker."""


@dataclass(frozen=True, eq=False)
class Directory:
    """The directory as one broker knows it."""

    own: tuple[int, int]
    """Set and position of the broker itself."""
    at: Mapping[Incarnation, tuple[int, int]]
    """Name and incarnation -> set and position, for all brokers that hold the key."""
    planes: tuple[int, ...]
    """The working planes; at least one."""
    spread: Mapping[str, int] = field(default_factory=dict)
    """The planes of topics that OFGate has spread by their loads."""

    def first(self, topic: str) -> int:
        """Return the plane that a topic begins with."""
        plane = self.spread.get(topic, -1)
        return plane if plane in self.planes else by_hash(topic, self.planes)

    def addresses(self, plane: int, members: Iterable[BrokerRef]) -> list[str]:
        """Return one address for each set with members. The broker itself is named too: the returned copy shows that
        the datagram has left."""
        bits = {self.own[0]: 1 << self.own[1]}
        for member in members:
            place = self.at.get((member.name, member.incarnation))
            if place is not None:
                bits[place[0]] = bits.get(place[0], 0) | 1 << place[1]
        return [f"[{Receivers(number, plane, named).address}]:{PORT}" for number, named in sorted(bits.items())]


def directory(me: BrokerRef, sets: Sequence[Any], planes: Sequence[int], spread: Mapping[str, int]) -> Directory | None:
    """Return the directory in OFGate's notice: for each set ``[position, name, incarnation]`` of its brokers. Returns
    None if `me` has no bit, or no plane works. Raises `ValueError` or `TypeError` for malformed values."""
    at: dict[Incarnation, tuple[int, int]] = {}
    for number, brokers in enumerate(sets):
        for position, name, incarnation in brokers:
            if not (number < SETS and 0 <= position < BITS):
                raise ValueError(f"no bit: {position} of set {number}")
            at[str(name), int(incarnation)] = number, position
    own = at.get((me.name, me.incarnation))
    usable = tuple(plane for plane in planes if 0 <= plane < PLANES)
    return Directory(own, at, usable, spread) if own is not None and usable else None
