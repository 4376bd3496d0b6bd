"""A topic's traffic in the hours to come: level and trend, times the hour of the day, times the day of the week.

Multiplicative Holt-Winters with two seasons (Holt 1957; Winters 1960; Taylor 2003), with three changes. Gains follow
from the time that has passed (``t / (tau + t)``), so windows may have any length and may be missing. The level moves
along the season's slope (least mean squares), so hours without traffic neither blow it up nor stop it. What the last
hours had more than expected, a burst, fades on its own.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from monitoring.forecasts.arrays import Value, between, larger, where

HOUR = 3_600_000
"""Milliseconds."""
HOURS, DAYS = 24, 7
HIGHEST = 12.0
"""Bound of a season's factor."""
SURPRISE, QUIET = 1.0, 0.1
"""What is beyond this share of what was expected (and of the level, in quiet hours) is a burst: level and seasons do
not learn from it."""
DAMPING = 0.05
"""Below about the root of this a season's factor tells little about the level."""


class Memory(NamedTuple):
    """Time constants in hours: after so long, a change has been taken over by half."""

    level: float = 12.0
    trend: float = 240.0
    day: float = 2.5
    """Of observation at that hour of the day: about as many days."""
    week: float = 36.0
    """Of observation at that day of the week."""
    onset: float = 0.1
    """Of a burst's beginning and end."""
    burst: float = 0.5
    """Of a burst that is expected to end."""


DEFAULT_MEMORY = Memory()


@dataclass(slots=True)
class Forecast:
    """What is known of a topic's rate; of one topic, or of many with an array in each field."""

    level: Value
    trend: Value
    """Change of the level an hour."""
    burst: Value
    """What was more than expected of late."""
    seen: Value
    """Hours of observation."""
    day: list[Value]
    """Factor of each hour of the day, UTC; 1 where nothing is known."""
    week: list[Value]
    """Factor of each day of the week, Thursday first (1 January 1970 was one)."""

    def part(self, index: Value) -> Forecast:
        """The topics at an index; what is done to it does nothing to this."""
        return Forecast(**{f.name: _part(getattr(self, f.name), index) for f in fields(self)})

    def put(self, index: Value, part: Forecast) -> None:
        """Put a `part` back."""
        for f in fields(self):
            mine, theirs = getattr(self, f.name), getattr(part, f.name)
            for into, value in zip(mine, theirs, strict=True) if isinstance(mine, list) else ((mine, theirs),):
                into[index] = value


def _part(value: Value, index: Value) -> Value:
    return [column[index] for column in value] if isinstance(value, list) else value[index]


def nothing_known(like: Value = 0.0) -> Forecast:
    """Of a topic that was never seen; of as many as the array of zeros `like` has."""
    ones = [[like + 1.0 for _ in range(length)] for length in (HOURS, DAYS)]  # each an array of its own
    return Forecast(like + 0.0, like + 0.0, like + 0.0, like + 0.0, *ones)


def silence(known: Forecast, since: Value, until: Value, memory: Memory = DEFAULT_MEMORY) -> Forecast:
    """What is known after no traffic from `since` to `until` (ms since 1970). Wholly silent hours lose their factor."""
    passed = larger((until - since) / HOUR, 0.0)
    first = since // HOUR + 1
    whole = until // HOUR - first
    gain = 1.0 / (memory.day + 1.0)
    day = [factor - where((hour - first) % HOURS < whole, gain * factor, 0.0) for hour, factor in enumerate(known.day)]
    return Forecast(
        known.level * (memory.level / (memory.level + passed)),
        known.trend * (memory.level / (memory.level + passed)),
        known.burst * (memory.burst / (memory.burst + passed)),
        where(known.seen > 0, known.seen + passed, known.seen),
        day,
        list(known.week),
    )


def observe(known: Forecast, rate: Value, start: int, hours: float, memory: Memory = DEFAULT_MEMORY) -> Forecast:
    """What is known after a window with this rate: it began at `start` (ms since 1970) and was `hours` long."""
    hour, weekday = start // HOUR % HOURS, start // (HOUR * HOURS) % DAYS
    day, week = known.day[hour], known.week[weekday]
    factor = day * week
    before = larger(known.level + known.trend * hours, 0.0)
    wanted = before * factor
    surprise = rate - wanted
    error = between(-SURPRISE * wanted, surprise, SURPRISE * wanted + QUIET * before)
    gain = larger(hours / (known.seen + hours), hours / (memory.level + hours))
    level = where(known.seen > 0, larger(before + gain * error * factor / (factor * factor + DAMPING), 0.0), rate)
    slow = hours / (memory.trend + hours)
    trend = known.trend + slow * where(known.seen > HOURS, (level - known.level) / hours - known.trend, 0.0)
    share = error / larger(level, 1e-12)
    learns = where((known.seen > 0) & (level > 0), 1.0, 0.0)
    days, weeks = list(known.day), list(known.week)
    days[hour] = between(0.0, day + learns * (hours / (memory.day + hours)) * share / larger(week, 0.1), HIGHEST)
    weeks[weekday] = between(
        0.1, week + where(known.seen > HOURS, learns, 0.0) * (hours / (memory.week + hours)) * share * day, HIGHEST
    )
    quick = hours / (memory.onset + hours)
    burst = where(known.seen > 0, known.burst + quick * (surprise - error - known.burst), 0.0)
    return Forecast(level, trend, burst, known.seen + hours, days, weeks)


def ahead(known: Forecast, at: int, hours: int, memory: Memory = DEFAULT_MEMORY) -> Value:
    """The mean rate expected over the next `hours` (1 or more) after `at` (ms since 1970)."""
    total = 0.0
    for step in range(hours):
        total = total + expected(known, at, step, memory)
    return total / hours


def expected(known: Forecast, at: int, step: int, memory: Memory = DEFAULT_MEMORY) -> Value:
    """The rate expected in the hour that begins `step` hours after `at`."""
    when = at + step * HOUR
    factor = known.day[when // HOUR % HOURS] * known.week[when // (HOUR * HOURS) % DAYS]
    level = larger(known.level + known.trend * damped_steps(step), 0.0)
    fading = memory.burst / (memory.burst + step + 0.5)
    return larger(level * factor + known.burst * fading, 0.0)


def damped_steps(step: int) -> float:
    """Hours for which a trend is taken to go on: damped, at most a day's worth."""
    return HOURS * (step + 1.0) / (HOURS + step + 1.0)
