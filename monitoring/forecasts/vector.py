"""Advances the models of many topics at once, as arrays read from and written to Arrow tables.

Spark runs this module on each part of the topics. `decider` does the same one topic at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from monitoring.counts.features import Window
from monitoring.decisions.audit import saved_in
from monitoring.forecasts.forecast import DAYS, HOURS, MODELS, WEEK, Forecast
from monitoring.forecasts.model import FORGET, SUMS, Model, advance, judge, unknown
from monitoring.settings import Rules

_NUMBERS = ("hours", *SUMS, "senders", "members", "priority")
_LISTS = ("errors", "said")
_SEASONS = ("day", "week", "hours")
_SINGLE = tuple(field.name for field in fields(Forecast) if field.name not in (*_LISTS, *_SEASONS))
_STATE = np.dtype(
    [
        ("numbers", "f8", len(_NUMBERS)),
        ("single", "f8", len(_SINGLE)),
        *[(name, "f8", MODELS) for name in _LISTS],
        ("day", "f8", HOURS),
        ("week", "f8", DAYS),
        ("hours", "f2", WEEK),
    ]
)
"""Bytes of a topic's `Model` without `last`. All machines that Spark runs on share the native byte order."""
_WINDOW = [name for name in Window._fields if name not in ("topic", "start", "sites")]

TOPICS = pa.schema([("topic", pa.string()), ("sites", pa.string()), ("last", pa.int64()), ("model", pa.binary())])
"""Columns kept of each topic from epoch to epoch (`monitoring.forecasts.model.Model`). The model is a single binary
value, which Spark passes on without parsing it."""
JUDGED = pa.schema(
    [(name, pa.float64()) for name in ("saving", "cost", "inter", "sure", "rate", "size", "density", "saved")]
)
"""Columns computed from the model at the end of an epoch."""

Floats = npt.NDArray[np.float64]


def epoch_of(rules: Rules, now: int) -> Callable[[pa.Table, pa.Table], pa.Table]:
    """Return the function that advances a part of the topics to the epoch that ends at `now` (ms since 1970).

    The function takes the topics' closed windows (`sums.WINDOWS`) and the rows kept of the last epoch (`TOPICS` at
    least). It returns rows with the columns `TOPICS` and `JUDGED`, without topics silent for longer than `FORGET`."""

    def run(windows: pa.Table, kept: pa.Table) -> pa.Table:
        topics = pc.unique(pa.concat_arrays([_strings(kept, "topic"), _strings(windows, "topic")]))
        model = models_of(kept, len(topics))
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
        judged = (score.saving, score.cost, score.inter, score.sure, shape.rate, shape.size, density, saved)
        found = _table(topics, sites, model, judged)
        return found.filter(pa.array(now - model.last <= FORGET))

    return run


def _strings(table: pa.Table, name: str) -> pa.Array:
    column = table[name].combine_chunks()
    return column.cast(pa.string()) if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)


def models_of(kept: pa.Table, size: int) -> Model:
    """Return the models of `size` topics: first those of `kept`, then new ones."""
    model = unknown(np.zeros(size), np.zeros(size, dtype=np.int64))
    old, forecast = kept.num_rows, model.forecast
    model.last[:old] = kept["last"].to_numpy()
    state = _states(kept["model"])
    for number, name in enumerate(_NUMBERS):
        getattr(model, name)[:old] = state["numbers"][:, number]
    for number, name in enumerate(_SINGLE):
        getattr(forecast, name)[:old] = state["single"][:, number]
    for name in _LISTS:
        for number, column in enumerate(getattr(forecast, name)):
            column[:old] = state[name][:, number]
    for name in _SEASONS:
        getattr(forecast, name).values[:old] = state[name]
    return model


def _states(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return the models of a column as records, without a copy if the column has a single chunk."""
    pieces = [
        np.frombuffer(chunk.buffers()[2], _STATE, len(chunk), _begin(chunk)) for chunk in column.chunks if len(chunk)
    ]
    return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, _STATE), *pieces])


def _begin(chunk: pa.Array) -> int:
    """Return the offset of the first value's bytes in an array's data buffer."""
    return int(np.frombuffer(chunk.buffers()[1], np.int32, 1, chunk.offset * 4)[0])


def _table(topics: pa.Array, sites: pa.Array, model: Model, judged: tuple[Any, ...]) -> pa.Table:
    size, forecast = len(topics), model.forecast
    state = np.empty(size, _STATE)
    for number, name in enumerate(_NUMBERS):
        state["numbers"][:, number] = getattr(model, name)
    for number, name in enumerate(_SINGLE):
        state["single"][:, number] = getattr(forecast, name)
    for name in _LISTS:
        for number, values in enumerate(getattr(forecast, name)):
            state[name][:, number] = values
    for name in _SEASONS:
        state[name] = getattr(forecast, name).values
    offsets = pa.py_buffer(np.arange(0, (size + 1) * _STATE.itemsize, _STATE.itemsize, dtype=np.int32))
    models = pa.Array.from_buffers(pa.binary(), size, [None, offsets, pa.py_buffer(state)])
    columns: list[Any] = [topics, sites, pa.array(model.last), models]
    columns += [pa.array(np.broadcast_to(np.asarray(part, dtype=np.float64), size)) for part in judged]
    return pa.Table.from_arrays(columns, schema=pa.schema([*TOPICS, *JUDGED]))
