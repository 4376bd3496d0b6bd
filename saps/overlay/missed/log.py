"""The log of own publications of QoS 1 and 2, written from the moment at which a first broker is declared dead.

Brokers that were cut off get from the log what they were not sent (`saps.overlay.missed.catchup`; hinted handoff, as in
DeCandia et al., Dynamo, 2007, 4.6). One log serves all of them: a record names the brokers that it went to. The log
consists of segments; the oldest is dropped when the log is too large or the segment too old. The driver decides whether
a segment is in memory or in a file (`saps.storage.driver.missed`).

A later incarnation of this broker continues the files of the earlier one (`MissedLog.restore`). It continues the
sequence numbers as well, so that the whole log has one order.
"""

from __future__ import annotations

import logging
import math
from binascii import crc32
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from saps.marks import hit
from saps.overlay.frames.delivery import Publish
from saps.overlay.missed.absences import Absences
from saps.overlay.missed.published import Published
from saps.overlay.missed.segments import IN_MEMORY, InMemory, Segment, Spool
from saps.overlay.ring.keys import BrokerRef

logger = logging.getLogger(__name__)

SEGMENTS = 64
"""Segments of a full log; one segment is dropped at a time."""
LARGEST_SEGMENT = 4 << 20
"""Limit of a segment in bytes."""
TOPICS = 1 << 20
"""Most topics in a log; beyond it the oldest segment is dropped. Each costs about 150 bytes of memory."""
_LENGTH = 4
_HEADER = 8
"""Bytes before a record: its length and its CRC-32, each big-endian."""


class Fate(msgspec.Struct, array_like=True, tag=1):
    """Says that a broker is lost, or is not lost any more."""

    at: float
    """Time of the change, in seconds of this broker's clock."""
    broker: BrokerRef
    lost: bool
    before: list[Published] = []
    """`Doubts.before` of the broker (`saps.overlay.missed.lag`)."""
    doubts: dict[int, str] = {}
    """`Doubts.seqs` of the broker."""
    baselines: dict[str, int] = {}
    """`Lag.baselines` of the broker."""
    heard: float = -math.inf
    """When an earlier incarnation of the broker was over, in seconds of this broker's clock: the lost one has missed
    nothing from before. -inf: none is known of."""
    taken: int = 0
    """`Lag.taken` of the broker."""
    away: bool = True
    """Whether the broker cannot be heard; False: it is only behind."""

    def shift(self, seconds: float) -> None:
        """Count the times by a clock that is so much behind."""
        self.at += seconds
        self.heard += seconds
        self.before = [each._replace(at=each.at + seconds) for each in self.before]


class Served(msgspec.Struct, array_like=True, tag=4):
    """Says that a broker has got all that it had missed."""

    at: float
    """When it had, in seconds of this broker's clock."""
    broker: BrokerRef
    asked: float
    """When it was asked what it wants, in seconds of this broker's clock."""
    upto: int
    """Sequence number of the last publication before that."""
    before: int = 0
    """`Flight.before`"""

    def shift(self, seconds: float) -> None:
        """As `Fate.shift`."""
        self.at += seconds
        self.asked += seconds


class Head(msgspec.Struct, array_like=True, tag=2):
    """The first item of a segment."""

    incarnation: BrokerRef
    """The incarnation of this broker that made the publications in the segment."""
    epoch: float
    """Time of day at moment 0 of its clock, in seconds since the epoch."""
    last: int
    """Sequence number of its last publication before the segment."""
    fates: list[Fate]
    """All brokers that are lost when the segment begins."""
    boot: str = ""
    """Identifies the boot of the machine that the clock counts from; empty if unknown."""
    served: list[Served] = []
    """All brokers that had got everything when the segment begins."""


class Record(msgspec.Struct, array_like=True, tag=3):
    """Publications of one batch."""

    at: float
    """When the batch was published, in seconds of this broker's clock."""
    body: Publish
    """The publications, unaddressed."""
    sent: list[int]
    """For each part, the number of the set of members that it was sent to (`MissedLog.went_to`)."""
    groups: list[list[str]]
    """For each part, the shared subscriptions that took it; empty if none took any part."""
    names: list[tuple[int, list[BrokerRef]]] = []
    """The members of each number in `sent` that this segment uses for the first time."""


