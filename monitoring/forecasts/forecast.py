"""Forecasts a topic's traffic for the coming hours by four simple models, weighted by their recent errors.

- *daily*: level and trend, times a factor of the hour of the day, times a factor of the day of the week (multiplicative
  Holt-Winters with two seasons: Holt 1957; Winters 1960; Taylor 2003).
- *steady* and *quick*: exponential smoothing.
- *weekly*: the mean of the same hour of the last weeks, which follows every cycle that divides a week.

Every three hours each model forecasts the mean of the next three. A model's weight is its mean absolute error to the
power of -32: nearly the best model alone, yet without jumps. The recent errors also give a lower bound of the traffic
with 80 % certainty (adaptive conformal inference: Gibbs & Candes 2021).

Gains follow from the time that has passed (``t / (tau + t)``), so windows may have any length and may be missing. The
first gains are those of a mean. The level moves along the season's slope (least mean squares), so hours without traffic
neither inflate nor freeze it. A burst, which is recent traffic above the expected, fades separately.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from monitoring.forecasts.arrays import Value, between, larger, lesser, ratio, where
from monitoring.forecasts.seasons import LARGEST, Season, season

HOUR = 3_600_000
"""An hour in milliseconds."""
HOURS, DAYS, WEEK = 24, 7, 168
MODELS = 4
BLOCK = 3
"""Hours of a block, whose mean each model forecasts."""
HIGHEST = 12.0
"""Upper bound of a season's factor."""
SURPRISE, QUIET = 1.0, 0.1
"""A deviation beyond `SURPRISE` times the expected rate plus `QUIET` times the steady level is a burst. Levels and
seasons do not learn from it. The second term sets the bound in quiet hours."""
DAMPING = 0.05
"""Damping of the level's gain. A season's factor below about its root tells little about the level."""
SQUARINGS = 5
"""Squarings of a model's weight: 5 raise it to the power of 32."""
TINY = 1e-12
"""Least divisor, against division by zero."""
MISSED = 0.2
"""Share of the blocks whose mean may be below the bound that `least` gives."""
LEARNS = 0.2
"""Step by which `margin` adapts after each block."""
WIDEST = 10.0
"""Upper bound of `margin`."""
LONG = 24
"""Hours of silence that are processed one by one. The seasons do not learn from further hours."""


class Memory(NamedTuple):
    """Time constants in hours: after such a time, the forecast has followed half of a change."""

    level: float = 48.0
    trend: float = 240.0
    day: float = 39.0
    """Hours of observation at one hour of the day, which take about as many days."""
    week: float = 360.0
    """Hours of observation on one day of the week."""
    weeks: float = 3.0
    """Weeks over which the weekly model averages."""
    steady: float = 168.0
    quick: float = 3.0
    errors: float = 120.0
    onset: float = 0.1
    """Time constant of the response to the beginning and end of a burst."""
    burst: float = 0.5
    """Time constant of a burst's expected decay."""


DEFAULT_MEMORY = Memory()


@dataclass(slots=True)
class Forecast:
    """The state of a topic's forecast, or of many topics with an array in each field. Rates are messages a second."""

    level: Value
    trend: Value
    """Change of the level in an hour."""
    steady: Value
    """Level smoothed slowly (`Memory.steady`)."""
    quick: Value
    """Level smoothed quickly (`Memory.quick`)."""
    burst: Value
    """Recent rate beyond the bounds of the usual (`SURPRISE`)."""
    seen: Value
    """Hours of observation."""
    off: Value
    """Mean absolute error of the blended forecasts of blocks."""
    margin: Value
    """Multiple of `off` by which the traffic may fall below the forecast (`least`)."""
    hour_sum: Value
    """Usual rate times hours, summed over the present hour of the day."""
    hour_for: Value
    """Hours observed in the present hour of the day."""
    block_sum: Value
    """Rate times hours, summed over the present block."""
    block_for: Value
    """Hours observed in the present block."""
    errors: list[Value]
    """Mean absolute error of each model over blocks."""
    said: list[Value]
    """Each model's forecast of the present block."""
    day: Season
    """Factor of each hour of the day in UTC; 1 where nothing is known."""
    week: Season
    """Factor of each day of the week, Thursday first (1 January 1970 was one)."""
    hours: Season
    """Mean rate of each hour of the week, Thursday 00:00 first."""

    def part(self, index: Value) -> Forecast:
        """Return the forecast of the topics at an index. Only changes of its seasons reach this forecast."""
        return Forecast(*[_part(getattr(self, f.name), index) for f in fields(self)])

    def put(self, index: Value, part: Forecast) -> None:
        """Write a `part` of the topics at an index back. Its seasons are shared already."""
        for f in fields(self):
            mine, theirs = getattr(self, f.name), getattr(part, f.name)
            if not isinstance(mine, Season):
                for into, value in zip(mine, theirs, strict=True) if isinstance(mine, list) else ((mine, theirs),):
                    into[index] = value


def _part(value: Value, index: Value) -> Value:
    if isinstance(value, Season):
        return value.part(index)
    return [column[index] for column in value] if isinstance(value, list) else value[index]


