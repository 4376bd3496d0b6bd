"""The state kept of each topic from window to window, its update by a window, and the resulting score.

A `Model` holds one topic with numbers, or many topics with arrays. `advance` and `judge` treat both alike.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from monitoring.counts.features import Window
from monitoring.forecasts.arrays import Value, larger, ratio, where
from monitoring.forecasts.forecast import (
    DEFAULT_MEMORY,
    HOUR,
    Forecast,
    Memory,
    ahead,
    expected,
    faded,
    least,
    nothing_known,
    observe,
    silence,
)
from monitoring.selection.score import Score, Shape, Weights, score

FORGET = 9 * 24 * HOUR
"""Milliseconds of silence after which a topic is forgotten: a little more than a week's season."""


class Pace(NamedTuple):
    """The time constants of the models."""

    window: int = 300_000
    """Length of a window in ms."""
    horizon: int = 6
    """Hours of forecast whose mean rate decides."""
    placement: float = 1.0
    """Time in hours after which past sums of copies, reach and churn count half."""
    idle: float = 2.0
    """Windows without traffic after which no traffic is expected, whatever the season says."""


@dataclass(slots=True)
class Model:
    """The state of one topic, or of many topics with an array in each field. The sums fade as time passes."""

    last: Value
    """End of the last window with traffic, in ms since 1970; 0: none yet."""
    forecast: Forecast
    """Forecast of the rate in messages a second."""
    hours: Value
    """Time that the sums stand for, in hours; it fades with them."""
    messages: Value
    bytes: Value
    alm: Value
    """Copies between clusters that ALM sent, or would have sent without a tree."""
    up: Value
    far: Value
    reach: Value
    joins: Value
    leaves: Value
    senders: Value
    members: Value
    priority: Value

    def part(self, index: Value) -> Model:
        """Return the model of the topics at an index. Only changes of its seasons reach this model."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return Model(**{n: v.part(index) if n == "forecast" else v[index] for n, v in values.items()})

    def put(self, index: Value, part: Model) -> None:
        """Write a `part` of the topics at an index back."""
        for f in fields(self):
            if f.name == "forecast":
                self.forecast.put(index, part.forecast)
            else:
                getattr(self, f.name)[index] = getattr(part, f.name)


SUMS = ("messages", "bytes", "alm", "up", "far", "reach", "joins", "leaves")
"""The fading sums, in the order of `Model`."""


def unknown(like: Value = 0.0, never: Value = 0) -> Model:
    """Return the model of a topic that was never seen.

    For many topics, `like` is an array of zeros (float64) and `never` an array of zeros (int64)."""

    def zero() -> Value:
        return like + 0.0  # a separate array for each field

    zeros = {name: zero() for name in ("hours", *SUMS, "senders", "members", "priority")}
    return Model(last=never + 0, forecast=nothing_known(like), **zeros)


def advance(model: Model, seen: Window, start: int, pace: Pace, memory: Memory = DEFAULT_MEMORY) -> Model:
    """Return the model after a window that began at `start` (ms since 1970).

    The fields of `seen` are numbers or arrays like the model's. The model's seasons change in place."""
    hours = pace.window / HOUR
    known = model.last > 0
    since = where(known, model.last, start)
    quiet = larger((start - since) / HOUR, 0.0)
    before = silence(model.forecast, since, start, memory)
    fade = pace.placement / (pace.placement + quiet + hours)
    observed = observe(before, seen.messages / (pace.window / 1000), start, hours, memory)
    return Model(
        last=where(known, larger(model.last, start + pace.window), start + pace.window),
        forecast=observed,
        hours=(model.hours + quiet) * fade + hours,
        messages=model.messages * fade + seen.messages,
        bytes=model.bytes * fade + seen.bytes,
        alm=model.alm * fade + where(seen.by_tree == 0, larger(seen.far, seen.copies), seen.far),
        up=model.up * fade + seen.up,
        far=model.far * fade + seen.far,
        reach=model.reach * fade + seen.reach,
        joins=model.joins * fade + seen.joins,
        leaves=model.leaves * fade + seen.leaves,
        senders=seen.senders + 0.0,
        members=seen.members + 0.0,
        priority=seen.priority + 0.0,
    )


def shape(model: Model, now: int, pace: Pace, memory: Memory = DEFAULT_MEMORY) -> Shape:
    """Return the traffic expected after `now` (ms since 1970), the end of the last window."""
    here = faded(model.forecast, now - model.last, memory)
    lively = now - model.last <= pace.idle * pace.window
    rate = where(lively, ahead(here, now, pace.horizon, memory), 0.0)
    seconds = larger((model.hours + larger((now - model.last) / HOUR, 0.0)) * 3600.0, 1.0)
    return Shape(
        rate=rate,
        least=least(here, rate),
        soon=where(lively, expected(here, now, 0, memory), 0.0),
        size=ratio(model.bytes, model.messages),
        alm=ratio(model.alm, model.messages),
        up=ratio(model.up, model.messages),
        far=ratio(model.far, model.messages),
        reach=ratio(model.reach, model.messages),
        joins=model.joins / seconds,
        leaves=model.leaves / seconds,
        senders=model.senders,
        members=model.members,
        priority=model.priority,
    )


def judge(model: Model, now: int, pace: Pace, weights: Weights, memory: Memory = DEFAULT_MEMORY) -> tuple[Shape, Score]:
    """Return the traffic expected after `now` (ms since 1970), and the saving and cost of a tree."""
    found = shape(model, now, pace, memory)
    return found, score(found, weights)
