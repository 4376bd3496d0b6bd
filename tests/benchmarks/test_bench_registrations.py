"""The benchmark of registrations in a small mesh: it measures what it says."""

from __future__ import annotations

from benchmarks.registrations import cells, filters_of, simulated
from saps.topics import matches


def test_the_filters_are_different_and_four_match_each_topic() -> None:
    wanted = filters_of(400)
    assert len(set(wanted)) == 400
    assert all(sum(matches(f, topic) for f in wanted) == 4 for topic in wanted if "+" not in topic and "#" not in topic)


def test_a_small_mesh_is_measured() -> None:
    point = simulated(200)
    assert point.filters == 200
    assert min(point.subscribe, point.unsubscribe, point.match) > 0
    assert cells(point)[1] == "200"
