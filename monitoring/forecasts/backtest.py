"""How good the forecast is: made-up series of known kinds, forecast hour by hour, beside simple forecasts.

The error is the weighted absolute percentage error (WAPE): the sum of the absolute errors by the sum of the values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from monitoring.forecasts.forecast import DEFAULT_MEMORY, HOUR, Memory, ahead, expected, nothing_known, observe

Series = npt.NDArray[np.float64]
"""Rates by topic and hour; hour 0 is midnight."""
Rng = np.random.Generator


def cyclic(rng: Rng, topics: int, days: int) -> Series:
    """A daily wave, weaker on two days of the week."""
    hours = np.arange(days * 24)
    factor = 1 + 0.8 * np.sin((hours - _phase(rng, topics)) / 24 * 2 * np.pi)
    return _base(rng, topics) * factor * np.where(hours // 24 % 7 >= 5, 0.6, 1.0) * _noise(rng, 20, topics, days)


def bursty(rng: Rng, topics: int, days: int) -> Series:
    """A weak daily wave, much noise, and every other day a burst: one to four hours, three to twelve times as busy."""
    hours = np.arange(days * 24)
    factor = 1 + 0.5 * np.sin((hours - _phase(rng, topics)) / 24 * 2 * np.pi)
    found: Series = _base(rng, topics) * factor * _noise(rng, 8, topics, days)
    for series in found:
        for _ in range(days // 2):
            begin = rng.integers(0, len(series))
            series[begin : begin + rng.integers(1, 5)] *= rng.uniform(3, 12)
    return found


def growing(rng: Rng, topics: int, days: int) -> Series:
    """A daily wave that becomes three times as high."""
    hours = np.arange(days * 24)
    factor = 1 + 0.8 * np.sin((hours - _phase(rng, topics)) / 24 * 2 * np.pi)
    return _base(rng, topics) * factor * (1 + 2 * hours / len(hours)) * _noise(rng, 20, topics, days)


SERIES: dict[str, Callable[[Rng, int, int], Series]] = {"cyclic": cyclic, "bursty": bursty, "growing": growing}


class Backtest(NamedTuple):
    """WAPE of the forecasts for the next hour, and for the mean of the next six."""

    ours: float
    last: float
    """The last hour's value."""
    yesterday: float
    """The value 24 h before."""
    day: float
    """The mean of the last 24 h."""
    ours_six: float
    last_six: float


def backtest(series: Series, warm: int = 168, memory: Memory = DEFAULT_MEMORY) -> Backtest:
    """Forecast each hour from those before it; the first `warm` ones do not count."""
    known = nothing_known(np.zeros(len(series)))
    errors, total, total_six = np.zeros(6), 0.0, 0.0
    for hour in range(series.shape[1]):
        truth = series[:, hour]
        if hour >= warm:
            guesses = (
                expected(known, hour * HOUR, 0, memory),
                series[:, hour - 1],
                series[:, hour - 24],
                series[:, hour - 24 : hour].mean(1),
            )
            errors[:4] += [float(np.abs(guess - truth).sum()) for guess in guesses]
            total += float(truth.sum())
            six = series[:, hour : hour + 6].mean(1)
            errors[4] += np.abs(ahead(known, hour * HOUR, 6, memory) - six).sum()
            errors[5] += np.abs(series[:, hour - 1] - six).sum()
            total_six += float(six.sum())
        known = observe(known, truth, hour * HOUR, 1.0, memory)
    return Backtest(*(errors / np.array([total] * 4 + [total_six] * 2)).tolist())


def _base(rng: Rng, topics: int) -> Series:
    return rng.lognormal(1, 1, topics)[:, None]


def _phase(rng: Rng, topics: int) -> npt.NDArray[np.int64]:
    return rng.integers(0, 24, topics)[:, None]


def _noise(rng: Rng, shape: float, topics: int, days: int) -> Series:
    return rng.gamma(shape, 1 / shape, (topics, days * 24))


def main() -> None:
    """Print the figures of docs/monitoring.md."""
    for name, make in SERIES.items():
        result = backtest(make(np.random.default_rng(1), 300, 14))
        print(name, "  ".join(f"{field} {value:.1%}" for field, value in result._asdict().items()))


if __name__ == "__main__":
    main()
