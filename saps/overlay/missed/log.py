"""The log of own publications of QoS 1 and 2, from the first moment on at which a broker is taken for dead.

Whoever was cut off gets from it what it was not sent (`saps.overlay.missed.catchup`; hinted handoff, as in DeCandia
et al., Dynamo, 2007, 4.6). One log serves all of them: a record says to which brokers it went. The log consists of
segments; the oldest goes when the log is too large or the segment too old. The driver decides whether a segment is in
memory or in a file (`saps.storage.driver.missed`).
"""

from __future__ import annotations

import logging
from binascii import crc32
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from saps.marks import hit
from saps.overlay.frames.delivery import Publish
from saps.overlay.ring.keys import BrokerRef

logger = logging.getLogger(__name__)

SEGMENTS = 64
"""So many segments make a full log: as much of it goes at once."""
LARGEST_SEGMENT = 4 << 20
"""Bytes."""
IN_MEMORY = 64 << 20
"""Bytes of a log without a disk."""
TOPICS = 1 << 20
"""Topics in a log: beyond it the oldest segment goes. Each costs about 150 bytes of memory."""
_LENGTH = 4
_HEADER = 8
"""Bytes before a record: its length, and its CRC-32."""


class Record(msgspec.Struct, array_like=True):
    """Publications that were numbered together."""

    at: float
    """When, on this broker's clock."""
    body: Publish
    """Without addresses."""
    sent: list[int]
    """Of each part the members it was sent to (`MissedLog.went_to`)."""
    groups: list[list[str]]
    """Of each part the shared subscriptions that took it; empty: none did."""


class Segment(Protocol):
    """A part of the log."""

    def append(self, raw: bytes) -> None:
        """Raises `OSError` if there is no room."""

    def read(self, offset: int, count: int) -> bytes:
        """So many bytes from there on; fewer if it cannot."""

    def close(self) -> None:
        """It is not needed any more."""


class InMemory:
    """A segment in memory."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def append(self, raw: bytes) -> None:
        self._bytes += raw

    def read(self, offset: int, count: int) -> bytes:
        return bytes(self._bytes[offset : offset + count])

    def close(self) -> None:
        self._bytes.clear()


class _Part:
    """A segment, and what is known of it."""

    __slots__ = ("at", "count", "last", "number", "segment", "size")

    def __init__(self, number: int, segment: Segment) -> None:
        self.number = number
        self.segment = segment
        self.size = 0
        self.count = 0
        """Publications."""
        self.last = 0
        """The highest sequence number in it."""
        self.at = 0.0
        """When the last one was appended."""


Place = tuple[int, int]
"""In the log: segment and offset."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


