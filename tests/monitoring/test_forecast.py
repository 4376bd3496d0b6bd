"""The forecast: better than the last value on cyclic and on bursty traffic, and the same for one topic and for many."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

np = pytest.importorskip("numpy")

from monitoring.forecasts.backtest import (  # noqa: E402
    AHEAD,
    LAST,
    LEARN,
    NAIVE_DAY,
    NAIVE_WEEK,
    OURS,
    SERIES,
    automatic,
    backtest,
)
from monitoring.forecasts.forecast import BLOCK, HOUR, ahead, expected, least, nothing_known, observe, silence  # noqa: E402


@pytest.mark.parametrize("kind", list(SERIES))
def test_no_naive_forecast_is_better(kind: str) -> None:
    """Neither the last hour nor the same hour of yesterday or of last week; of six hours, not the last hour."""
    errors = backtest(SERIES[kind](np.random.default_rng(5), 12, 28))
    ours = errors[OURS]
    for naive in (errors[name] for name in (LAST, NAIVE_DAY, NAIVE_WEEK)):
        assert ours.wape < naive.wape
        assert ours.mase_24 < naive.mase_24
        assert ours.mase_168 < naive.mase_168
    assert ours.six < 0.85 * errors[LAST].six


@pytest.mark.parametrize("kind", [kind for kind in SERIES if kind not in ("bursty", "intermittent")])
def test_what_is_certain_comes_four_times_of_five(kind: str) -> None:
    """The mean of the next block is at least as high, on all topics together; `LEARN` hours do not count."""
    series = SERIES[kind](np.random.default_rng(6), 12, 28)
    known, kept, blocks = nothing_known(np.zeros(12)), 0, 0
    for hour in range(series.shape[1] - BLOCK):
        if hour >= LEARN and hour % BLOCK == 0:
            certain = least(known, ahead(known, hour * HOUR, BLOCK))
            kept += int((series[:, hour : hour + BLOCK].mean(1) >= certain).sum())
            blocks += 12
        known = observe(known, series[:, hour], hour * HOUR, 1.0)
    assert 0.76 < kept / blocks < 0.84


@pytest.mark.simulation  # 10 s: numba compiles
def test_ets_and_theta_are_asked_for_the_same_hours() -> None:
    pytest.importorskip("statsforecast")
    hours = np.arange(LEARN + AHEAD + 3)
    series = (10 + 8 * np.sin(hours / 24 * 2 * np.pi))[None, :]
    truth = series[:, LEARN : LEARN + 4]
    for forecasts in automatic(series).values():
        assert forecasts.hour == pytest.approx(truth, rel=0.05)
        assert forecasts.six[0, 0] == pytest.approx(series[0, LEARN : LEARN + AHEAD].mean(), rel=0.05)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.floats(0, 1e6)), min_size=1, max_size=30),
    st.integers(0, 10**6),
    st.sampled_from([60_000, 300_000, HOUR]),
)
def test_many_at_once_are_the_same_to_the_last_bit(steps: list[tuple[int, float]], begin: int, length: int) -> None:
    one, many, last = nothing_known(), nothing_known(np.zeros(3)), begin * length
    for gap, rate in steps:
        start = last + gap * length
        one = observe(silence(one, last, start), rate, start, length / HOUR)
        many = observe(silence(many, last, start), np.full(3, rate), start, length / HOUR)
        last = start + length
    assert one.level == many.level[1]
    for season in ("day", "week", "hours"):
        assert getattr(one, season).values == getattr(many, season).values[2].tolist()
    assert one.errors == [error[0] for error in many.errors]
    assert least(one, 1.0) == least(many, np.ones(3))[1]
    assert ahead(one, last, 6) == ahead(many, last, 6)[1]


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=60), st.integers(1, 48))
def test_it_is_finite_and_not_negative(rates: list[float], hours: int) -> None:
    known = nothing_known()
    for number, rate in enumerate(rates):
        known = observe(known, rate, number * HOUR, 1.0)
    forecast = ahead(known, len(rates) * HOUR, hours)
    assert 0.0 <= forecast < 1e13


def test_a_new_topic_is_expected_to_go_on_as_it_began() -> None:
    known = observe(nothing_known(), 7.0, 10 * HOUR, 1 / 12)
    assert expected(known, 10 * HOUR + HOUR // 12, 0) == pytest.approx(7.0)


def test_an_hour_that_is_always_silent_is_expected_to_be() -> None:
    known, rng = nothing_known(), random.Random(1)
    for hour in range(24 * 10):
        if 6 <= hour % 24 < 22:
            last = (hour - 1 if hour % 24 != 6 else hour - 8) * HOUR + HOUR
            known = observe(silence(known, last, hour * HOUR), 5.0 + rng.random(), hour * HOUR, 1.0)
    end = 24 * 10 * HOUR
    assert expected(known, end, 2) < 0.2 * expected(known, end, 12)


@pytest.mark.parametrize("change", [lambda rate, day: rate * (1 + day), lambda rate, day: rate * (28 - day)])
def test_it_follows_a_trend(change: Callable[[float, float], float]) -> None:
    known = nothing_known()
    for hour in range(24 * 14):
        known = observe(known, change(10.0, hour / 24), hour * HOUR, 1.0)
    after = change(10.0, 14.0)
    assert expected(known, 24 * 14 * HOUR, 0) == pytest.approx(after, rel=0.15)
