"""Many topics as arrays are what the same topics are one by one: to the last bit, in any order of parts."""

from __future__ import annotations

import random
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

import pyarrow as pa

from monitoring.counts.features import Window
from monitoring.forecasts.forecast import HOURS
from monitoring.forecasts.model import FORGET, Model, advance, judge, unknown
from monitoring.forecasts.seasons import Season
from monitoring.forecasts.vector import JUDGED, TOPICS, epoch_of, models_of
from monitoring.settings import Rules

RULES = Rules()
COUNTS = [name for name in Window._fields if name not in ("topic", "start", "messages", "sites")]
LENGTH = RULES.pace.window
BEGIN = 1_795_000_000_000 // LENGTH * LENGTH


def made_up(rng: random.Random, windows: int, topics: int) -> list[Window]:
    return [
        Window(
            topic=f"t/{topic}",
            start=BEGIN + number * LENGTH,
            messages=rng.randrange(1, 900),
            sites=f"c{rng.randrange(3)}:1:0",
            **{name: rng.randrange(90) for name in COUNTS},
        )
        for number in range(windows)
        for topic in range(topics)
        if rng.random() < 0.5
    ]


def as_table(windows: list[Window]) -> pa.Table:
    return pa.table({name: [getattr(window, name) for window in windows] for name in Window._fields})


@given(st.randoms(use_true_random=False), st.integers(1, 5))
@settings(max_examples=20)
def test_many_topics_over_several_epochs_are_the_same_to_the_last_bit(rng: random.Random, epochs: int) -> None:
    windows = made_up(rng, 20 * epochs, 5)
    kept = pa.Table.from_pylist([], schema=pa.schema([*TOPICS, *JUDGED]))
    models: dict[str, Model] = {}
    for epoch in range(epochs):
        own = windows_of(windows, epoch)
        if not own:
            continue
        now = BEGIN + (epoch + 1) * 20 * LENGTH
        shuffled = rng.sample(own, len(own))
        kept = epoch_of(RULES, now)(as_table(shuffled), kept)
        for window in own:
            models[window.topic] = advance(models.get(window.topic) or unknown(), window, window.start, RULES.pace)
    assert {row["topic"] for row in kept.to_pylist()} == set(models)
    found = models_of(kept, kept.num_rows)
    for number, row in enumerate(kept.to_pylist()):
        model = models[row["topic"]]
        assert values(found.part(number), number) == values(model)
        shape, score = judge(model, now, RULES.pace, RULES.weights)
        judged = (row["saving"], row["cost"], row["inter"], row["sure"], row["rate"])
        assert judged == (*score, shape.rate)
    assert len(found.forecast.day.values[0]) == HOURS


def values(model: Model, number: int | None = None) -> list[object]:
    """All that is kept of a topic; of many, of the one with that number."""
    found = [getattr(model, f.name) for f in fields(model) if f.name != "forecast"]
    for f in fields(model.forecast):
        value = getattr(model.forecast, f.name)
        if isinstance(value, Season):
            value = value.values if number is None else value.values[number].tolist()
        found.append(value)
    return found


def windows_of(windows: list[Window], epoch: int) -> list[Window]:
    """Those of an epoch, in order."""
    first = BEGIN + epoch * 20 * LENGTH
    return [window for window in windows if first <= window.start < first + 20 * LENGTH]


def test_a_topic_that_is_silent_for_long_is_forgotten() -> None:
    windows = made_up(random.Random(1), 2, 3)
    kept = pa.Table.from_pylist([], schema=pa.schema([*TOPICS, *JUDGED]))
    kept = epoch_of(RULES, BEGIN + 2 * LENGTH)(as_table(windows), kept)
    assert kept.num_rows
    end = BEGIN + 3 * LENGTH + FORGET
    assert epoch_of(RULES, end)(as_table([]).cast(as_table(windows).schema), kept).num_rows == 0


def test_where_the_brokers_are_is_what_the_last_window_said() -> None:
    first, second = made_up(random.Random(3), 40, 1)[:2]
    both = [second._replace(sites="new:1:0"), first._replace(sites="old:1:0")]
    kept = pa.Table.from_pylist([], schema=pa.schema([*TOPICS, *JUDGED]))
    assert epoch_of(RULES, second.start + LENGTH)(as_table(both), kept)["sites"].to_pylist() == ["new:1:0"]
