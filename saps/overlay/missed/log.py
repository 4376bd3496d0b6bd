"""The log of own publications of QoS 1 and 2, from the first moment on at which a broker is taken for dead.

Whoever was cut off gets from it what it was not sent (`saps.overlay.missed.catchup`; hinted handoff, as in DeCandia
et al., Dynamo, 2007, 4.6). One log serves all of them: a record says to which brokers it went. The log consists of
segments; the oldest goes when the log is too large or the segment too old. The driver decides whether a segment is in
memory or in a file (`saps.storage.driver.missed`).

A later life of this broker goes on with the files of the earlier one (`MissedLog.restore`): it numbers its publications
from there on, so that all that is in the log has one order.
"""

from __future__ import annotations

import logging
from binascii import crc32
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
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


class Fate(msgspec.Struct, array_like=True, tag=1):
    """A broker is lost, or is so no longer."""

    at: float
    """When, on this broker's clock."""
    broker: BrokerRef
    lost: bool
    before: list[Publish] = []
    """As in `saps.overlay.missed.lag.Doubts`, as the next."""
    doubts: dict[int, str] = {}
    baselines: dict[str, int] = {}
    """As in `saps.overlay.missed.lag.Lag`."""


class Head(msgspec.Struct, array_like=True, tag=2):
    """What a segment begins with."""

    life: BrokerRef
    """Of this broker: whose publications these are."""
    epoch: float
    """Seconds since the epoch at moment 0 of its clock."""
    last: int
    """The number of its last publication before."""
    fates: list[Fate]
    """All brokers that are lost."""
    boot: str = ""
    """Names the start of the machine that its clock counts from; empty: not known."""


class Record(msgspec.Struct, array_like=True, tag=3):
    """Publications that were numbered together."""

    at: float
    """When, on this broker's clock."""
    body: Publish
    """Without addresses."""
    sent: list[int]
    """Of each part the members it was sent to (`MissedLog.went_to`)."""
    groups: list[list[str]]
    """Of each part the shared subscriptions that took it; empty: none did."""
    names: list[tuple[int, list[BrokerRef]]] = []
    """Of numbers in `sent` that are used in this segment for the first time: whom they stand for."""


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

    __slots__ = ("at", "count", "earlier", "end", "last", "names", "number", "segment", "shift", "size")

    def __init__(self, number: int, segment: Segment, earlier: bool = False) -> None:
        self.number = number
        self.earlier = earlier
        """An earlier life has written it."""
        self.shift = 0.0
        """What is to be added to its times."""
        self.names: dict[int, int] = {}
        """The numbers of sets of members that are explained in it, and what they are now."""
        self.segment = segment
        self.size = 0
        self.end = 0
        """Behind the last `Record` in it."""
        self.count = 0
        """Publications."""
        self.last = 0
        """The highest sequence number in it."""
        self.at = 0.0
        """When the last one was appended."""


