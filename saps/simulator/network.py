"""The virtual network: what it does to frames, its links, and its partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Network:
    """What the virtual network does to frames."""

    latency: tuple[float, float] = (0.001, 0.005)
    """Least and greatest one-way delay in seconds; each frame's is drawn anew, so links overtake each other."""
    between_clusters: float = 0.0
    """Added delay in seconds when the brokers' clusters differ."""
    reset: float = 0.0
    """Probability that a frame is lost together with its link."""


@dataclass(slots=True)
class Link:
    """One direction between two brokers."""

    session: int = 0
    started: int = -1
    """The session whose start the receiver has been told."""
    clear_at: float = 0.0
    broken: bool = False
    """It broke and the sender has not been told yet: what it sends is lost."""
    swallowed: bool = False
    """A partition has swallowed frames: the link breaks when it heals."""


class Wires:
    """The links of all brokers, and the partition that is between them."""

    def __init__(self) -> None:
        self.links: dict[tuple[str, str], Link] = {}
        self._of: dict[str, list[tuple[str, str]]] = {}
        self._groups: dict[str, int] = {}

    def link(self, source: str, target: str) -> Link:
        """One direction between two brokers."""
        link = self.links.get((source, target))
        if link is None:
            link = self.links[source, target] = Link()
            for name in (source, target):
                self._of.setdefault(name, []).append((source, target))
        return link

    def of(self, name: str) -> Iterable[tuple[str, str]]:
        """The links from and to a broker."""
        return self._of.get(name, ())

    def divide(self, groups: Iterable[Iterable[str]]) -> None:
        """Only brokers of the same group reach each other; those in no group form one more. No group: all do."""
        self._groups = {name: number for number, group in enumerate(groups, 1) for name in group}

    def apart(self, one: str, other: str) -> bool:
        return self._groups.get(one, 0) != self._groups.get(other, 0)
