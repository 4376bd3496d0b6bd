"""Measures the forecast's errors on synthetic series of eight kinds, forecast hour by hour.

Rivals are simple forecasts, and the automatic ETS and Theta models of statsforecast. Run it by
``python -m monitoring.forecasts.backtest --help``.

There are two measures of the next hour's error. WAPE is the sum of the absolute errors divided by the sum of the
values. MASE (Hyndman & Koehler 2006) is the mean absolute error as a multiple of the seasonal naive forecast's in the
learning time, for seasons of 24 and 168 h, averaged over the series. WAPE is also given for the mean of the next six
hours.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from monitoring.forecasts.forecast import (
    DEFAULT_MEMORY,
    HOUR,
    Memory,
    ahead,
    expected,
    faded,
    nothing_known,
    observe,
    silence,
)

Series = npt.NDArray[np.float64]
"""Rates by topic and hour; hour 0 is midnight."""
Rng = np.random.Generator
DAILY, WEEKLY = 24, 168
"""Seasons, in hours."""
LEARN = 2 * WEEKLY
"""Hours of learning, whose errors do not count."""
AHEAD = 6
OURS, LAST, NAIVE_DAY, NAIVE_WEEK, ETS, THETA = "ours", "last hour", "naive 24", "naive 168", "ETS", "Theta"


def cyclic(rng: Rng, topics: int, days: int) -> Series:
    """Return series with a daily wave, weaker on two days of the week."""
    weekend = np.where(np.arange(days * 24) // 24 % 7 >= 5, 0.6, 1.0)
    return _wave(rng, topics, days, 24, 0.8) * weekend * _noise(rng, 20, topics, days)


def bursty(rng: Rng, topics: int, days: int) -> Series:
    """Return series with a weak daily wave, much noise, and a burst every other day on average.

    A burst lasts one to four hours and is three to twelve times as busy."""
    found = _wave(rng, topics, days, 24, 0.5) * _noise(rng, 8, topics, days)
    for series in found:
        for _ in range(days // 2):
            begin = rng.integers(0, len(series))
            series[begin : begin + rng.integers(1, 5)] *= rng.uniform(3, 12)
    return found


def flat(rng: Rng, topics: int, days: int) -> Series:
    """Return series that are constant but for noise."""
    return _base(rng, topics) * _noise(rng, 20, topics, days)


def step(rng: Rng, topics: int, days: int) -> Series:
    """Return flat series whose level changes about every five days, by a factor from a third to three."""
    found = flat(rng, topics, days)
    for series in found:
        for begin in np.flatnonzero(rng.random(days * 24) < 1 / 120):
            series[begin:] *= np.exp(rng.uniform(-1.1, 1.1))
    return found


def intermittent(rng: Rng, topics: int, days: int) -> Series:
    """Return series without traffic in seven of ten hours on average."""
    active = rng.random((topics, days * 24)) < 0.3
    return np.where(active, _base(rng, topics) * _noise(rng, 2, topics, days), 0.0)


def half_day(rng: Rng, topics: int, days: int) -> Series:
    """Return series with a wave of 12 h."""
    return _wave(rng, topics, days, 12, 0.8) * _noise(rng, 20, topics, days)


def shifted(rng: Rng, topics: int, days: int) -> Series:
    """Return series with a wave of 21 h, which peaks at another hour each day."""
    return _wave(rng, topics, days, 21, 0.8) * _noise(rng, 20, topics, days)


def trend(rng: Rng, topics: int, days: int) -> Series:
    """Return series with a daily wave that grows to three times its height."""
    hours = np.arange(days * 24)
    return _wave(rng, topics, days, 24, 0.8) * (1 + 2 * hours / len(hours)) * _noise(rng, 20, topics, days)


SERIES: dict[str, Callable[[Rng, int, int], Series]] = {
    "cyclic": cyclic,
    "bursty": bursty,
    "flat": flat,
    "step": step,
    "intermittent": intermittent,
    "12 h": half_day,
    "21 h": shifted,
    "trend": trend,
}


class Forecasts(NamedTuple):
    """Forecasts made at the beginning of each hour from `LEARN` on, by topic and hour."""

    hour: Series
    """Forecasts of the next hour."""
    six: Series
    """Forecasts of the mean of the next `AHEAD` hours."""


class Errors(NamedTuple):
    """Errors of one kind of forecast."""

    wape: float
    mase_24: float
    mase_168: float
    six: float
    """WAPE of the mean of the next six hours."""


def backtest(series: Series, memory: Memory = DEFAULT_MEMORY, *, rivals: bool = False) -> dict[str, Errors]:
    """Forecast each hour from the hours before it. Returns the errors by kind of forecast.

    `rivals` adds ETS and Theta. Raises ModuleNotFoundError if `rivals` is set and statsforecast is not installed."""
    said = {OURS: ours(series, memory), **naive(series)}
    if rivals:
        said |= automatic(series)
    six = _means(series)
    scales = [np.abs(series[:, season:LEARN] - series[:, : LEARN - season]).mean(1) for season in (DAILY, WEEKLY)]
    truth, errors = series[:, LEARN : LEARN + six.shape[1]], {}
    for name, forecasts in said.items():
        off = np.abs(forecasts.hour - truth)
        daily, weekly = (float((off.mean(1) / scale).mean()) for scale in scales)
        errors[name] = Errors(
            float(off.sum() / truth.sum()), daily, weekly, float(np.abs(forecasts.six - six).sum() / six.sum())
        )
    return errors


def _means(series: Series) -> Series:
    """Return the mean of the `AHEAD` hours from each hour on, beginning with `LEARN`."""
    windows = np.lib.stride_tricks.sliding_window_view(series[:, LEARN:], AHEAD, axis=1)
    means: Series = windows.mean(2)
    return means


def ours(series: Series, memory: Memory = DEFAULT_MEMORY) -> Forecasts:
    """Return this package's forecasts. As in the job, hours without traffic are not observed."""
    topics, hours = series.shape
    known, last = nothing_known(np.zeros(topics)), np.zeros(topics, dtype=np.int64)
    said: list[tuple[Series, Series]] = []
    for hour in range(hours - AHEAD + 1):
        at, rates = hour * HOUR, series[:, hour]
        if hour >= LEARN:
            here = faded(known, at - last, memory)
            said.append((expected(here, at, 0, memory), ahead(here, at, AHEAD, memory)))
        rows = np.flatnonzero(rates)
        before = silence(known.part(rows), np.where(last[rows] > 0, last[rows], at), at, memory)
        known.put(rows, observe(before, rates[rows], at, 1.0, memory))
        last[rows] = at + HOUR
    return Forecasts(*(np.stack(columns, axis=1) for columns in zip(*said, strict=True)))


