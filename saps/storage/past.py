"""The publications that a session has had, by number. Many fit into little memory: one to three bytes each.

They are packed `TOGETHER` at a time, and stay so on their way to disks and other brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from typing import Annotated

import msgspec
from msgspec import Meta

from saps.routing.batch import Origin

RECENT = 4096
"""Most publications that a session remembers of those that are over. So copies that another broker kept for the session
are not delivered twice."""
RECENT_IN_CUT = 1 << 15
"""The same while other brokers are lost, and soon after: one of them may have gone on with the session for long."""
TOGETHER = 256
"""Number of origins in a row that are packed together. Across these their order is kept: a session forgets the oldest
first."""

LAST = (1 << 63) - 1
"""Greatest sequence number."""

Incarnation = tuple[str, int]
_Number = Annotated[int, Meta(ge=0, le=LAST)]
_Groups = list[tuple[str, _Number, Annotated[list[_Number], Meta(min_length=1)]]]
"""Origins of publications: broker, incarnation, and sequence numbers, each as the difference to the one before."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Groups).decode


def pack(origins: Iterable[Origin]) -> list[bytes]:
    """Return the origins packed, `TOGETHER` in each."""
    every = [*origins]
    return [_pack(every[begin : begin + TOGETHER]) for begin in range(0, len(every), TOGETHER)]


def _pack(origins: Iterable[Origin]) -> bytes:
    incarnations: dict[Incarnation, list[int]] = {}
    for broker, incarnation, seq in origins:
        incarnations.setdefault((broker, incarnation), []).append(seq)
    groups: _Groups = []
    for (broker, incarnation), seqs in incarnations.items():
        seqs.sort()
        groups.append((broker, incarnation, [seqs[0], *(later - seq for seq, later in pairwise(seqs))]))
    return _encode(groups)


def unpack(packed: Iterable[bytes]) -> list[Origin]:
    """Return the origins in what `pack` has made. Raises `ValueError` for anything else."""
    groups = (group for each in packed for group in _groups(each))
    return [Origin(broker, incarnation, seq) for broker, incarnation, steps in groups for seq in accumulate(steps)]


def _groups(packed: bytes) -> _Groups:
    try:
        return _decode(packed)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"publications of before: {error}") from None


def _count(packed: bytes) -> int:
    return sum(len(steps) for _, _, steps in _groups(packed))


def check(packed: Iterable[bytes]) -> None:
    """Raise `ValueError` for anything but what `pack` has made."""
    for each in packed:
        if any(sum(steps) > LAST for _, _, steps in _groups(each)):
            raise ValueError("publications of before: a number is too large")


def past_fault(packed: Iterable[bytes]) -> str | None:
    """Return why this is not what `pack` has made, or None."""
    try:
        check(packed)
    except ValueError as error:
        return str(error)
    return None


def firsts(packed: Iterable[bytes]) -> dict[Incarnation, int]:
    """Return the number of the first publication of each incarnation."""
    found: dict[Incarnation, int] = {}
    for each in packed:
        for broker, incarnation, steps in _groups(each):
            key = broker, incarnation
            found[key] = min(steps[0], found.get(key, steps[0]))
    return found


class Asked:
    """Publications of which it is asked whether they are among others."""

    __slots__ = ("_seqs",)

    def __init__(self, origins: Iterable[Origin | None]) -> None:
        self._seqs: dict[Incarnation, set[int]] = {}
        for origin in origins:
            if origin is not None:
                self._seqs.setdefault(origin[:2], set()).add(origin.seq)

    def __contains__(self, origin: Origin) -> bool:
        return origin.seq in self._seqs.get(origin[:2], ())

    def among(self, packed: Iterable[bytes]) -> set[Origin]:
        """Return those that are in what `pack` has made."""
        found, bounds = set[Origin](), {each: (min(seqs), max(seqs)) for each, seqs in self._seqs.items()}
        for each in packed:
            for broker, incarnation, steps in _groups(each):
                key = broker, incarnation
                if key not in bounds:
                    continue
                low, high = bounds[key]
                if steps[0] <= high and sum(steps) >= low:
                    seqs = self._seqs[key].intersection(accumulate(steps))
                    found.update(Origin(broker, incarnation, seq) for seq in seqs)
        return found


class Recent:
    """The last publications, oldest first."""

    __slots__ = ("_count", "_loose", "_packed")

    def __init__(self) -> None:
        self._packed: list[tuple[bytes, int]] = []
        """Up to `TOGETHER` publications each, with their number."""
        self._loose: list[Origin] = []
        """The last ones."""
        self._count = 0
        """Number of those in `_packed`."""

    def __len__(self) -> int:
        return self._count + len(self._loose)

    def __iter__(self) -> Iterator[Origin]:
        yield from unpack(packed for packed, _ in self._packed)
        yield from self._loose

    @property
    def packed(self) -> list[bytes]:
        """All of them, as `pack` returns them."""
        return [*(packed for packed, _ in self._packed), *pack(self._loose)]

    def extend(self, origins: Iterable[Origin], most: int = RECENT) -> None:
        """Add publications, and forget the oldest: `most` stay, and fewer than `TOGETHER` more."""
        loose = self._loose
        loose.extend(origins)
        while len(loose) >= TOGETHER:
            self._add(_pack(loose[:TOGETHER]), TOGETHER)
            del loose[:TOGETHER]
        self._forget(most)

    def join(self, packed: Iterable[bytes], most: int = RECENT) -> None:
        """Add what `pack` has made, before the last ones of those here. Raises `ValueError` for anything else. What is
        packed by fewer than `TOGETHER` is packed together: else each move of a session would add to it."""
        added = [(each, _count(each)) for each in packed]
        every, self._packed, self._count = [*self._packed, *added], [], 0
        few = [each for each, count in every if count < TOGETHER]
        for each, count in every:
            if count >= TOGETHER:
                self._add(each, count)
        for each in pack(unpack(few)):
            self._add(each, _count(each))
        self._forget(most)

    def _add(self, packed: bytes, count: int) -> None:
        self._packed.append((packed, count))
        self._count += count

    def _forget(self, most: int) -> None:
        many = 0
        for _, count in self._packed:
            if self._count - count < most:
                break
            self._count -= count
            many += 1
        del self._packed[:many]


class Brought:
    """Publications that are looked up one at a time. They are unpacked when one may be among them."""

    __slots__ = ("_last", "_packed", "_seqs")

    def __init__(self) -> None:
        self._last: dict[Incarnation, int] = {}
        """The greatest number of each incarnation."""
        self._packed: list[bytes] = []
        self._seqs: dict[Incarnation, set[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._last)

    def __contains__(self, origin: Origin | None) -> bool:
        if origin is None or origin.seq > self._last.get(origin[:2], -1):
            return False
        if self._packed:
            packed, self._packed = self._packed, []
            self.add(unpack(packed))
        return origin.seq in self._seqs.get(origin[:2], ())

    def add(self, origins: Iterable[Origin]) -> None:
        """Add publications."""
        for origin in origins:
            key = origin[:2]
            self._seqs.setdefault(key, set()).add(origin.seq)
            self._last[key] = max(origin.seq, self._last.get(key, -1))

    def join(self, packed: Iterable[bytes]) -> None:
        """Add what `pack` has made."""
        for each in packed:
            self._packed.append(each)
            for broker, incarnation, steps in _groups(each):
                key = broker, incarnation
                self._last[key] = max(sum(steps), self._last.get(key, -1))

    def clear(self) -> None:
        """Forget all."""
        self._last.clear()
        self._packed.clear()
        self._seqs.clear()
