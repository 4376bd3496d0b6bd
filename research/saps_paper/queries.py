"""Computes Figure 13 of the SAPS paper: queries to OFGate with EITHER and BOTH by its equations (section 4.2).

`queries` puts the counts of the running state machines (`research.saps_paper.counted`) beside them.
"""

from __future__ import annotations

from collections.abc import Mapping

from research.saps_paper.records import FEW, Queries

PUBLISHERS, PUBLISH_RATE = 10, 1.0
"""Publishers, and messages a second of each, in the paper; its subscribers are `FEW`."""
RATES = tuple(i / 10 for i in range(11))
"""Joins or leaves of each subscriber a second. The paper's text does not give the scales of its axes."""

Counted = Mapping[tuple[str, float, float], float]
"""Counted queries a second, by method, join rate and leave rate."""


def either(publishers: int, publish_rate: float, subscribers: int, leave_rate: float, join_rate: float) -> float:
    """Return the queries a second with EITHER by Eq. (1). Rates are those of each publisher or subscriber, a second."""
    return publishers * publish_rate + subscribers * leave_rate + subscribers * join_rate


def both(subscribers: int, leave_rate: float) -> float:
    """Return the queries a second with BOTH by Eq. (2). `leave_rate` is that of each subscriber, a second."""
    return subscribers * leave_rate


def queries(counted: Counted | None = None) -> list[Queries]:
    """Return the points of the figure, with those of `counted` beside the equations'."""
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
