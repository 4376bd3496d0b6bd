"""The numbers by which one origin's publications to one topic are delivered, and the doubt about the last of them.

What a broker passes on in the name of others is believed (docs/decisions/103). But a number that somebody has made up,
far ahead of the origin's own, would have all that the origin publishes from then on count as delivered long ago. So a
publication that comes behind the last number is held against the way that number was reached; where the two do not fit
the origin is asked, which knows what it has never given (docs/decisions/012).
"""

from __future__ import annotations

STILL = 5.0
"""Seconds after which numbers that grow, and all count as delivered, with no delivery between them, are doubted. Must
exceed what is repeated in one go when a link breaks: each broker that doubts asks the origin."""


class Numbers:
    """How far the deliveries have come, and by which last step."""

    __slots__ = ("entered", "last", "left", "stale", "stale_below", "stale_since")

    def __init__(self) -> None:
        self.last = 0
        """Number of the last publication delivered (or given up)."""
        self.left = 0
        self.entered = 0
        """The last step by a delivery: from which number to which. Whoever published the second one has said that
        there is none to the topic between them; so nothing between them has been delivered."""
        self.stale = 0
        """The latest number that has come although it was not above `last`."""
        self.stale_below = 0
        """What `last` was then."""
        self.stale_since = 0.0
        """When the first such one came."""

    def contradicts(self, seq: int) -> bool:
        """Can this publication not exist, if what has been delivered does?"""
        return self.left < seq < self.entered

    def stuck(self, seq: int, now: float) -> bool:
        """A number up to `last` has come. Do they come and grow for `STILL` seconds, as those that are repeated after a
        fault do not?"""
        if self.stale_below != self.last:
            self.stale_below, self.stale, self.stale_since = self.last, seq, now
            return False
        before, self.stale = self.stale, seq
        return seq > before and now - self.stale_since >= STILL

    def confirm(self, seq: int) -> None:
        """The origin has given this number."""
        if self.entered <= seq:
            self.left = self.entered = 0
        self.stale_below = 0

    def go_back(self, given: int) -> None:
        """The origin has given no number above this one, so the last ones were not its own. Where the step to them is
        known, so is the last delivery before it; else what came meanwhile is not told from what was delivered."""
        self.last = self.left if self.left <= given < self.entered else min(given, self.last)
        self.left = self.entered = 0
