"""What a topic sends between clusters: by ALM, from the brokers' counts; by a tree, from the switches' counters."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from saps.ofm.northbound.schema import OfmStats

SPAN = 3.0
"""Seconds over which the live figures are taken."""
COLUMNS = ["start", "seconds", "topic", "messages", "copies", "by_tree"]


@dataclass(frozen=True, slots=True)
class Crossings:
    """Packets of one tree that the switches have counted since it was built."""

    sent: int = 0
    """By brokers."""
    up: int = 0
    """From a cluster to the core: one for each publication that other clusters want."""
    links: int = 0
    """Over any link between clusters, up or down."""


def crossings(stats: OfmStats, core: str) -> Crossings:
    """From the northbound's counters of a tree in a star of switches, the core's datapath id given."""
    sent = sum(each.packets for each in stats.senders)
    up = sum(each.packets for each in stats.switches if each.dpid == core)
    edges = sum(each.packets for each in stats.switches if each.dpid != core)
    return Crossings(sent, up, up + max(0, edges - sent))


@dataclass(slots=True)
class Sums:
    """What became of publications, by the brokers' counts."""

    messages: int = 0
    copies: int = 0
    """Sent by ALM from one cluster to another; each goes over two links, up and down."""
    by_tree: int = 0

    def add(self, row: _Row) -> None:
        """One broker and interval more."""
        self.messages += row.messages
        self.copies += row.copies
        self.by_tree += row.by_tree

    @property
    def alone(self) -> Sums:
        """The part that went by ALM."""
        return Sums(self.messages - self.by_tree, self.copies)

    def between_clusters(self, tree: Crossings) -> float:
        """Packets from a cluster to others, for each publication; `tree` says what one by the tree comes to."""
        return self._each(self.copies, tree.up, tree.sent)

    def links(self, tree: Crossings) -> float:
        """Links between clusters that are taken, up and down, for each publication."""
        return self._each(2 * self.copies, tree.links, tree.sent)

    def _each(self, by_alm: int, by_tree: int, sent: int) -> float:
        if not self.messages:
            return 0.0
        return (by_alm + (self.by_tree * by_tree / sent if sent else 0.0)) / self.messages


class _Row(msgspec.Struct, frozen=True):
    start: int
    seconds: float
    topic: str
    messages: int
    copies: int
    by_tree: int

    @property
    def middle(self) -> float:
        """Seconds since 1970."""
        return self.start / 1000 + self.seconds / 2


class Counted:
    """The brokers' counts, as they come."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: set[str] = set()
        self._rows: list[_Row] = []

    def read(self) -> None:
        """Take in the files that are new. Raises ImportError without pyarrow, with which brokers count."""
        import pyarrow.parquet as pq

        for file in self._directory.glob("*/*.parquet"):
            if file.name not in self._seen and not file.name.startswith("."):
                self._seen.add(file.name)
                rows = pq.read_table(file, columns=COLUMNS).to_pylist()
                self._rows += [msgspec.convert(row, _Row) for row in rows if row["topic"]]

    def between(self, since: float, until: float) -> dict[str, Sums]:
        """What was counted in the intervals whose middles are between two instants (seconds since 1970), by topic."""
        found: dict[str, Sums] = {}
        for row in self._within(since, until):
            found.setdefault(row.topic, Sums()).add(row)
        return found

    def _within(self, since: float, until: float) -> Iterator[_Row]:
        for row in self._rows:
            if since <= row.middle < until:
                yield row

    @property
    def latest(self) -> float:
        """Where the present figures end: what is later has not been written by all brokers. Seconds since 1970."""
        return math.floor(time.time() - 1.5)
