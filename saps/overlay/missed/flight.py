"""Frames under way to a broker that catches up, and how many there may be.

They give way to other traffic (LEDBAT, RFC 6817): more may be under way while answers come as fast as ever, fewer once
they take longer, as the frames queue at a link or at the broker.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from saps.overlay.frames.delivery import MadeUp
from saps.overlay.missed.log import Place

TARGET = 0.01
"""Seconds for which a frame may queue (RFC 6817, 2.5)."""
LEAST, MOST = 4, 64
"""Fewest and most unanswered frames."""


class Sent(NamedTuple):
    """A frame under way."""

    frame: MadeUp
    place: Place
    """`Lag.place` once it is answered."""
    passed: int
    """`Lag.answered` once it is answered."""
    at: float
    """When it was sent, in seconds of the port's clock."""


class Flight:
    """The frames under way to one broker."""

    def __init__(self, now: float = 0.0) -> None:
        self.progress = now
        """When the broker was asked, was sent a frame after a pause, or answered, in seconds of the port's clock."""
        self.frames: deque[Sent] = deque()
        """The unanswered frames, oldest first."""
        self.live: dict[str, int] = {}
        """By topic: the last publication read from the log that was sent to the broker directly, and may be on its way;
        it must not be overtaken."""
        self.room: float = LEAST
        """How many there may be."""
        self.answers: list[tuple[float, int]] = []
        """When the broker answered, in seconds of the port's clock, and up to which publication it then had all."""
        self.before = 0
        """Number before the first publication that went to the broker live, and may be lost when it is lost again."""
        self._fastest = math.inf
        """Seconds in which the fastest answer has come."""

    @property
    def full(self) -> bool:
        """Return whether no more frames may leave now."""
        return len(self.frames) >= self.room

    @property
    def topics(self) -> set[str]:
        """The topics of the frames under way; they may be live again."""
        return {part.topic for sent in self.frames for body in sent.frame.bodies for part in body.parts}

    def answered(self, serial: int, now: float) -> Iterator[Sent]:
        """Remove and yield the frames up to a serial number, which are answered now."""
        while self.frames and self.frames[0].frame.serial <= serial:
            sent = self.frames.popleft()
            delay = now - sent.at
            self._fastest = min(self._fastest, delay)
            off_target = 1 - (delay - self._fastest) / TARGET
            self.room = min(MOST, max(LEAST, self.room + off_target / self.room))  # RFC 6817, 2.4.2, with GAIN 1
            yield sent
