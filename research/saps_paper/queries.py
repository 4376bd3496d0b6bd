"""Figure 13 of the SAPS paper: queries to OFGate with EITHER and BOTH by its equations (section 4.2).

Counts from the running machines (`research.saps_paper.counted`) are handed to `queries` and stand beside them.
"""

from __future__ import annotations

from collections.abc import Mapping

from research.saps_paper.records import FEW, Queries

PUBLISHERS, PUBLISH_RATE = 10, 1.0
"""The paper's; its subscribers are `FEW`."""
RATES = tuple(i / 10 for i in range(11))
"""Joins and leaves of each subscriber per second; the scales of the paper's axes are not in its text."""

Counted = Mapping[tuple[str, float, float], float]
"""Queries per second that were counted, by method, join rate and leave rate."""


def either(publishers: int, publish_rate: float, subscribers: int, leave_rate: float, join_rate: float) -> float:
    """Eq. (1). Rates are per second, of each publisher and subscriber."""
    return publishers * publish_rate + subscribers * leave_rate + subscribers * join_rate


def both(subscribers: int, leave_rate: float) -> float:
    """Eq. (2)."""
    return subscribers * leave_rate


def queries(counted: Counted | None = None) -> list[Queries]:
    """The points of the figure."""
    seen = counted or {}
    found = []
    for join in RATES:
        for leave in RATES:
            asked = {"EITHER": either(PUBLISHERS, PUBLISH_RATE, FEW, leave, join), "BOTH": both(FEW, leave)}
            found += [
                Queries("13", method, join, leave, count, seen.get((method, join, leave)))
                for method, count in asked.items()
            ]
    return found