def naive(series: Series) -> dict[str, Forecasts]:
    """Return the naive forecasts: the last hour's value, and the values of the same hours a day and a week before."""
    hours = np.arange(LEARN, series.shape[1] - AHEAD + 1)
    found = {LAST: Forecasts(series[:, hours - 1], series[:, hours - 1])}
    for name, season in ((NAIVE_DAY, DAILY), (NAIVE_WEEK, WEEKLY)):
        six = np.mean([series[:, hours - season + step] for step in range(AHEAD)], axis=0)
        found[name] = Forecasts(series[:, hours - season], six)
    return found


def automatic(series: Series) -> dict[str, Forecasts]:
    """Return the forecasts of ETS and Theta with a season of 24 h.

    The model is chosen and fitted for each topic once a week, and only updated in between."""
    import pandas as pd
    from statsforecast import StatsForecast
    from statsforecast.models import AutoETS, AutoTheta

    topics, hours = series.shape
    frame = pd.DataFrame(
        {
            "unique_id": np.repeat(np.arange(topics), hours),
            "ds": np.tile(np.arange(hours), topics),
            "y": series.reshape(-1),
        }
    )
    windows = hours - AHEAD + 1 - LEARN
    models = [AutoETS(season_length=DAILY, alias=ETS), AutoTheta(season_length=DAILY, alias=THETA)]
    found = StatsForecast(models=models, freq=1, n_jobs=1).cross_validation(
        df=frame, h=AHEAD, step_size=1, n_windows=windows, refit=WEEKLY
    )
    found = found.sort_values(["unique_id", "cutoff", "ds"])
    said = {name: np.maximum(found[name].to_numpy().reshape(topics, windows, AHEAD), 0.0) for name in (ETS, THETA)}
    return {name: Forecasts(steps[:, :, 0], steps.mean(2)) for name, steps in said.items()}


def _wave(rng: Rng, topics: int, days: int, period: int, height: float) -> Series:
    begin = rng.integers(0, period, topics)[:, None]
    wave: Series = 1 + height * np.sin((np.arange(days * 24) - begin) / period * 2 * np.pi)
    return _base(rng, topics) * wave


def _base(rng: Rng, topics: int) -> Series:
    return rng.lognormal(1, 1, topics)[:, None]


def _noise(rng: Rng, shape: float, topics: int, days: int) -> Series:
    return rng.gamma(shape, 1 / shape, (topics, days * 24))


def main(argv: list[str] | None = None) -> None:
    """Print the figures of docs/monitoring.md, one line for each kind of series and forecast."""
    parser = argparse.ArgumentParser(prog="python -m monitoring.forecasts.backtest", description=__doc__)
    parser.add_argument("--topics", type=int, default=24, help="series of each kind")
    parser.add_argument("--days", type=int, default=28, help="half of the default is learning")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rivals", action="store_true", help="ETS and Theta, too: five minutes of processor")
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args(argv)
    results = {}
    for name, make in SERIES.items():
        result = backtest(make(np.random.default_rng(chosen.seed), chosen.topics, chosen.days), rivals=chosen.rivals)
        results[name] = {rival: errors._asdict() for rival, errors in result.items()}
        for rival, errors in result.items():
            print(
                f"{name:13} {rival:10} WAPE {errors.wape:6.1%}  MASE {errors.mase_24:5.3f} {errors.mase_168:5.3f}  "
                f"six hours {errors.six:6.1%}",
                flush=True,
            )
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
