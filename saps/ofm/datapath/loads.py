"""What goes along one tree: publications wait, are joined or split into datagrams, and are acknowledged by members."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from saps.overlay.delivery.pending import Pending
from saps.overlay.delivery.publications import give, properties_of, select
from saps.overlay.frames.delivery import Publish
from saps.overlay.ring.keys import BrokerRef

NUMBERED = 16
"""Bytes of a publication's number and of the length of its payload in a datagram, and its part in the lengths of the
lists that have these; at most."""
MOST_BYTES, MOST = 1 << 20, 1024
"""Bytes and publications that may wait for a tree; above it ALM carries them. More evens out longer bursts; but members
to whom some of it has come late must hold all that is behind (`saps.overlay.delivery.order.HELD`)."""

_encode = msgspec.msgpack.Encoder().encode


class Unacknowledged:
    """A frame of publications with QoS 1 or 2 that some of the members served have not acknowledged."""

    __slots__ = ("again", "last", "pending", "sent", "waiting")

    def __init__(self, pending: Pending, members: tuple[BrokerRef, ...], sent: float) -> None:
        self.pending = pending
        self.last = pending.body.seqs[-1]
        """Number of its last publication."""
        self.waiting = dict.fromkeys(members)
        self.sent = sent
        """When the last of it left; infinite while some of it waits."""
        self.again = False
        """It has been sent once more."""


class Load(msgspec.Struct):
    """Publications of one origin to the path's topic that go to the same members."""

    body: Publish
    weights: list[int]
    """Bytes of each in a datagram, at most."""
    size: int
    """Their sum."""
    members: tuple[BrokerRef, ...]
    origin: BrokerRef | None
    """One in another domain that this broker stands for; None: this broker."""
    unacknowledged: Unacknowledged | None = None


class Waiting:
    """What waits for its turn on a tree, the oldest first."""

    def __init__(self) -> None:
        self._loads: deque[Load] = deque()
        self.size = 0
        """Bytes."""
        self.count = 0
        """Publications."""

    def __bool__(self) -> bool:
        return bool(self._loads)

    @property
    def first(self) -> Load:
        """The oldest. Something must wait."""
        return self._loads[0]

    def add(self, load: Load) -> None:
        """Wait behind the others."""
        self._loads.append(load)
        self._count(load, 1)

    def has_room(self, load: Load) -> bool:
        """May it wait as well?"""
        return self.size + load.size <= MOST_BYTES and self.count + len(load.weights) <= MOST

    def take(self, room: int) -> list[Load]:
        """The oldest, and those behind it that go with it in one datagram with so many bytes for publications."""
        taken = [self._pop()]
        used = taken[0].size
        while self._loads:
            used += self._loads[0].size
            if used > room or not _follows(self._loads[0], taken[-1]):
                break
            taken.append(self._pop())
        return taken

    def put_back(self, loads: Sequence[Load]) -> None:
        """These could not be sent after all."""
        for load in reversed(loads):
            self._loads.appendleft(load)
            self._count(load, 1)

    def clear(self) -> list[Load]:
        """Gives all of it; nothing waits any more."""
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
    """May the one go in a datagram right behind the other? With a gap between them a member could not tell what it has
    missed."""
    one, other = load.body, before.body
    return (
        (one.qos, one.retain, load.origin) == (other.qos, other.retain, before.origin)
        and load.members == before.members
        and one.parts[0].prev == other.seqs[-1]
    )


def weights(body: Publish) -> list[int]:
    """Bytes of each publication in a datagram, at most."""
    found = [len(payload) + NUMBERED for payload in body.payloads]
    for index, properties in enumerate(properties_of(body) or ()):
        found[index] += 1 if properties is None else len(_encode(properties))
    return found


def joined(bodies: Sequence[Publish]) -> Publish:
    """One body of several that follow each other; the very same if it is one."""
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
    """The publications of a body in as few parts as have at most so many bytes each, or a single publication."""
    begin, used = 0, weights[0]
    for index in range(1, len(weights)):
        used += weights[index]
        if used > room:
            yield select(body, range(begin, index))
            begin, used = index, weights[index]
    yield select(body, range(begin, len(weights)))