Place = tuple[int, int]
"""In the log: segment and offset."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Fate | Head | Record).decode


class _Sets:
    """Sets of members, by number: streams share few of them."""

    def __init__(self) -> None:
        self._members: list[tuple[BrokerRef, ...]] = []
        self._sets: list[frozenset[BrokerRef]] = []
        self._names: dict[int, int] = {}

    def __getitem__(self, number: int) -> frozenset[BrokerRef]:
        return self._sets[number]

    def number(self, members: tuple[BrokerRef, ...]) -> int:
        number = self._names.get(id(members))
        if number is None:
            number = self._names[id(members)] = len(self._members)
            self._members.append(members)  # which keeps its id from being used again
            self._sets.append(frozenset(members))
        return number

    def clear(self) -> None:
        self._members.clear()
        self._sets.clear()
        self._names.clear()


def _nobody() -> Head:
    return Head(BrokerRef("", 0, "", ""), 0.0, 0, [])


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
        self.head: Callable[[], Head] = _nobody
        """Makes what the next segment begins with."""
        self.lives: list[tuple[int, BrokerRef]] = []
        """Earlier lives of this broker whose publications are in it, each with the number of its last one."""
        self._parts: deque[_Part] = deque()
        self._next = 0
        self._sets = _Sets()

    # ---- writing

    def begin(self, seq: int) -> None:
        """Keep everything from the publication on that has this sequence number."""
        self.active = True
        self.first = seq

    def append(
        self, at: float, body: Publish, members: Sequence[tuple[BrokerRef, ...]], groups: list[list[str]]
    ) -> None:
        """Keep publications. `members`: of each part to whom they go."""
        sent = [self._sets.number(each) for each in members]
        try:
            part = self._open(at)
            fresh = [number for number in dict.fromkeys(sent) if number not in part.names]
            self._put(part, Record(at, body, sent, groups, [(number, [*self._sets[number]]) for number in fresh]))
        except OSError as error:
            if not self.dropped:
                logger.error("publications for brokers that are cut off cannot be kept: %s", error)
            self.dropped += len(body.which)
            return
        part.names |= {number: number for number in fresh}
        part.end = part.size
        self._count(part, at, body, sent)

    def tell(self, fate: Fate) -> None:
        """Keep what has become of a broker, for a later life of this one."""
        try:
            self._put(self._open(fate.at), fate)
        except OSError as error:
            logger.error("brokers that are cut off cannot be noted: %s", error)

    def _open(self, now: float) -> _Part:
        """The segment to write to. Raises `OSError`."""
        part = self._parts[-1] if self._parts else None
        if part is None or part.earlier or part.size >= min(LARGEST_SEGMENT, self.size // SEGMENTS):
            part = _Part(self._next, self.segment(self._next))
            part.at = now
            try:
                self._put(part, self.head())
            except OSError:
                part.segment.close()  # without its head a later life could not use it
                raise
            self._next += 1
            self._parts.append(part)
        return part

    def _put(self, part: _Part, item: Fate | Head | Record) -> None:
        raw = _encode(item)
        part.segment.append(len(raw).to_bytes(_LENGTH) + crc32(raw).to_bytes(_LENGTH) + raw)
        part.size += len(raw) + _HEADER
        self.bytes += len(raw) + _HEADER

    def _count(self, part: _Part, at: float, body: Publish, sent: list[int]) -> None:
        part.count += len(body.which)
        part.last, part.at = body.seqs[-1], at
        self.messages += len(body.which)
        for number, seq in zip(body.which, body.seqs, strict=True):
            self.topics[body.parts[number].topic] = seq, sent[number]

    def went_to(self, name: int) -> frozenset[BrokerRef]:
        """To whom a part was sent."""
        return self._sets[name]

    def life_of(self, seq: int) -> BrokerRef | None:
        """The earlier life of this broker whose publication has this number; None: it is one of this life."""
        return next((life for last, life in self.lives if seq <= last), None)

    # ---- an earlier life's

    @property
    def earlier(self) -> int:
        """The number of the last publication of earlier lives."""
        return self.lives[-1][0] if self.lives else 0

    def restore(self, found: Iterable[tuple[int, Segment]], epoch: float, now: float, boot: str = "") -> list[Fate]:
        """Go on with these segments, in their order. `epoch`, `boot`: as in `Head`, of this life. Returns who is
        lost."""
        fates: dict[BrokerRef, Fate] = {}
        for number, segment in found:
            self._next = number + 1
            part = _Part(number, segment, earlier=True)
            try:
                self._restore(part, fates, epoch, boot)
                whole = not segment.read(part.size, 1)
            except msgspec.MsgspecError:
                whole = False
            if not whole:  # or it was being written when that life ended
                logger.error(
                    "what brokers that are cut off have missed ends in segment %d with what is damaged", number
                )
                self.damaged += 1
            if part.size:
                self.bytes += part.size
                self._parts.append(part)
            else:
                segment.close()
        self.active = bool(self._parts)
        self._end_by(now)
        lost = [fate for fate in fates.values() if fate.lost]
        for fate in lost:
            fate.at = min(fate.at, now)
        return lost

    def _end_by(self, now: float) -> None:
        """Nothing was published in the future, wherever the machine's clock has been set meanwhile: no filter of today
        is to match it."""
        for part in reversed(self._parts):
            ahead = part.at - now
            if ahead > 0:
                hit("log of a time to come")
                part.shift -= ahead
                part.at = now
            now = part.at

    def _restore(self, part: _Part, fates: dict[BrokerRef, Fate], epoch: float, boot: str) -> None:
        """Raises `msgspec.MsgspecError`."""
        for item, end in self._items(part, 0, whole=True):
            if isinstance(item, Head):
                same = boot and item.boot == boot  # the same clock, whatever has become of the time of day
                part.shift = part.at = 0.0 if same else item.epoch - epoch
                if not self.lives or self.lives[-1][1] != item.life:
                    self.lives.append((item.last, item.life))
                self.first = self.first or item.last + 1
                fates.clear()
                fates |= {fate.broker: fate for fate in item.fates}
                for fate in item.fates:
                    fate.at += part.shift
            elif part.size == 0:
                raise msgspec.ValidationError("it does not say whose it is")
            elif isinstance(item, Fate):
                fates[item.broker] = item
                item.at += part.shift
            else:
                self._count(part, item.at, item.body, item.sent)
            part.at = max(part.at, part.shift if isinstance(item, Head) else item.at)
            last, life = self.lives[-1]
            self.lives[-1] = max(last, part.last, item.last if isinstance(item, Head) else 0), life
            part.size = end
            part.end = end if isinstance(item, Record) else part.end

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
            self.first = max(self.first, part.last + 1)
            self.topics = {topic: last for topic, last in self.topics.items() if last[0] > part.last}

    def end(self) -> None:
        """Nobody can want anything of it any more."""
        self.active = False
        while self._parts:
            self._close(self._parts.popleft())
        self.topics.clear()
        self.lives.clear()
        self._sets.clear()

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
        """Behind the last record in it."""
        behind = ((part.number, part.end) for part in reversed(self._parts) if part.end)
        return next(behind, self.start)

    def place_of(self, seq: int) -> Place:
        """A place before the record with this sequence number."""
        return next(((part.number, 0) for part in self._parts if part.last >= seq), self.last)

    def read(self, place: Place) -> Iterator[tuple[Record, Place]]:
        """The records from there on, each with the place behind it."""
        place = max(place, self.start)
        while self._parts and place < self.last:
            number, offset = place
            part = self._parts[number - self._parts[0].number]
            for item, end in self._items(part, offset):
                place = number, end
                if isinstance(item, Record):
                    yield item, place
            if place < (number, part.size):
                logger.error("what brokers that are cut off have missed is damaged in segment %d", number)
                self.damaged += 1  # where the next one begins is not known
            place = number + 1, 0

    def _items(self, part: _Part, offset: int, whole: bool = False) -> Iterator[tuple[Fate | Head | Record, int]]:
        """What is in a segment from there on, each with the place behind it, up to what is damaged; or (`whole`) to
        where the file ends."""
        while whole or offset < part.size:
            header = part.segment.read(offset, _HEADER)
            length = int.from_bytes(header[:_LENGTH])
            raw = part.segment.read(offset + _HEADER, length)
            if len(header) < _HEADER or len(raw) < length or crc32(raw).to_bytes(_LENGTH) != header[_LENGTH:]:
                return
            item, offset = _decode(raw), offset + _HEADER + length
            if isinstance(item, Record) and part.earlier:
                for number, members in item.names:
                    if number not in part.names:
                        part.names[number] = self._sets.number(tuple(members))
                if not part.names.keys() >= set(item.sent):
                    raise msgspec.ValidationError("it does not say to whom something was sent")
                item.sent = [part.names[number] for number in item.sent]
                item.at += part.shift
            yield item, offset
