"""Delivered sequence numbers of one origin's publications to one topic, and checks against forged numbers.

A broker believes the publications that others pass on (docs/decisions/103). A forged sequence number far above the
origin's own would make all later publications of the origin look like duplicates. So each publication at or below the
last number is compared with the step by which that number was reached. If they contradict each other, the origin is
asked: it knows which numbers it has never assigned (docs/decisions/012).
"""

from __future__ import annotations

STILL = 5.0
"""Seconds for which the numbers may grow and all look like duplicates, without a delivery, before they raise doubt.
Must exceed the time that the repeats after a link failure take, because each broker in doubt asks the origin."""


class Numbers:
    """The last sequence number delivered, and the step that led to it."""

    __slots__ = ("entered", "last", "left", "stale", "stale_below", "stale_since")

    def __init__(self) -> None:
        self.last = 0
        """Sequence number of the last publication that was delivered or given up."""
        self.left = 0
        self.entered = 0
        """The last step by a delivery, from `left` to `entered`. The publisher of `entered` named its predecessor, so
        no publication to the topic lies between the two, and none between them has been delivered."""
        self.stale = 0
        """The latest number received that was not above `last`."""
        self.stale_below = 0
        """The value of `last` at that time."""
        self.stale_since = 0.0
        """When the first number not above this `last` came, in seconds of the port's clock."""

    def contradicts(self, seq: int) -> bool:
        """Return whether this number contradicts the last step: one of the two publications must be forged."""
        return self.left < seq < self.entered

    def stuck(self, seq: int, now: float) -> bool:
        """Record a number not above `last`. Returns whether such numbers have kept coming and growing for `STILL`
        seconds, which repeats after a fault do not."""
        if self.stale_below != self.last:
            self.stale_below, self.stale, self.stale_since = self.last, seq, now
            return False
        before, self.stale = self.stale, seq
        return seq > before and now - self.stale_since >= STILL

    def confirm(self, seq: int) -> None:
        """Record that the origin confirmed this number as its own."""
        if self.entered <= seq:
            self.left = self.entered = 0
        self.stale_below = 0

    def go_back(self, given: int) -> None:
        """Take back forged numbers: the origin has assigned none above `given`.

        If the step to the forged number is known, `last` becomes the delivery before it. Otherwise `last` becomes
        `given`, as nothing tells which numbers up to it were delivered.
        """
        self.last = self.left if self.left <= given < self.entered else min(given, self.last)
        self.left = self.entered = 0