class MissedLog:
    """The log of one broker."""

    def __init__(self, segment: Callable[[int], Segment] = lambda number: InMemory()) -> None:
        """`segment`: makes the one of that number."""
        self.segment = segment
        self.size = IN_MEMORY
        """Bytes, at most."""
        self.age = 86400.0
        """Seconds for which something is kept."""
        self.active = False
        """Something is to be kept."""
        self.bytes = 0
        self.messages = 0
        """Publications in it."""
        self.dropped = 0
        """Publications that went before whoever had missed them was back, or that no disk took."""
        self.damaged = 0
        """Records that cannot be read any more."""
        self.topics: dict[str, tuple[int, int]] = {}
        """Of each topic in it the last sequence number, and to whom that one was sent."""
        self.first = 0
        """The lowest sequence number that can be in it."""
        self._parts: deque[_Part] = deque()
        self._next = 0
        self._members: list[tuple[BrokerRef, ...]] = []
        self._sets: list[frozenset[BrokerRef]] = []
        self._names: dict[int, int] = {}

    # ---- writing

    def begin(self, seq: int) -> None:
        """Keep everything from the publication on that has this sequence number."""
        self.active = True
        self.first = seq

    def append(
        self, at: float, body: Publish, members: Sequence[tuple[BrokerRef, ...]], groups: list[list[str]]
    ) -> None:
        """Keep publications. `members`: of each part to whom they go."""
        sent = [self._name(each) for each in members]
        raw = _encode(Record(at, body, sent, groups))
        part = self._parts[-1] if self._parts else None
        try:
            if part is None or part.size >= min(LARGEST_SEGMENT, self.size // SEGMENTS):
                part = _Part(self._next, self.segment(self._next))
                self._next += 1
                self._parts.append(part)
            part.segment.append(len(raw).to_bytes(_LENGTH) + crc32(raw).to_bytes(_LENGTH) + raw)
        except OSError as error:
            if not self.dropped:
                logger.error("publications for brokers that are cut off cannot be kept: %s", error)
            self.dropped += len(body.which)
            return
        part.size += len(raw) + _HEADER
        part.count += len(body.which)
        part.last, part.at = body.seqs[-1], at
        self.bytes += len(raw) + _HEADER
        self.messages += len(body.which)
        for number, seq in zip(body.which, body.seqs, strict=True):
            self.topics[body.parts[number].topic] = seq, sent[number]

    def _name(self, members: tuple[BrokerRef, ...]) -> int:
        """The number of some members: streams share few sets of them."""
        name = self._names.get(id(members))
        if name is None:
            name = self._names[id(members)] = len(self._members)
            self._members.append(members)  # which keeps its id from being used again
            self._sets.append(frozenset(members))
        return name

    def went_to(self, name: int) -> frozenset[BrokerRef]:
        """To whom a part was sent."""
        return self._sets[name]

    def trim(self, now: float, needed: int | None) -> None:
        """Drop what is too old, or too much. `needed`: the first segment that somebody waits for; None: nobody does."""
        while self._parts and (
            self.bytes > self.size or self._parts[0].at < now - self.age or len(self.topics) > TOPICS
        ):
            part = self._parts.popleft()
            if needed is not None and part.number >= needed:
                hit("no room for what is missed")
                self.dropped += part.count
            self._close(part)
            self.first = part.last + 1
            self.topics = {topic: last for topic, last in self.topics.items() if last[0] > part.last}

    def end(self) -> None:
        """Nobody can want anything of it any more."""
        self.active = False
        while self._parts:
            self._close(self._parts.popleft())
        self.topics.clear()
        self._members.clear()
        self._sets.clear()
        self._names.clear()

    def _close(self, part: _Part) -> None:
        part.segment.close()
        self.bytes -= part.size
        self.messages -= part.count

    # ---- reading

    @property
    def start(self) -> Place:
        return (self._parts[0].number, 0) if self._parts else (self._next, 0)

    @property
    def last(self) -> Place:
        """Behind everything that is in it."""
        return (self._parts[-1].number, self._parts[-1].size) if self._parts else (self._next, 0)

    def place_of(self, seq: int) -> Place:
        """A place before the record with this sequence number."""
        return next(((part.number, 0) for part in self._parts if part.last >= seq), self.last)

    def read(self, place: Place) -> Iterator[tuple[Record, Place]]:
        """The records from there on, each with the place behind it."""
        place = max(place, self.start)
        while self._parts and place < self.last:
            number, offset = place
            part = self._parts[number - self._parts[0].number]
            if offset >= part.size:
                place = number + 1, 0
                continue
            header = part.segment.read(offset, _HEADER)
            length = int.from_bytes(header[:_LENGTH])
            raw = part.segment.read(offset + _HEADER, length)
            if len(header) < _HEADER or len(raw) < length or crc32(raw).to_bytes(_LENGTH) != header[_LENGTH:]:
                logger.error("what brokers that are cut off have missed is damaged in segment %d", number)
                self.damaged += 1
                place = number + 1, 0  # where the next one begins is not known
                continue
            place = number, offset + _HEADER + length
            yield _decode(raw), place