class _Part:
    """A segment with its index data."""

    __slots__ = ("at", "count", "earlier", "end", "last", "names", "number", "segment", "shift", "size")

    def __init__(self, number: int, segment: Segment, earlier: bool = False) -> None:
        self.number = number
        self.earlier = earlier
        """Whether an earlier incarnation has written the segment."""
        self.shift = 0.0
        """Seconds to add to times in the segment, to convert them to this broker's clock."""
        self.names: dict[int, int] = {}
        """The numbers of sets of members that are defined in the segment, mapped to their numbers in `_Sets`."""
        self.segment = segment
        self.size = 0
        """Valid bytes."""
        self.end = 0
        """Offset behind the last `Record`."""
        self.count = 0
        """Publications in the segment."""
        self.last = 0
        """The highest sequence number in the segment."""
        self.at = 0.0
        """When the last item was appended, in seconds of this broker's clock."""


Place = tuple[int, int]
"""A place in the log: number of the segment, and offset in bytes."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Fate | Head | Record | Served).decode


class _Sets:
    """Numbers the sets of members that publications went to. Streams share few sets, so a record stores a number."""

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
            self._members.append(members)  # keeps the object alive, so that its id is not used again
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
        """`segment` creates the segment with a number; it may raise `OSError`."""
        self.spool = Spool(segment)
        self.size = IN_MEMORY
        """Limit of the log in bytes."""
        self.age = 86400.0
        """Time for which a segment is kept, in seconds."""
        self.active = False
        """Whether publications are to be logged."""
        self.bytes = 0
        """Bytes in the log."""
        self.messages = 0
        """Publications in the log."""
        self.dropped = 0
        """Publications lost to a broker that still needed them: dropped for lack of room, or refused by the disk."""
        self.damaged = 0
        """Damaged places found in segments."""
        self.topics: dict[str, tuple[int, int]] = {}
        """By topic: the last sequence number in the log, and the number of the set of members that it was sent to."""
        self.first = 0
        """The lowest sequence number that can be in the log."""
        self.head: Callable[[], Head] = _nobody
        """Makes the head of the next segment."""
        self.incarnations: list[tuple[int, BrokerRef]] = []
        """Earlier incarnations of this broker with publications in the log, each after its last sequence number."""
        self._parts: deque[_Part] = deque()
        self._next = 0
        self._sets = _Sets()

    # ---- writing

    def begin(self, seq: int) -> None:
        """Begin to log, from the publication with this sequence number on."""
        self.active = True
        self.first = seq

    def append(
        self, at: float, body: Publish, members: Sequence[tuple[BrokerRef, ...]], groups: list[list[str]]
    ) -> None:
        """Log publications. `at` is the time in seconds of this broker's clock, `members` the receivers of each part,
        `groups` the shared subscriptions of each part. They wait in memory while the disk fails; without room there
        they count as dropped."""
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

    def tell(self, change: Fate | Served) -> None:
        """Log that a broker is lost, back or served, for a later incarnation of this broker."""
        try:
            self._put(self._open(change.at), change)
        except OSError as error:
            logger.error("brokers that are cut off cannot be noted: %s", error)

    def _open(self, now: float) -> _Part:
        """Return the segment to write to; begin a new one if the last is full. Raises `OSError`."""
        self.spool.write()
        part = self._parts[-1] if self._parts else None
        if part is None or part.earlier or part.size >= min(LARGEST_SEGMENT, self.size // SEGMENTS):
            part = _Part(self._next, self.spool.segment(self._next))
            part.at = now
            try:
                self._put(part, self.head())
            except OSError:
                part.segment.close()  # a later incarnation cannot use a segment without its head
                raise
            self._next += 1
            self._parts.append(part)
        return part

    def _put(self, part: _Part, item: Fate | Head | Record | Served) -> None:
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
        """Return the members in the set with this number (from `Record.sent` or `topics`)."""
        return self._sets[name]

    def incarnation_of(self, seq: int) -> BrokerRef | None:
        """Return the earlier incarnation of this broker that published this number, or None if this one did."""
        return next((incarnation for last, incarnation in self.incarnations if seq <= last), None)

    # ---- earlier incarnations

    @property
    def earlier(self) -> int:
        """Sequence number of the last publication of earlier incarnations, or 0."""
        return self.incarnations[-1][0] if self.incarnations else 0

    def restore(
        self, found: Iterable[tuple[int, Segment]], epoch: float, now: float, boot: str = ""
    ) -> tuple[list[Fate], list[Served], Absences]:
        """Continue the log of earlier incarnations with these numbered segments, in their order.

        `epoch` and `boot` are as in `Head`, for this incarnation; `now` is in seconds of its clock. A damaged segment
        is used up to the damage. Returns the brokers that are lost, those that were served, and the
        absences of all.
        """
        fates: dict[BrokerRef, Fate] = {}
        served: list[Served] = []
        absences = Absences()
        for number, segment in found:
            self._next = number + 1
            part = _Part(number, segment, earlier=True)
            try:
                self._restore(part, fates, served, absences, epoch, boot)
                whole = not segment.read(part.size, 1)
            except msgspec.MsgspecError:
                whole = False
            if not whole:  # damaged, or being written when that incarnation ended
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
        return lost, [each for each in served if each.at <= now], absences

    def _end_by(self, now: float) -> None:
        """Shift times that lie in the future back to `now`: the machine's clock may have been set meanwhile. Otherwise
        filters of today would match these publications."""
        for part in reversed(self._parts):
            ahead = part.at - now
            if ahead > 0:
                hit("log of a time to come")
                part.shift -= ahead
                part.at = now
            now = part.at

    def _restore(
        self,
        part: _Part,
        fates: dict[BrokerRef, Fate],
        served: list[Served],
        absences: Absences,
        epoch: float,
        boot: str,
    ) -> None:
        """Read a segment of an earlier incarnation, up to its end or its first damage, and collect its `fates`, who was
        `served`, and the `absences`. Raises `msgspec.MsgspecError` if an item is not valid."""
        for item, end in self._items(part, 0, whole=True):
            if isinstance(item, Head):
                same = boot and item.boot == boot  # the same monotonic clock, even if the time of day was set
                part.shift = part.at = 0.0 if same else item.epoch - epoch
                if not self.incarnations or self.incarnations[-1][1] != item.incarnation:
                    self.incarnations.append((item.last, item.incarnation))
                self.first = self.first or item.last + 1
                fates.clear()
                fates |= {fate.broker: fate for fate in item.fates}
                served[:] = item.served
                changes: list[Fate | Served] = [*item.fates, *item.served]
                for each in changes:
                    each.shift(part.shift)
                for fate in item.fates:
                    if fate.away:
                        absences.began(fate.broker, fate.at)
            elif part.size == 0:
                raise msgspec.ValidationError("it does not say whose it is")
            elif isinstance(item, Fate):
                fates[item.broker] = item
                item.shift(part.shift)
                absences.ended(item.broker, item.at)
                if item.lost:
                    absences.began(item.broker, item.at)
            elif isinstance(item, Served):
                served.append(item)
                item.shift(part.shift)
            else:
                self._count(part, item.at, item.body, item.sent)
            part.at = max(part.at, part.shift if isinstance(item, Head) else item.at)
            last, incarnation = self.incarnations[-1]
            self.incarnations[-1] = max(last, part.last, item.last if isinstance(item, Head) else 0), incarnation
            part.size = end
            part.end = end if isinstance(item, Record) else part.end

    def trim(self, now: float, needed: int | None) -> None:
        """Drop segments that are too old, or exceed the limits of bytes and topics. `needed` is the number of the first
        segment that a broker still needs, or None if none is needed. Writes what waits for the disk."""
        self.spool.write()
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
        """End the log and discard all segments, as no broker can need them."""
        self.active = False
        while self._parts:
            self._close(self._parts.popleft())
        self.topics.clear()
        self.incarnations.clear()
        self._sets.clear()

    def _close(self, part: _Part) -> None:
        part.segment.close()
        self.bytes -= part.size
        self.messages -= part.count

    # ---- reading

    @property
    def start(self) -> Place:
        """Start of the first segment, or of the next one while the log is empty."""
        return (self._parts[0].number, 0) if self._parts else (self._next, 0)

    @property
    def last(self) -> Place:
        """Place behind the last record."""
        behind = ((part.number, part.end) for part in reversed(self._parts) if part.end)
        return next(behind, self.start)

    def place_of(self, seq: int) -> Place:
        """Return a place at or before the record with this sequence number: the start of its segment."""
        return next(((part.number, 0) for part in self._parts if part.last >= seq), self.last)

    def read(self, place: Place) -> Iterator[tuple[Record, Place]]:
        """Yield the records from `place` on, each with the place behind it. Skips the rest of a damaged segment."""
        place = max(place, self.start)
        while self._parts and place < self.last:
            part = next(part for part in self._parts if part.number >= place[0])  # of a damaged one nothing may be left
            number, offset = part.number, place[1] if part.number == place[0] else 0
            for item, end in self._items(part, offset):
                place = number, end
                if isinstance(item, Record):
                    yield item, place
            if place < (number, part.size):
                logger.error("what brokers that are cut off have missed is damaged in segment %d", number)
                self.damaged += 1  # the start of the next record is unknown
            place = number + 1, 0

    def _items(
        self, part: _Part, offset: int, whole: bool = False
    ) -> Iterator[tuple[Fate | Head | Record | Served, int]]:
        """Yield the items of a segment from `offset` on, each with the offset behind it, up to the first damage. With
        `whole`, read to the end of the file instead of `part.size`. Raises `msgspec.MsgspecError` for an invalid
        item."""
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
