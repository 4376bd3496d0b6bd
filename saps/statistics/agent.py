"""The monitor agent: collects every broker's counts by one call along the overlay's tree (SAPS 2016, 3.3).

Each broker has a `MonitorAgent`; `gather` calls all of them and merges their answers. As in the paper's monitoring, the
replies return along the branches of the call, so that no broker has to answer everyone.
"""

from __future__ import annotations

from collections.abc import Callable

from saps.agents.api import AgentRegistry, Answers, repeatable
from saps.statistics import Row

MONITOR = "monitor"
"""Name, and thus attribute, of each broker's monitor agent."""
AT_ONCE = 2000
"""Most rows in one answer, about 200 KiB."""


class MonitorAgent:
    """The monitor agent of one broker."""

    def __init__(self, latest: Callable[[], list[Row]]) -> None:
        """`latest` returns the rows of the last complete interval."""
        self._latest = latest

    @repeatable
    def counts(self, most: int) -> list[list[object]]:
        """Return the `most` rows of the last interval with the most bytes, as plain values."""
        rows = sorted(self._latest(), key=lambda row: (-row.bytes - row.received_bytes, row.topic))
        return [list(row) for row in rows[: max(0, min(most, AT_ONCE))]]


def gather(registry: AgentRegistry, most: int, done: Callable[[list[Row], bool], None]) -> None:
    """Collect the rows of all brokers. `done` is called with them and with whether all brokers have answered."""

    def answered(answers: Answers) -> None:
        done(sorted(row for _, rows in answers.of(list[Row]) for row in rows), answers.whole)

    registry.discovery_call(MONITOR, "counts", (most,), answered)
