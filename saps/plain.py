"""Plain publications: what a busy publisher sends, cut into packets with few steps for each.

A publication is plain if it is a PUBLISH of QoS 0 or 1, not retained, not a duplicate, and without properties (MQTT
3.1.1 and 5.0, section 3.3). A run is to one topic; a stretch is to any. Those of QoS 0 also cross from broker to broker
as the packets they came as (`Encoded`), which is why this belongs neither to the frontend nor to the overlay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, groupby, repeat
from operator import add, ge, sub
from typing import Generic, NamedTuple, TypeVar

from saps.messages import MessageRun

V5 = 5
"""The protocol level of MQTT 5.0, whose packets have a field for properties; those before have none."""

Known = TypeVar("Known")
Kept = TypeVar("Kept")

SHORT = 129
"""Bytes of the longest packet whose remaining length has one byte."""
LONGEST = (1 << 14) - 1
"""The longest remaining length of two bytes; packets that have more are none of these."""

LONGEST_STRETCH = 256
"""Publications that a stretch is cut for before a run is looked for again."""

MOST_TOGETHER = 512
"""Publications that cross in one piece: no frame between brokers has more. More would save nothing; fewer let the first
of them arrive sooner."""


class First(NamedTuple):
    """The first packet of a run: where its topic field is."""

    topic: int
    """Where the topic field begins (its length, in two bytes)."""
    end: int
    """Where the topic field ends."""


def first_packet(data: bytes, pos: int) -> First | None:
    """The PUBLISH at `pos`, if its header and its topic are there and its remaining length has at most two bytes."""
    size = len(data)
    if pos + 5 > size:
        return None
    topic = pos + 2 if data[pos + 1] < 0x80 else pos + 3
    end = topic + 2 + (data[topic] << 8 | data[topic + 1])
    return First(topic, end) if end <= size else None


def packet_end(data: bytes, pos: int) -> int:
    """Where the packet at `pos` ends, perhaps behind what has come; 0 if its remaining length does not tell in the next
    two bytes."""
    if pos + 3 > len(data):
        return 0
    length = data[pos + 1]
    if length < 0x80:
        return pos + 2 + length
    high = data[pos + 2]
    return pos + 3 + (high << 7) + length - 0x80 if 0 < high < 0x80 else 0


def lone_publication(data: bytes, version: int) -> int:
    """Where the topic field ends, if the data is one plain publication from its first to its last byte; else 0.

    The first byte of the data is that of a plain publication.
    """
    size = len(data)
    if size < 5:
        return 0
    length, topic = data[1], 2
    if length > 0x7F:
        high = data[2]
        if not 0 < high < 0x80:
            return 0
        length += (high << 7) - 0x80
        topic = 3
    end = topic + 2 + (data[topic] << 8 | data[topic + 1])
    if topic + length != size or end + (data[0] & 0x02) > size:
        return 0
    return end if plain_behind(data, end, version) else 0


def plain_behind(data: bytes, end: int, version: int) -> bool:
    """Behind the topic field, which ends at `end`, there are no properties, and with QoS 1 a packet identifier other
    than 0, for which there is room."""
    if data[0] & 0x02:
        if not (data[end] or data[end + 1]):
            return False
        end += 2
    return version != V5 or data[end : end + 1] == b"\0"


def plain_run(data: bytes, pos: int, first: First, version: int, limit: int) -> list[int]:
    """Where the plain publications from `pos` on end that have the first byte and the topic of the first packet.

    Empty if already the first is not plain, not complete, or larger than `limit` bytes. Packets of QoS 1 have a packet
    identifier other than 0.
    """
    size, kind = len(data), data[pos]
    numbered, bare = kind == 0x32, version == V5
    field = data[first.topic : first.end]
    named = len(field)
    ahead = named + 2 * numbered + bare  # from the topic field to the payload
    head = first.topic - pos + ahead
    sizes = None if numbered or limit < LONGEST + 3 else _sizes(data[first.topic : first.topic + ahead])
    last = size - 5
    ends: list[int] = []
    while pos <= last and data[pos] == kind:
        length, body = data[pos + 1], pos + 2
        if length > 0x7F:
            high = data[body]
            if not 0 < high < 0x80:
                break
            length += (high << 7) - 0x80
            body += 1
        end = body + length
        if end > size or length < ahead or end - pos > limit or not data.startswith(field, body):
            break
        if bare and data[body + ahead - 1]:  # it has properties
            break
        if numbered and not (data[body + named] or data[body + named + 1]):
            break
        ends.append(end)
        if sizes is not None:
            if body + ahead - pos == head:
                sizes.learn(data[pos : pos + head], end - pos)
            while (more := end + sizes[data[end : end + head]]) <= size:  # it begins as one that was looked at
                ends.append(more)
                end = more
        pos = end
    return ends


class _Sizes(dict[bytes, int]):
    """By how plain publications of QoS 0 to one topic begin, up to the payload: how long they are."""

    def __missing__(self, start: bytes) -> int:
        return _BEYOND

    def learn(self, start: bytes, size: int) -> None:
        """One that begins so has been looked at."""
        if len(self) >= _MOST_SIZES:
            self.clear()
        self[start] = size


class _Starts(dict[int, bytes]):
    """By their size: how plain publications of QoS 0 begin, up to the topic field."""

    def __missing__(self, size: int) -> bytes:
        if size <= SHORT:
            start = bytes((0x30, max(0, size - 2)))
        elif SHORT + 1 < size <= LONGEST + 3:
            start = bytes((0x30, (size - 3) & 0x7F | 0x80, (size - 3) >> 7))
        else:
            start = b"\xff"  # as no publication does
        self[size] = start
        return start


_STARTS = _Starts()
"""Sizes are of two bytes, so this has an end."""


class _Heads(dict[int, bytes]):
    """By their size: how plain publications of QoS 0 to one topic begin, up to the payload. `field` is what of that is
    behind the remaining length."""

    def __init__(self, field: bytes) -> None:
        super().__init__()
        self.field = field

    def __missing__(self, size: int) -> bytes:
        if len(self) >= _MOST_SIZES:
            self.clear()
        head = self[size] = _STARTS[size] + self.field
        return head


_BEYOND = 1 << 30
"""The size of what has not been looked at: more than any input has."""
_MOST_TOPICS, _LONGEST_FIELD, _MOST_SIZES = 512, 128, 128
"""Of how many topics the sizes and heads are kept at hand, with fields of so many bytes at most; how many of each."""


def _kept(make: Callable[[bytes], Kept]) -> Callable[[bytes], Kept]:
    """`make`, of what stands between remaining length and payload, with what it made for the last topics."""
    keep = lru_cache(maxsize=_MOST_TOPICS)(make)
    return lambda field: keep(field) if len(field) <= _LONGEST_FIELD else make(field)


_sizes = _kept(lambda field: _Sizes())
_heads = _kept(_Heads)


def plain_payloads(data: bytes, pos: int, ahead: int, ends: list[int]) -> list[bytes]:
    """The payloads of the publications from `pos` on that end there. So many bytes are `ahead` of each, from its topic
    field on."""
    short, long = ahead + 2, ahead + 3  # the remaining length of a packet above 129 bytes has two
    return [
        data[start + (long if end - start > SHORT else short) : end]
        for start, end in zip([pos, *ends], ends, strict=False)
    ]


class Stretch(NamedTuple, Generic[Known]):
    """Plain publications of one quality of service that follow each other: of each, in three lists as long."""

    known: list[Known]
    """What is known of its topic."""
    payloads: list[int]
    """Where its payload begins."""
    ends: list[int]
    """Where it ends, and the next one begins."""


def plain_stretch(
    data: bytes, pos: int, version: int, limit: int, look_up: Callable[[bytes], Known | None]
) -> Stretch[Known]:
    """The plain publications from `pos` on that have the first byte of the first, whatever their topics, as long as
    `look_up` knows them.

    Empty if already the first is not plain, not complete, larger than `limit` bytes, or to an unknown topic.
    """
    size, kind = len(data), data[pos]
    numbered, bare = kind == 0x32, version == V5
    ahead = 2 * numbered + bare  # from the topic to the payload
    last = size - 5
    found: list[Known] = []
    payloads: list[int] = []
    ends: list[int] = []
    while pos <= last and data[pos] == kind and len(ends) < LONGEST_STRETCH:
        length, topic = data[pos + 1], pos + 4
        if length > 0x7F:
            high = data[pos + 2]
            if not 0 < high < 0x80:
                break
            length += (high << 7) - 0x80
            topic += 1
        end = topic - 2 + length
        behind = topic + (data[topic - 2] << 8 | data[topic - 1])
        payload = behind + ahead
        if end > size or payload > end or end - pos > limit:
            break
        if bare and data[payload - 1]:  # it has properties
            break
        if numbered and not (data[behind] or data[behind + 1]):
            break
        known = look_up(data[topic:behind])
        if known is None:
            break
        found.append(known)
        payloads.append(payload)
        ends.append(end)
        pos = end
    return Stretch(found, payloads, ends)


class Encoded:
    """Plain publications of QoS 0 that follow each other, to one topic or several, as the packets they came as."""

    __slots__ = ("counts", "ends", "packets", "topics", "version", "which")

    def __init__(
        self, version: int, packets: bytes, topics: list[str], ends: list[int], which: Sequence[int] | None = None
    ) -> None:
        self.version = version
        """The protocol level whose packets these are."""
        self.packets = packets
        self.topics = topics
        """Each once."""
        self.ends = ends
        """Where in the packets each publication ends."""
        self.which = which if len(topics) > 1 else None
        """Of each publication the number of its topic; None if there is but one."""
        self.counts = [len(ends)] if self.which is None else _added(len(topics), self.which, repeat(1))
        """How many publications each topic has."""

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def sizes(self) -> list[int]:
        """Bytes of each packet."""
        return list(map(sub, self.ends, [0, *self.ends]))

    @property
    def bytes_by_topic(self) -> list[int]:
        """Bytes of the packets to each topic."""
        return [len(self.packets)] if self.which is None else _added(len(self.topics), self.which, self.sizes)

    def runs(self) -> list[MessageRun]:
        """The same, opened: those to one topic that follow each other are one."""
        aheads = [2 + len(topic.encode()) + (self.version == V5) for topic in self.topics]
        if self.which is None:
            return [MessageRun(self.topics[0], 0, plain_payloads(self.packets, 0, aheads[0], self.ends))]
        runs: list[MessageRun] = []
        begin = pos = 0
        for number, alike in groupby(self.which):
            ends = self.ends[begin : begin + len(list(alike))]
            runs.append(MessageRun(self.topics[number], 0, plain_payloads(self.packets, pos, aheads[number], ends)))
            begin, pos = begin + len(ends), ends[-1]
        return runs


def _added(size: int, which: Sequence[int], what: Iterable[int]) -> list[int]:
    sums = [0] * size
    for number, each in zip(which, what, strict=False):
        sums[number] += each
    return sums


def encoded(
    version: int, packets: bytes, topics: list[str], sizes: Sequence[int], which: Sequence[int]
) -> Encoded | None:
    """The publications of which somebody says that they are plain, of QoS 0, of these sizes, and which of the topics
    each is to; nothing if there is but one. None if they are not exactly that."""
    ends = list(accumulate(sizes))
    if not ends or ends[-1] != len(packets) or len(which) != (len(ends) if len(topics) > 1 else 0):
        return None
    if len(set(topics)) != len(topics) or (which and set(which) != set(range(len(topics)))):
        return None
    fields = [_field(topic) + b"\0" * (version == V5) for topic in topics]
    shortest = [len(field) + (2 if len(field) <= SHORT - 2 else 3) for field in fields]
    if which:
        heads = map(add, map(_STARTS.__getitem__, sizes), map(fields.__getitem__, which))
    else:
        heads = map(_heads(fields[0]).__getitem__, sizes)
    if not all(map(packets.startswith, heads, [0, *ends])):
        return None
    if min(sizes) < max(shortest) and not all(map(ge, sizes, map(shortest.__getitem__, which or repeat(0)))):
        return None  # packets that begin rightly, but in each other
    return Encoded(version, packets, topics, ends, which)


def _field(topic: str) -> bytes:
    name = topic.encode()
    return len(name).to_bytes(2) + name
