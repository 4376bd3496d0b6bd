"""The load of one tree: publications wait, are joined or split into datagrams, and are acknowledged by members."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate

import msgspec

from saps.overlay.delivery.pending import Pending
from saps.overlay.delivery.publications import give, properties_of
from saps.overlay.frames.delivery import Part, Publish
from saps.overlay.ring.keys import BrokerRef

NUMBERED = 16
"""Most bytes that a publication adds to a datagram besides payload and properties: its number, the length of its
payload, and its share in the lengths of the lists."""
MOST_BYTES, MOST = 1 << 20, 1024
"""Most bytes and publications that may wait for a tree; above that ALM carries them. Larger limits even out longer
bursts. But a member that gets some of it late must hold all that follows (`saps.overlay.delivery.order.HELD`)."""

_encode = msgspec.msgpack.Encoder().encode


class Unacknowledged:
    """A frame of publications with QoS 1 or 2 that some of the members served have not acknowledged."""

    __slots__ = ("again", "last", "pending", "sent", "waiting")

    def __init__(self, pending: Pending, members: tuple[BrokerRef, ...], sent: float) -> None:
        self.pending = pending
        self.last = pending.body.seqs[-1]
        """Sequence number of the frame's last publication."""
        self.waiting = dict.fromkeys(members)
        self.sent = sent
        """Time at which the last of the frame left; infinite while some of it waits."""
        self.again = False
        """Whether the frame has been sent once more."""


class Load(msgspec.Struct):
    """Publications of one origin to the path's topic that go to the same members."""

    body: Publish
    weights: list[int]
    """Most bytes of each publication in a datagram."""
    size: int
    """Sum of `weights`."""
    members: tuple[BrokerRef, ...]
    origin: BrokerRef | None
    """An origin in another domain that this broker represents. None for this broker."""
    unacknowledged: Unacknowledged | None = None


class Waiting:
    """The queue of loads for a tree, the oldest first."""

    def __init__(self) -> None:
        self._loads: deque[Load] = deque()
        self.size = 0
        """Bytes in the queue."""
        self.count = 0
        """Publications in the queue."""

    def __bool__(self) -> bool:
        return bool(self._loads)

    @property
    def first(self) -> Load:
        """The oldest load. The queue must not be empty."""
        return self._loads[0]

    def add(self, load: Load) -> None:
        """Append a load to the queue."""
        self._loads.append(load)
        self._count(load, 1)

    def has_room(self, load: Load) -> bool:
        """Return whether the queue has room for the load."""
        return self.size + load.size <= MOST_BYTES and self.count + len(load.weights) <= MOST

    def bodies(self, member: BrokerRef) -> list[Publish]:
        """Return this broker's own publications that wait to be sent to a member."""
        return [load.body for load in self._loads if load.origin is None and member in load.members]

    def take(self, room: int) -> list[Load]:
        """Remove and return the oldest load and those behind it that fit with it into one datagram. `room` is the
        datagram's bytes for publications."""
        taken = [self._pop()]
        used = taken[0].size
        while self._loads:
            used += self._loads[0].size
            if used > room or not _follows(self._loads[0], taken[-1]):
                break
            taken.append(self._pop())
        return taken

    def put_back(self, loads: Sequence[Load]) -> None:
        """Put loads that could not be sent back to the front."""
        for load in reversed(loads):
            self._loads.appendleft(load)
            self._count(load, 1)

    def clear(self) -> list[Load]:
        """Remove and return all loads."""
        loads, self._loads, self.size, self.count = list(self._loads), deque(), 0, 0
        return loads

    def _pop(self) -> Load:
        load = self._loads.popleft()
        self._count(load, -1)
        return load

    def _count(self, load: Load, sign: int) -> None:
        self.size += sign * load.size
        self.count += sign * len(load.weights)


def _follows(load: Load, before: Load) -> bool:
    """Return whether a load may follow another one in a datagram. With a gap between them a member could not tell what
    it has missed."""
    one, other = load.body, before.body
    return (
        (one.qos, one.retain, load.origin) == (other.qos, other.retain, before.origin)
        and load.members == before.members
        and one.parts[0].prev == other.seqs[-1]
    )


def weights(body: Publish) -> list[int]:
    """Return the most bytes that each publication takes in a datagram."""
    found = [len(payload) + NUMBERED for payload in body.payloads]
    for index, properties in enumerate(properties_of(body) or ()):
        found[index] += 1 if properties is None else len(_encode(properties))
    return found


def joined(bodies: Sequence[Publish]) -> Publish:
    """Return one body of several consecutive ones. A single body is returned itself."""
    first = bodies[0]
    if len(bodies) == 1:
        return first
    whole = Publish(0, 0, 0, first.qos, first.retain, first.parts, [], [], [], [], [])
    given, places = any(body.given for body in bodies), dict[int, int]()
    for body in bodies:
        whole.which += body.which
        whole.seqs += body.seqs
        whole.payloads += body.payloads
        if given:
            give(whole, properties_of(body) or [None] * len(body.which), places)
    return whole


def split(body: Publish, weights: Sequence[int], room: int) -> Iterator[Publish]:
    """Yield the publications of a body to one topic in as few parts as possible. Each part has at most `room` bytes, or
    a single publication."""
    (topic,) = body.parts
    ends, properties = list(accumulate(weights)), properties_of(body)
    begin, prev = 0, topic.prev
    while begin < len(ends):
        end = max(begin + 1, bisect_right(ends, room + (ends[begin - 1] if begin else 0), begin))
        cut = slice(begin, end)
        parts, seqs = [Part(topic.topic, prev)], body.seqs[cut]
        part = Publish(0, 0, 0, body.qos, body.retain, parts, body.which[cut], seqs, body.payloads[cut], [], [])
        if properties is not None:
            give(part, properties[cut], {})
        yield part
        begin, prev = end, seqs[-1]
