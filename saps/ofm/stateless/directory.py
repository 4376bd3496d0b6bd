"""Which bit each broker has, and the planes that work: all that a sender needs to write an address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saps.ofm.stateless.address import BITS, PLANES, PORT, SETS, Receivers
from saps.overlay.ring.keys import BrokerRef

Life = tuple[str, int]
"""Name and incarnation of a broker."""


@dataclass(frozen=True, eq=False)
class Directory:
    """As one broker knows it."""

    own: tuple[int, int]
    """Its own set and position."""
    at: Mapping[Life, tuple[int, int]]
    """Those of all brokers that hold the key."""
    planes: tuple[int, ...]
    """The planes that work; at least one."""

    def addresses(self, plane: int, members: Iterable[BrokerRef]) -> list[str]:
        """One for each set with members. This broker is named too: what comes back to it says that it has left."""
        bits = {self.own[0]: 1 << self.own[1]}
        for member in members:
            place = self.at.get((member.name, member.incarnation))
            if place is not None:
                bits[place[0]] = bits.get(place[0], 0) | 1 << place[1]
        return [f"[{Receivers(number, plane, named).address}]:{PORT}" for number, named in sorted(bits.items())]


def directory(me: BrokerRef, sets: Sequence[Any], planes: Sequence[int]) -> Directory | None:
    """From what OFGate tells: for each set ``[position, name, incarnation]`` of its brokers. None if `me` has no bit,
    or no plane works. Raises `ValueError` or `TypeError` for what makes no sense."""
    at: dict[Life, tuple[int, int]] = {}
    for number, brokers in enumerate(sets):
        for position, name, incarnation in brokers:
            if not (number < SETS and 0 <= position < BITS):
                raise ValueError(f"no bit: {position} of set {number}")
            at[str(name), int(incarnation)] = number, position
    own = at.get((me.name, me.incarnation))
    usable = tuple(plane for plane in planes if 0 <= plane < PLANES)
    return Directory(own, at, usable) if own is not None and usable else None
