"""The small decider: turns rows of counts into tables of decisions in one process, without Spark.

OFGate runs it when there is no job (`saps ofgate --decide`); `job` does the same for millions of topics. Their results
are equal to the last bit, which tests/monitoring checks.
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
    """The outcome of a call of `Decider.feed`."""

    late: int
    """Rows of closed windows, which are not counted."""
    skew: Skew
    impossible: list[str]
    """The fault of each impossible row (`limits`); these rows are not counted."""


class Heard(NamedTuple):
    """The last rows that came from a broker."""

    end: int
    """End of the latest interval on the broker's clock (ms since 1970)."""
    at: int
    """Time of arrival on this machine's clock (ms since 1970)."""


class Skew(NamedTuple):
    """Brokers whose clocks are ahead, each with the lead in ms."""

    refused: dict[str, int]
    """Lead over this machine's clock. These rows are not counted."""
    waiting: dict[str, int]
    """Lead over the median of the brokers. These rows wait until the other brokers catch up."""


@dataclass(slots=True)
class Clock:
    """Tracks the brokers' progress in event time.

    The brokers' clocks may differ, so the median of the brokers heard lately decides. Rows too far ahead of this
    machine's clock do not count for it, and `closed` never goes back."""

    closed: int = 0
    """Time up to which windows are closed, in ms since 1970."""
    heard: dict[str, Heard] = field(default_factory=dict)
    """The brokers heard lately. It is kept from batch to batch, so that a broker alone in a batch is not the median."""

    def seen(self, ends: Iterable[tuple[str, int]], rules: Rules, now: int) -> Skew:
        """Record new rows and move `closed`. Returns the brokers whose clocks are ahead.

        `ends` gives a broker and the end of its rows (ms since 1970); `now` is this machine's clock."""
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
    """Return the latest acceptable end of a row in ms since 1970; `now` is this machine's clock."""
    return now + rules.skew


def machine_clock() -> int:
    """Return this machine's clock in ms since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Decider:
    """Holds all state between two epochs. Callers `feed` rows and then `decide`."""

    rules: Rules = field(default_factory=Rules)
    clock: Clock = field(default_factory=Clock)
    models: dict[str, Model] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    """Topic -> the sites of its brokers in its last window (`Window.sites`)."""
    held: dict[str, Held] = field(default_factory=dict)
    waiting: dict[tuple[str, int, int, str], Row] = field(default_factory=dict)
    """Rows of open windows, by broker, incarnation, start and topic."""
    decided: int = 0
    """End of the last epoch in ms since 1970."""

    def feed(self, rows: Iterable[Row], now: int | None = None) -> Sorted:
        """Take rows in any order, possibly repeated. Rows of windows closed before the call are late.

        `now` is this machine's clock in ms since 1970; None reads it."""
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
        """Return the table after the last closed window, or None if no window has closed since the last call.

        Empty windows count too, so that trees of silent topics are dropped."""
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
        """Return the topics in `held`, and at most `Rules.most` others worth a tree, those of highest density.

        `Job.candidates` does the same on Spark. `saved` gives the bytes that trees saved in this epoch, by topic."""
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
    """Return roughly what a tree is worth for each flow entry that it needs, in bytes a second."""
    return (score.saving - score.cost) / (2.0 + model.members + model.senders)  # type: ignore[no-any-return]
