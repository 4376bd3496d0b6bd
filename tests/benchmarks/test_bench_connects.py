"""The benchmark of CONNECTs in a mesh: it measures what it says."""

from __future__ import annotations

from benchmarks.connects import HEADERS, cells, simulated


def test_a_small_mesh_is_measured() -> None:
    point = simulated(3, 4, 50)
    assert point.connects == 50
    assert point.processor > 0
    median, most, longest = point.times
    assert 0 < median <= most <= longest
    assert len(cells(point)) == len(HEADERS)
