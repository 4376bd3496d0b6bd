"""The monitor agent: every broker's counts by one call along the overlay's tree (SAPS 2016, 3.3).

`MonitorAgent` stands on each broker; `gather` asks all of them, and merges what they answer. The replies come back
along the branches of the call, as those of the paper's monitoring do, so that no broker is asked by everyone.
"""

from __future__ import annotations

from collections.abc import Callable

from saps.agents.api import AgentRegistry, Answers, remote
from saps.statistics import Row

MONITOR = "monitor"
"""Name, and so attribute, of each broker's monitor agent."""
AT_ONCE = 2000
"""Rows in one answer: some 200 KiB."""


class MonitorAgent:
    """Answers for one broker."""

    def __init__(self, latest: Callable[[], list[Row]]) -> None:
        """`latest` gives the rows of the last complete interval."""
        self._latest = latest

    @remote
    def counts(self, most: int) -> list[list[object]]:
        """The rows of the last interval, as plain values: the `most` with the most bytes."""
        rows = sorted(self._latest(), key=lambda row: (-row.bytes - row.received_bytes, row.topic))
        return [list(row) for row in rows[: max(0, min(most, AT_ONCE))]]


def gather(registry: AgentRegistry, most: int, done: Callable[[list[Row], bool], None]) -> None:
    """The rows of all brokers; `done` gets them, and whether all brokers have answered."""

    def answered(answers: Answers) -> None:
        rows = [Row(*plain) for answer in answers if answer.error is None for plain in answer.value]
        done(sorted(rows), answers.complete and all(answer.error is None for answer in answers))

    registry.discovery_call(MONITOR, "counts", (most,), answered)
