"""The latency statistics against exact percentiles."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.smart_city.latency import RECENT, RESOLUTION, SMALLEST, Latencies, percentile

LATENCIES = st.lists(st.floats(1e-5, 60), min_size=1, max_size=200)


def test_percentile_is_the_nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile(values, 100) == 100
    assert percentile([7.0], 1) == 7
    assert percentile([], 50) is None


@given(LATENCIES, st.sampled_from([1, 50, 90, 99, 100]))
def test_histogram_percentile_is_at_most_one_bucket_above_the_exact_one(values: list[float], percent: int) -> None:
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    exact, estimated = percentile(sorted(values), percent), latencies.percentile(percent)
    assert exact is not None
    assert estimated is not None
    assert exact * (1 - 1e-9) <= estimated <= exact * RESOLUTION * (1 + 1e-9)


def test_without_values_there_is_no_percentile() -> None:
    assert Latencies().percentile(50) is None


def test_a_clock_that_stepped_back_counts_as_the_smallest_latency() -> None:
    latencies = Latencies()
    latencies.add(-1.0)
    assert latencies.percentile(50) == SMALLEST


def test_memory_is_bounded() -> None:
    latencies = Latencies()
    for i in range(20_000):
        latencies.add(1e-5 * math.exp(i / 20_000 * math.log(1e6)))
    assert latencies.count == 20_000
    assert len(latencies.recent) == RECENT
    assert len(latencies._buckets) <= math.log(1e6) / math.log(RESOLUTION) + 2
    assert latencies.maximum == pytest.approx(10, rel=0.01)
