"""The growth benchmark, at sizes where the right answers are known."""

from __future__ import annotations

import math

import pytest

from benchmarks.overlay import Overlay, Point, markdown, measure, slope


@pytest.mark.simulation
def test_counts_of_a_small_overlay() -> None:
    point = measure(16, seed=3)
    assert point.multicast_messages == 15, "one message for each other broker"
    assert 15 <= point.call_messages <= 16 + point.search_max
    assert 0 < point.search_mean <= point.search_max < 16
    assert 1 <= point.multicast_depth <= 15


@pytest.mark.simulation
def test_equal_seeds_give_equal_figures() -> None:
    assert measure(12, seed=5) == measure(12, seed=5)


@pytest.mark.simulation
def test_a_pair_needs_one_hop_at_most() -> None:
    overlay = Overlay(2, seed=1)
    overlay.subscribe_all()
    assert {overlay.search() for _ in range(20)} <= {0, 1}
    assert overlay.publish() == (1, 1)


def test_slope_is_hops_for_each_doubling() -> None:
    points = [Point(2**i, 3.0 * i + 1, 0, 0.0, 0, 0.0, 0) for i in range(3, 9)]
    assert math.isclose(slope(points, lambda point: point.search_mean), 3.0)
    assert "adds 3.0 hops" in markdown(points, 1)
