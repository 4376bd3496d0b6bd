"""The small decider: rows of counts in, tables of decisions out, in one process and without Spark.

OFGate runs it when there is no job (`saps ofgate --decide`); `job` does the same for millions of topics. Their results
are equal to the last bit, which tests/monitoring shows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median_low
from typing import NamedTuple

from monitoring.counts.features import Window, end_of, window_of, windows
from monitoring.counts.limits import fault
from monitoring.decisions.audit import saved_in
from monitoring.decisions.table import Judged, Table, decide
from monitoring.forecasts.model import FORGET, Model, advance, judge, unknown
from monitoring.selection.score import Score
from monitoring.selection.selection import Held
from monitoring.settings import Rules
from saps.statistics import REST, Row


class Sorted(NamedTuple):
    """What came of rows that were handed in."""

    late: int
    """Rows of windows that are closed: not counted any more."""
    skew: Skew
    impossible: list[str]
    """Why rows that cannot be were not counted (`limits`)."""


class Heard(NamedTuple):
    """The last that came from a broker."""

    end: int
    """Of its last interval, on the broker's clock (ms since 1970)."""
    at: int
    """When it came, on this machine's clock (ms since 1970)."""


class Skew(NamedTuple):
    """Brokers whose clocks are ahead, each with the milliseconds."""

    refused: dict[str, int]
    """Ahead of this machine's clock: these rows are not counted."""
    waiting: dict[str, int]
    """Ahead of the other brokers, by their median: these rows wait until the others are as far."""


@dataclass(slots=True)
class Clock:
    """How far the brokers are. Their clocks may differ: the median of those heard of lately counts, never beyond this
    machine's clock, and it never goes back."""

    closed: int = 0
    """Windows that end by then (ms since 1970) are closed."""
    heard: dict[str, Heard] = field(default_factory=dict)
    """The brokers heard of lately. Kept from batch to batch: a broker alone in a batch is not its own median."""

    def seen(self, ends: Iterable[tuple[str, int]], rules: Rules, now: int) -> Skew:
        """New rows of these brokers end by then; `now` on this machine's clock. Moves `closed`."""
        bound = bound_of(rules, now)
        refused = dict[str, int]()
        for broker, end in ends:
            if end > bound:
                refused[broker] = max(refused.get(broker, 0), end - now)
            else:
                before = self.heard.get(broker)
                self.heard[broker] = Heard(max(end, before.end) if before is not None else end, now)
        length = rules.pace.window
        lively = length + rules.lateness
        self.heard = {broker: last for broker, last in self.heard.items() if abs(now - last.at) <= lively}
        if not self.heard:
            return Skew(refused, {})
        middle = median_low(last.end for last in self.heard.values())
        self.closed = max(self.closed, (middle - rules.lateness) // length * length)
        far = {broker: last.end - middle for broker, last in self.heard.items() if last.at == now}
        return Skew(refused, {broker: by for broker, by in far.items() if by > rules.skew + length})


def bound_of(rules: Rules, now: int) -> int:
    """Rows that end later (ms since 1970) are refused: a clock is ahead of this machine's, which says `now`."""
    return now + rules.skew


def machine_clock() -> int:
    """ms since 1970."""
    return time.time_ns() // 1_000_000


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

    def feed(self, rows: Iterable[Row], now: int | None = None) -> Sorted:
        """Take rows, in any order, some of them again. What was closed before stays so. `now`: on this machine's clock,
        ms since 1970; None: as it is."""
        given, impossible, at = list[Row](), list[str](), machine_clock() if now is None else now
        for row in rows:
            if (reason := fault(row)) is None:
                given.append(row)
            else:
                impossible.append(f"a row of {row.broker!r}: {reason}")
        before, bound = self.clock.closed, bound_of(self.rules, at)
        skew = self.clock.seen(((row.broker, end_of(row)) for row in given), self.rules, at)
        late = 0
        for row in given:
            if row.topic == REST or end_of(row) > bound:
                continue
            if window_of(row, self.rules.pace.window) + self.rules.pace.window <= before:
                late += 1
            else:
                self.waiting[row.broker, row.incarnation, row.start, row.topic] = row
        return Sorted(late, skew, impossible)

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
        saved = dict[str, float]()
        for window in windows(ready.values(), length):
            self._advance(window)
            saved[window.topic] = saved.get(window.topic, 0.0) + saved_in(window)
        self._forget(closed)
        table = decide(self._candidates(closed, saved), self.held, self.rules.network, closed, self.rules.calm)
        self.held = table.held(self.held, self.rules.calm)
        return table

    def _advance(self, window: Window) -> None:
        model = self.models.get(window.topic) or unknown()
        self.models[window.topic] = advance(model, window, window.start, self.rules.pace, self.rules.memory)
        self.places[window.topic] = window.sites

    def _forget(self, now: int) -> None:
        for topic in [topic for topic, model in self.models.items() if now - model.last > FORGET]:
            del self.models[topic], self.places[topic]

    def _candidates(self, now: int, saved: Mapping[str, float]) -> list[Judged]:
        """As `job.candidates`: the topics worth a tree, the best for their room if there are too many, and those that
        have one."""
        found, always = [], []
        for topic, model in self.models.items():
            shape, score = judge(model, now, self.rules.pace, self.rules.weights, self.rules.memory)
            row = Judged(
                topic, score.saving, score.cost, score.inter, shape.rate, self.places[topic], shape.size,
                saved.get(topic, 0.0), score.sure,
            )  # fmt: skip
            if topic in self.held:
                always.append(row)
            elif score.saving > score.cost:
                found.append((-density(score, model), topic, row))
        found.sort()
        return always + [row for _, _, row in found[: self.rules.most]]


def density(score: Score, model: Model) -> float:
    """What a tree is worth for the room it needs, roughly."""
    return (score.saving - score.cost) / (2.0 + model.members + model.senders)  # type: ignore[no-any-return]
