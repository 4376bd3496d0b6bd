"""The publications that a session has had, by number. Many fit into little memory: one to three bytes each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise

import msgspec

from saps.routing.batch import Origin

RECENT = 4096
"""Most publications that a session remembers of those that are over. So copies that another broker kept for the session
are not delivered twice."""
RECENT_IN_CUT = 1 << 15
"""The same while other brokers are lost, and soon after: one of them may have gone on with the session for long."""
TOGETHER = 256
"""Number of origins in a row that are grouped. Across these their order is kept: a session forgets the oldest first."""

Grouped = list[tuple[str, int, list[int]]]
"""Origins of publications: broker, incarnation, and sequence numbers."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Grouped).decode


def grouped(origins: Iterable[Origin]) -> Grouped:
    """Return the origins, of `TOGETHER` in a row those of an incarnation together."""
    found, every = Grouped(), [*origins]
    for begin in range(0, len(every), TOGETHER):
        incarnations: dict[tuple[str, int], list[int]] = {}
        for broker, incarnation, seq in every[begin : begin + TOGETHER]:
            incarnations.setdefault((broker, incarnation), []).append(seq)
        found += [(*incarnation, seqs) for incarnation, seqs in incarnations.items()]
    return found


def origins_of(groups: Iterable[tuple[str, int, list[int]]]) -> list[Origin]:
    """Return the origins of which `grouped` has made these groups."""
    return [Origin(broker, incarnation, seq) for broker, incarnation, seqs in groups for seq in seqs]


def _pack(origins: Iterable[Origin]) -> bytes:
    """Return origins packed: each number as the difference to the one before."""
    groups = Grouped()
    for broker, incarnation, seqs in grouped(origins):
        seqs.sort()
        groups.append((broker, incarnation, [seqs[0], *(later - seq for seq, later in pairwise(seqs))]))
    return _encode(groups)


def _unpack(packed: bytes) -> list[Origin]:
    return origins_of((broker, incarnation, [*accumulate(steps)]) for broker, incarnation, steps in _decode(packed))


class Recent:
    """The last publications, oldest first."""

    __slots__ = ("_loose", "_packed")

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        """`TOGETHER` publications each."""
        self._loose: list[Origin] = []
        """The last ones."""

    def __len__(self) -> int:
        return len(self._packed) * TOGETHER + len(self._loose)

    def __iter__(self) -> Iterator[Origin]:
        for packed in self._packed:
            yield from _unpack(packed)
        yield from self._loose

    def extend(self, origins: Iterable[Origin], most: int = RECENT) -> None:
        """Add publications, and forget the oldest: `most` stay, and fewer than `TOGETHER` more."""
        loose = self._loose
        loose.extend(origins)
        while len(loose) >= TOGETHER:
            self._packed.append(_pack(loose[:TOGETHER]))
            del loose[:TOGETHER]
        del self._packed[: max(0, len(self._packed) - most // TOGETHER)]
