"""What is kept of each topic from window to window, how a window changes it, and the score that follows.

A `Model` holds one topic with numbers, or many with arrays; `advance` and `judge` do not see the difference.
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
    """How long things take."""

    window: int = 300_000
    """Milliseconds."""
    horizon: int = 6
    """Hours ahead whose mean rate decides."""
    placement: float = 1.0
    """Hours after which half of what is known of a topic's members and churn is of the time since."""
    idle: float = 2.0
    """Windows without traffic after which no traffic is expected, whatever the season says."""


@dataclass(slots=True)
class Model:
    """Sums fade as time passes; `hours` is the time they stand for."""

    last: Value
    """End of the last window with traffic, ms since 1970."""
    forecast: Forecast
    """Of messages a second."""
    hours: Value
    messages: Value
    bytes: Value
    alm: Value
    """Copies between clusters that ALM sent, or would have."""
    up: Value
    far: Value
    reach: Value
    joins: Value
    leaves: Value
    senders: Value
    members: Value
    priority: Value

    def part(self, index: Value) -> Model:
        """The topics at an index; what is done to it does nothing to this."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return Model(**{n: v.part(index) if n == "forecast" else v[index] for n, v in values.items()})

    def put(self, index: Value, part: Model) -> None:
        """Put a `part` back."""
        for f in fields(self):
            if f.name == "forecast":
                self.forecast.put(index, part.forecast)
            else:
                getattr(self, f.name)[index] = getattr(part, f.name)


SUMS = ("messages", "bytes", "alm", "up", "far", "reach", "joins", "leaves")
"""The fading sums, in the order of `Model`."""


def unknown(like: Value = 0.0, never: Value = 0) -> Model:
    """Of a topic that was never seen; of many, `like` is an array of zeros and `never` one of whole zeros."""

    def zero() -> Value:
        return like + 0.0  # an array of its own for each

    zeros = {name: zero() for name in ("hours", *SUMS, "senders", "members", "priority")}
    return Model(last=never + 0, forecast=nothing_known(like), **zeros)


def advance(model: Model, seen: Window, start: int, pace: Pace, memory: Memory = DEFAULT_MEMORY) -> Model:
    """The model after a window, which began at `start`. The fields of `seen` are numbers or arrays, as the model's; its
    seasons are changed in place."""
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
    """What is expected after `now`, the end of the last window."""
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
    """What is expected, and what a tree would save and cost."""
    found = shape(model, now, pace, memory)
    return found, score(found, weights)
