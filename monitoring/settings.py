"""Everything the decisions depend on, in one value: the job, OFGate's own decider and the replay take the same."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from monitoring.forecast import DEFAULT_MEMORY, Memory
from monitoring.model import Pace
from monitoring.network import Network
from monitoring.score import Weights
from monitoring.selection import Calm

LEAST_SKEW = 1000
"""Milliseconds by which synchronised clocks may differ, however short the lateness is."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How it is decided."""

    pace: Pace = field(default_factory=Pace)
    weights: Weights = field(default_factory=Weights)
    calm: Calm = field(default_factory=Calm)
    memory: Memory = DEFAULT_MEMORY
    network: Network = field(default_factory=Network)
    lateness: int = 120_000
    """Milliseconds that rows may come late: a window is closed when the brokers' clocks, by their median, are so far
    beyond its end. Longer costs that delay of every decision; shorter loses rows of slow writers."""
    most: int = 50_000
    """Candidates handed to the selection, the best for their room."""

    @property
    def skew(self) -> int:
        """Milliseconds that a broker's clock may be ahead of this machine's before its rows are refused: so far ahead
        it closes no window early, for windows close so much later."""
        return max(self.lateness, LEAST_SKEW)


def rules_for(interval: float, rules: Rules | None = None) -> Rules:
    """Rules fit for brokers that count in intervals of so many seconds: a window is one interval, or a few of short
    ones are not waited for long."""
    milliseconds = int(interval * 1000)
    given = rules or Rules()
    return replace(
        given,
        pace=given.pace._replace(window=milliseconds),
        calm=given.calm._replace(dwell=3 * milliseconds),
        lateness=milliseconds // 2,
    )
