"""What a session has had: its last publications one by one, and the first and last of older ones.

A session gets a broker's publications to a topic in their order (`saps.overlay.delivery.order`). So the first and the
last of those that are over long ago stand for all between them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from saps.routing.batch import UNNUMBERED, Origin

RECENT = 4096
"""Least number of publications that a session remembers one by one, of those that are over. What another broker brings
may have overtaken other publications: there the first and the last would say too much."""
TOGETHER = 256
"""Number of publications in a row that are grouped, or that become older ones together. Across groups their order is
kept, as a session forgets the oldest first."""
MOST_RANGES = 1024
"""Most pairs of a publishing broker's incarnation and a topic of which a session remembers older publications; about
250 bytes each."""

Had = dict[Origin, str]
"""Publications and their topics, oldest first."""
Seq = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Range(NamedTuple):
    """The older publications of a broker's incarnation to a topic."""

    broker: str
    incarnation: Seq
    topic: str
    first: Seq
    last: Seq


class Past(msgspec.Struct, frozen=True, array_like=True):
    """What a session has had, as storage and frames carry it."""

    recent: list[tuple[str, Seq, str, list[Seq]]] = []
    """Broker, incarnation, topic and sequence numbers of publications that are remembered one by one."""
    older: list[Range] = []

    @classmethod
    def of(cls, had: Had, older: Iterable[Range] = ()) -> Past:
        """Return these publications, of `TOGETHER` in a row those of one incarnation and topic together."""
        recent, every = list[tuple[str, int, str, list[int]]](), [*had.items()]
        for begin in range(0, len(every), TOGETHER):
            groups: dict[tuple[str, int, str], list[int]] = {}
            for (broker, incarnation, seq), topic in every[begin : begin + TOGETHER]:
                groups.setdefault((broker, incarnation, topic), []).append(seq)
            recent += [(*group, seqs) for group, seqs in groups.items()]
        return cls(recent, [*older])

    @property
    def had(self) -> Had:
        """The publications that are remembered one by one."""
        return {
            Origin(broker, incarnation, seq): topic
            for broker, incarnation, topic, seqs in self.recent
            for seq in seqs
        }  # fmt: skip

    @property
    def size(self) -> int:
        """How many numbers and topics it has, as a measure of its size."""
        return 2 * len(self.recent) + 4 * len(self.older) + sum(len(seqs) for *_, seqs in self.recent)


class Older:
    """The older publications of a session: a range for each incarnation of a broker and each topic."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._ranges: dict[tuple[str, int, str], tuple[int, int]] = {}
        """By broker, incarnation and topic: the first and the last number."""
        self.join(ranges)

    def add(self, had: Iterable[tuple[Origin, str]]) -> None:
        """Add publications, each later than the range of its topic. Those that the mesh has not numbered are left
        out, and those before their range."""
        ranges = self._ranges
        for (broker, incarnation, seq), topic in had:
            key = broker, incarnation, topic
            first, last = ranges.get(key, (seq, -1))
            if last < seq < UNNUMBERED:
                ranges[key] = first, seq
        self._trim()

    def join(self, ranges: Iterable[Range]) -> None:
        """Add what a session has had at another broker. Of two ranges that do not meet, the later one stays."""
        for broker, incarnation, topic, begin, end in ranges:
            key = broker, incarnation, topic
            first, last = self._ranges.get(key, (begin, end))
            if begin <= last and first <= end:
                self._ranges[key] = min(first, begin), max(last, end)
            elif end > last:
                self._ranges[key] = begin, end
        self._trim()

    def covers(self, origin: Origin | None, topic: str) -> bool:
        """Return whether a publication is in its topic's range. Only a plain subscription gets all publications in it,
        so ask only for what such a one gets."""
        if origin is None:
            return False
        first, last = self._ranges.get((origin.broker, origin.incarnation, topic), (0, -1))
        return first <= origin.seq <= last

    @property
    def ranges(self) -> list[Range]:
        """All ranges."""
        return [Range(*key, *ends) for key, ends in self._ranges.items()]

    def _trim(self) -> None:
        ranges = self._ranges
        for key in [*ranges][: len(ranges) - MOST_RANGES] if len(ranges) > MOST_RANGES else ():
            del ranges[key]
