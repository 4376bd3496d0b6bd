"""The virtual network: its delays and resets, its links, and its partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from saps.overlay.frames.base import Frame


@dataclass(frozen=True)
class Network:
    """The delays and resets of the virtual network."""

    latency: tuple[float, float] = (0.001, 0.005)
    """Least and greatest one-way delay in seconds, drawn for each frame, so that links overtake each other."""
    between_clusters: float = 0.0
    """Added delay in seconds when the brokers' clusters differ."""
    reset: float = 0.0
    """Probability that a frame breaks its link and is lost."""


@dataclass(slots=True)
class Link:
    """The link of one direction between two brokers."""

    session: int = 0
    started: int = -1
    """The last session that the receiver knows of."""
    clear_at: float = 0.0
    broken: bool = False
    """Whether the link has broken and the sender does not know yet: what it sends is lost."""
    swallowed: bool = False
    """Whether a partition has dropped frames, so that the link breaks when the partition ends."""
    arrived: list[tuple[int, Frame]] = field(default_factory=list)
    """Frames that a paused receiver has not read yet, each with the session it came in."""


class Wires:
    """The links between all brokers, and the current partition."""

    def __init__(self) -> None:
        self.links: dict[tuple[str, str], Link] = {}
        self._of: dict[str, list[tuple[str, str]]] = {}
        self._groups: dict[str, int] = {}
        self._pairs: set[frozenset[str]] = set()

    def link(self, source: str, target: str) -> Link:
        """Return the link from one broker to another."""
        link = self.links.get((source, target))
        if link is None:
            link = self.links[source, target] = Link()
            for name in (source, target):
                self._of.setdefault(name, []).append((source, target))
        return link

    def of(self, name: str) -> Iterable[tuple[str, str]]:
        """Return the links from and to a broker."""
        return self._of.get(name, ())

    def divide(self, groups: Iterable[Iterable[str]], pairs: Iterable[tuple[str, str]] = ()) -> None:
        """Partition the brokers into groups; those in none form one more. Without groups there is no partition. `pairs`
        do not hear each other either, whoever hears both."""
        self._groups = {name: number for number, group in enumerate(groups, 1) for name in group}
        self._pairs = {frozenset(pair) for pair in pairs}

    def apart(self, one: str, other: str) -> bool:
        return self._groups.get(one, 0) != self._groups.get(other, 0) or frozenset((one, other)) in self._pairs
