"""The benchmark of many filters at once: it measures what it says."""

from __future__ import annotations

import pytest

from benchmarks.many_filters import cells, markdown, measured

pytestmark = pytest.mark.slow


def test_a_small_mesh_is_measured() -> None:
    point = measured(2, 2, 200)
    assert point.suback > 0
    assert point.lost == 0
    assert point.processor > 0
    assert all(0 < median <= high <= longest for median, high, longest in (point.calm, point.busy))
    assert cells(point)[:3] == ("2", "2", "200")
    assert "| 2 | 2 | 200 |" in markdown([point], "command")
