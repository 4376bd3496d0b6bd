"""Latency statistics in constant memory. Pure; all times in seconds."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence

RESOLUTION = 1.02
"""Ratio of neighbouring buckets: a percentile is at most 2 % above the true value. Finer costs memory
(a few hundred buckets for 10 us ... 10 s)."""

SMALLEST = 1e-6
"""Anything faster is counted as this, in seconds."""

RECENT = 500
"""How many of the last latencies the live percentiles look at."""


def percentile(ordered: Sequence[float], percent: float) -> float | None:
    """The nearest-rank percentile: the smallest of the sorted values that `percent` % do not exceed, if any."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


class Latencies:
    """A histogram with logarithmic buckets over everything added, and the most recent values as they are."""

    __slots__ = ("_buckets", "count", "maximum", "recent")

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self.maximum = 0.0
        self.recent: deque[float] = deque(maxlen=RECENT)

    def add(self, seconds: float) -> None:
        """Count one latency; a negative one (a clock that stepped back) counts as the smallest."""
        self._buckets[math.ceil(math.log(max(seconds, SMALLEST) / SMALLEST, RESOLUTION))] += 1
        self.count += 1
        self.maximum = max(self.maximum, seconds)
        self.recent.append(seconds)

    def percentile(self, percent: float) -> float | None:
        """The nearest-rank percentile over everything, rounded up to its bucket's end; None if empty."""
        rank = max(1, math.ceil(self.count * percent / 100))
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank <= 0:
                return min(SMALLEST * RESOLUTION**bucket, max(self.maximum, SMALLEST))
        return None

    def absorb(self, other: Latencies) -> None:
        """Count all that the other one has counted, too."""
        self._buckets.update(other._buckets)
        self.count += other.count
        self.maximum = max(self.maximum, other.maximum)
        self.recent.extend(other.recent)
