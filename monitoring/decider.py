"""The small decider: rows of counts in, tables of decisions out, in one process and without Spark.

OFGate runs it when there is no job (`saps ofgate --decide`); `job` does the same for millions of topics. Their results
are equal to the last bit, which tests/monitoring shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median_low
from typing import NamedTuple

from monitoring.decisions import Judged, Table, decide
from monitoring.features import Window, window_of, windows
from monitoring.model import FORGET, Model, advance, judge, unknown
from monitoring.score import Score
from monitoring.selection import Held
from monitoring.settings import Rules
from saps.statistics import REST, Row


class Sorted(NamedTuple):
    """What came of rows that were handed in."""

    late: int
    """Rows of windows that are closed: not counted any more."""
    ahead: dict[str, int]
    """Brokers whose clocks are too far ahead, with the milliseconds: their rows are not counted."""


@dataclass(slots=True)
class Clock:
    """How far the brokers are. Their clocks may differ: the median counts, and it never goes back."""

    closed: int = 0
    """Windows that end by then (ms since 1970) are closed."""

    def seen(self, ends: dict[str, int], rules: Rules) -> dict[str, int]:
        """New rows end by then, at most, by broker. Moves `closed`; returns who is too far ahead."""
        if not ends:
            return {}
        now = median_low(ends.values())
        ahead = {broker: end - now for broker, end in ends.items() if end - now > rules.skew}
        sane = [end for broker, end in ends.items() if broker not in ahead]
        length = rules.pace.window
        self.closed = max(self.closed, (median_low(sane) - rules.lateness) // length * length)
        return ahead


@dataclass(slots=True)
class Decider:
    """All that is kept between two epochs. `feed` rows, then `decide`."""

    rules: Rules = field(default_factory=Rules)
    clock: Clock = field(default_factory=Clock)
    models: dict[str, Model] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    """Topic -> where its brokers are, in its last window."""
    held: dict[str, Held] = field(default_factory=dict)
    waiting: dict[tuple[str, int, int, str], Row] = field(default_factory=dict)
    """Rows of windows that are not closed."""
    decided: int = 0
    """End of the last epoch."""

    def feed(self, rows: Iterable[Row]) -> Sorted:
        """Take rows, in any order, some of them again. What was closed before stays so."""
        given, ends = list(rows), dict[str, int]()
        for row in given:
            ends[row.broker] = max(ends.get(row.broker, 0), row.start + int(row.seconds * 1000))
        before = self.clock.closed
        ahead = self.clock.seen(ends, self.rules)
        late = 0
        for row in given:
            if row.topic == REST:
                continue
            if window_of(row, self.rules.pace.window) + self.rules.pace.window <= before:
                late += 1
            elif row.broker not in ahead:
                self.waiting[row.broker, row.incarnation, row.start, row.topic] = row
        return Sorted(late, ahead)

    def decide(self) -> Table | None:
        """The table after the last closed window, None if no window was closed since the last call. Windows in which
        nothing happened count: what has ended must go."""
        length, closed = self.rules.pace.window, self.clock.closed
        ready = {key: row for key, row in self.waiting.items() if window_of(row, length) + length <= closed}
        if closed <= self.decided:
            return None
        self.decided = closed
        for key in ready:
            del self.waiting[key]
        for window in windows(ready.values(), length):
            self._advance(window)
        self._forget(closed)
        table = decide(self._candidates(closed), self.held, self.rules.network, closed, self.rules.calm)
        self.held = table.held(self.held, self.rules.calm.dwell)
        return table

    def _advance(self, window: Window) -> None:
        model = self.models.get(window.topic) or unknown()
        self.models[window.topic] = advance(model, window, window.start, self.rules.pace, self.rules.memory)
        self.places[window.topic] = window.sites

    def _forget(self, now: int) -> None:
        for topic in [topic for topic, model in self.models.items() if now - model.last > FORGET]:
            del self.models[topic], self.places[topic]

    def _candidates(self, now: int) -> list[Judged]:
        """As `job.candidates`: the topics worth a tree, the best for their room if there are too many, and those that
        have one."""
        found, always = [], []
        for topic, model in self.models.items():
            shape, score = judge(model, now, self.rules.pace, self.rules.weights, self.rules.memory)
            row = Judged(topic, score.saving, score.cost, score.inter, shape.rate, self.places[topic], shape.size)
            if topic in self.held:
                always.append(row)
            elif score.saving > score.cost:
                found.append((-density(score, model), topic, row))
        found.sort()
        return always + [row for _, _, row in found[: self.rules.most]]


def density(score: Score, model: Model) -> float:
    """What a tree is worth for the room it needs, roughly."""
    return (score.saving - score.cost) / (2.0 + model.members + model.senders)  # type: ignore[no-any-return]