def nothing_known(like: Value = 0.0) -> Forecast:
    """Return the forecast of a topic that was never seen, or of as many as the array of zeros `like` has."""

    def zero() -> Value:
        return like + 0.0  # a separate array for each field

    return Forecast(
        level=zero(),
        trend=zero(),
        steady=zero(),
        quick=zero(),
        burst=zero(),
        seen=zero(),
        off=zero(),
        margin=like + 1.0,
        hour_sum=zero(),
        hour_for=zero(),
        block_sum=zero(),
        block_for=zero(),
        errors=[zero() for _ in range(MODELS)],
        said=[zero() for _ in range(MODELS)],
        day=season(like, HOURS, 1.0),
        week=season(like, DAYS, 1.0),
        hours=season(like, WEEK, 0.0, half=True),
    )


# --- time passes ------------------------------------------------------------------------------------------------------


def silence(known: Forecast, since: Value, until: Value, memory: Memory = DEFAULT_MEMORY) -> Forecast:
    """Return the forecast after no traffic from `since` to `until` (ms since 1970). Seasons change in place.

    The first `LONG` hours are processed one by one, the rest at once."""
    if isinstance(since, int):
        for _ in range(LONG):
            edge = (since // HOUR + 1) * HOUR
            if edge > until:
                break
            known, since = _to_edge(known, since, edge, memory), edge
        return faded(known, until - since, memory)
    import numpy as np

    since = since.copy()
    for _ in range(LONG):
        rows = np.flatnonzero((since // HOUR + 1) * HOUR <= until)
        if not len(rows):
            break
        edge = (since[rows] // HOUR + 1) * HOUR
        known.put(rows, _to_edge(known.part(rows), since[rows], edge, memory))
        since[rows] = edge
    return faded(known, until - since, memory)


def faded(known: Forecast, passed: Value, memory: Memory = DEFAULT_MEMORY) -> Forecast:
    """Return the forecast after `passed` ms without traffic, processed at once. Seasons do not change."""
    passed = where(known.seen > 0, larger(passed / HOUR, 0.0), 0.0)

    def less(value: Value, tau: float) -> Value:
        return value * (tau / (tau + passed))

    return Forecast(
        less(known.level, memory.level),
        less(known.trend, memory.level),
        less(known.steady, memory.steady),
        less(known.quick, memory.quick),
        less(known.burst, memory.burst),
        known.seen + passed,
        known.off,
        known.margin,
        known.hour_sum,
        known.hour_for + passed,
        known.block_sum,
        known.block_for + passed,
        known.errors,
        known.said,
        known.day,
        known.week,
        known.hours,
    )


def _to_edge(known: Forecast, since: Value, edge: Value, memory: Memory) -> Forecast:
    """Advance over silence to the end of an hour. The factor of a wholly silent hour of the day decreases."""
    known = faded(known, edge - since, memory)
    hour = since // HOUR % HOURS
    factor = known.day.at(hour)
    gain = 1.0 / (lesser(known.seen / HOURS + 0.5, memory.day) + 1.0)
    known.day.put(hour, factor - where(since % HOUR == 0, gain, 0.0) * factor)
    return _turn(known, edge, memory)


def _turn(known: Forecast, at: Value, memory: Memory) -> Forecast:
    """End an hour: update the hour of the week by its mean, and the errors if a block ends as well."""
    slot = (at // HOUR - 1) % WEEK
    weeks = where(known.seen <= WEEK, 1.0, where(known.seen <= 2 * WEEK, 2.0, memory.weeks))
    before = known.hours.at(slot)
    mean = ratio(known.hour_sum, known.hour_for)
    known.hours.put(slot, lesser(before + where(known.hour_for > 0, (mean - before) / weeks, 0.0), LARGEST))
    known.hour_sum, known.hour_for = known.hour_sum * 0.0, known.hour_for * 0.0
    return _judged(known, at, memory)


def _judged(known: Forecast, at: Value, memory: Memory) -> Forecast:
    """End a block if `at` is the end of one: update the models' errors, and forecast the next block.

    Only wholly observed blocks count for the errors."""
    ends = at % (BLOCK * HOUR) == 0
    if ends is False or (ends is not True and not ends.any()):
        return known
    whole = known.block_for > BLOCK - 0.01
    mean = ratio(known.block_sum, known.block_for)
    gain = where(ends & whole, BLOCK / (lesser(known.seen, memory.errors) + BLOCK), 0.0)
    said = blend(known.said, known.errors)
    missed = where(mean < said - known.margin * known.off, 1.0, 0.0)
    learns = where(ends & whole, LEARNS, 0.0)
    known.margin = between(0.0, known.margin + learns * (missed - MISSED), WIDEST)
    known.off = known.off + gain * (_size(said - mean) - known.off)
    known.errors = [
        error + gain * (_size(each - mean) - error) for each, error in zip(known.said, known.errors, strict=True)
    ]
    known.block_sum, known.block_for = where(ends, 0.0, known.block_sum), where(ends, 0.0, known.block_for)
    ahead_of = [models(known, at, step) for step in range(BLOCK)]
    known.said = [
        where(ends, sum(step[number] for step in ahead_of) / BLOCK, known.said[number]) for number in range(MODELS)
    ]
    return known


def _size(value: Value) -> Value:
    return where(value < 0, -value, value)


def observe(known: Forecast, rate: Value, start: int, hours: float, memory: Memory = DEFAULT_MEMORY) -> Forecast:
    """Return the forecast after a window with this rate, which began at `start` (ms since 1970) and lasted `hours`.

    Seasons change in place."""
    hour, weekday = start // HOUR % HOURS, start // (HOUR * HOURS) % DAYS
    day, week = known.day.at(hour), known.week.at(weekday)
    factor, young = day * week, hours / (known.seen + hours)
    before = larger(known.level + known.trend * hours, 0.0)
    wanted = blend(models(known, start, 0), known.errors)
    surprise = rate - wanted
    bound = SURPRISE * wanted + QUIET * known.steady
    usual = where(known.seen > 0, between(-bound, surprise, bound) + wanted, rate)
    error = usual - before * factor
    gain = larger(young, hours / (memory.level + hours))
    level = where(known.seen > 0, larger(before + gain * error * factor / (factor * factor + DAMPING), 0.0), rate)
    slow = hours / (memory.trend + hours)
    trend = known.trend + slow * where(known.seen > HOURS, (level - known.level) / hours - known.trend, 0.0)
    share = where(known.seen > 0, error, 0.0) / larger(level, TINY)
    at_hour = hours / (between(0.25, known.seen / HOURS - 0.5, memory.day) + hours)
    at_day = where(known.seen > HOURS, hours / (lesser(known.seen / DAYS + HOURS / 2, memory.week) + hours), 0.0)
    day = between(0.0, day + at_hour * share / larger(week, 0.1), HIGHEST)
    known.day.put(hour, day)
    known.week.put(weekday, between(0.1, week + at_day * share * day, HIGHEST))
    quick = hours / (memory.onset + hours)
    now = Forecast(
        level,
        trend,
        known.steady + larger(young, hours / (memory.steady + hours)) * (usual - known.steady),
        known.quick + larger(young, hours / (memory.quick + hours)) * (usual - known.quick),
        where(known.seen > 0, known.burst + quick * (rate - usual - known.burst), 0.0),
        known.seen + hours,
        known.off,
        known.margin,
        known.hour_sum + usual * hours,
        known.hour_for + hours,
        known.block_sum + rate * hours,
        known.block_for + hours,
        known.errors,
        known.said,
        known.day,
        known.week,
        known.hours,
    )
    end = start + round(hours * HOUR)
    for edge in range((start // HOUR + 1) * HOUR, end + 1, HOUR):
        now = _turn(now, edge, memory)
    return now


# --- what is expected -------------------------------------------------------------------------------------------------


def models(known: Forecast, at: Value, step: int) -> list[Value]:
    """Return each model's forecast of the hour that begins `step` hours after `at` (ms since 1970)."""
    hour = at // HOUR + step
    factor = known.day.at(hour % HOURS) * known.week.at(hour // HOURS % DAYS)
    daily = larger(known.level + known.trend * damped_steps(step), 0.0) * factor
    weekly = where(known.seen >= WEEK, known.hours.at(hour % WEEK), known.steady)
    return [daily, known.steady, known.quick, weekly]


def blend(said: list[Value], errors: list[Value]) -> Value:
    """Return the mean of the models' forecasts, weighted by their errors to the power of -32."""
    smallest = errors[0]
    for error in errors[1:]:
        smallest = lesser(smallest, error)
    total, weights = 0.0, 0.0
    for each, error in zip(said, errors, strict=True):
        weight = (smallest + TINY) / (error + TINY)
        for _ in range(SQUARINGS):
            weight = weight * weight
        total, weights = total + weight * each, weights + weight
    return total / weights


def ahead(known: Forecast, at: int, hours: int, memory: Memory = DEFAULT_MEMORY) -> Value:
    """Return the mean rate expected over the next `hours` (1 or more) after `at` (ms since 1970)."""
    total = 0.0
    for step in range(hours):
        total = total + expected(known, at, step, memory)
    return total / hours


def least(known: Forecast, mean: Value) -> Value:
    """Return the lower bound of the rate with a certainty of ``1 - MISSED``, if `mean` is the expected rate."""
    return larger(mean - known.margin * known.off, 0.0)


def expected(known: Forecast, at: int, step: int, memory: Memory = DEFAULT_MEMORY) -> Value:
    """Return the rate expected in the hour that begins `step` hours after `at` (ms since 1970)."""
    fading = memory.burst / (memory.burst + step + 0.5)
    return larger(blend(models(known, at, step), known.errors) + known.burst * fading, 0.0)


def damped_steps(step: int) -> float:
    """Return the damped number of hours over which a trend continues, less than `HOURS`."""
    return HOURS * (step + 1.0) / (HOURS + step + 1.0)
