"""Many topics at once: the models of a part of them as arrays, in and out of Arrow tables.

This is what Spark runs, on each part of the topics; `decider` does the same one topic at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from monitoring.counts.features import Window
from monitoring.decisions.audit import saved_in
from monitoring.forecasts.forecast import DAYS, HOURS, Forecast
from monitoring.forecasts.model import FORGET, SUMS, Model, advance, judge, unknown
from monitoring.settings import Rules

_NUMBERS = ("hours", *SUMS, "senders", "members", "priority")
_FORECAST = ("level", "trend", "burst", "seen")
_SEASONS = {"day": HOURS, "week": DAYS}
_WINDOW = [name for name in Window._fields if name not in ("topic", "start", "sites")]

TOPICS = pa.schema(
    [
        ("topic", pa.string()),
        ("sites", pa.string()),
        ("last", pa.int64()),
        *[(name, pa.float64()) for name in (*_NUMBERS, *_FORECAST)],
        *[(name, pa.list_(pa.float64())) for name in _SEASONS],
    ]
)
"""What is kept of each topic from epoch to epoch (`monitoring.forecasts.model.Model`)."""
JUDGED = pa.schema([(name, pa.float64()) for name in ("saving", "cost", "inter", "rate", "size", "density", "saved")])
"""What follows from it at the end of an epoch."""

Floats = npt.NDArray[np.float64]


def epoch_of(rules: Rules, now: int) -> Callable[[pa.Table, pa.Table], pa.Table]:
    """The function that takes a part of the topics from one epoch to the next, which ends at `now`: from their closed
    windows and what was kept, to what is kept and how it is judged."""

    def run(windows: pa.Table, kept: pa.Table) -> pa.Table:
        topics = pc.unique(pa.concat_arrays([_strings(kept, "topic"), _strings(windows, "topic")]))
        model = _model(kept, len(topics))
        at = pc.index_in(_strings(windows, "topic"), value_set=topics).to_numpy()
        latest = np.arange(len(topics), dtype=np.int64)
        starts = windows["start"].to_numpy()
        columns = {name: windows[name].to_numpy() for name in _WINDOW}
        saved = np.zeros(len(topics))
        for start in np.unique(starts):
            rows = np.flatnonzero(starts == start)
            index = at[rows]
            seen = Window(topic="", start=int(start), sites="", **{name: columns[name][rows] for name in _WINDOW})
            model.put(index, advance(model.part(index), seen, int(start), rules.pace, rules.memory))
            saved[index] += saved_in(seen)
            latest[index] = kept.num_rows + rows
        sites = pa.concat_arrays([_strings(kept, "sites"), _strings(windows, "sites")]).take(pa.array(latest))
        shape, score = judge(model, now, rules.pace, rules.weights, rules.memory)
        density = (score.saving - score.cost) / (2.0 + model.members + model.senders)
        judged = (score.saving, score.cost, score.inter, shape.rate, shape.size, density, saved)
        found = _table(topics, sites, model, judged)
        return found.filter(pa.array(now - model.last <= FORGET))

    return run


def _strings(table: pa.Table, name: str) -> pa.Array:
    column = table[name].combine_chunks()
    return column.cast(pa.string()) if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)


def _model(kept: pa.Table, size: int) -> Model:
    """The models of the topics that were kept, then of new ones."""
    model = unknown(np.zeros(size), np.zeros(size, dtype=np.int64))
    old = kept.num_rows
    model.last[:old] = kept["last"].to_numpy()
    for name in _NUMBERS:
        getattr(model, name)[:old] = kept[name].to_numpy()
    for name in _FORECAST:
        getattr(model.forecast, name)[:old] = kept[name].to_numpy()
    for name, length in _SEASONS.items():
        factors = _flat(kept[name]).reshape(old, length)
        for number, column in enumerate(getattr(model.forecast, name)):
            column[:old] = factors[:, number]
    return model


def _flat(column: pa.ChunkedArray) -> Floats:
    lists = column.combine_chunks()
    values = lists.flatten() if isinstance(lists, pa.Array) else pa.concat_arrays([c.flatten() for c in lists.chunks])
    array: Floats = values.to_numpy(zero_copy_only=False)
    return array


def _table(topics: pa.Array, sites: pa.Array, model: Model, judged: tuple[Any, ...]) -> pa.Table:
    size = len(topics)
    columns: list[Any] = [topics, sites, pa.array(model.last)]
    columns += [pa.array(np.broadcast_to(getattr(model, name), size)) for name in _NUMBERS]
    forecast: Forecast = model.forecast
    columns += [pa.array(np.broadcast_to(getattr(forecast, name), size)) for name in _FORECAST]
    for name, length in _SEASONS.items():
        values = np.column_stack(getattr(forecast, name)).reshape(-1) if size else np.zeros(0)
        offsets = np.arange(0, size * length + 1, length, dtype=np.int32)
        columns.append(pa.ListArray.from_arrays(pa.array(offsets), pa.array(values)))
    columns += [pa.array(np.broadcast_to(np.asarray(part, dtype=np.float64), size)) for part in judged]
    return pa.Table.from_arrays(columns, schema=pa.schema([*TOPICS, *JUDGED]))
