"""Finding a topic's subscribers takes the same work, however many others there are."""

from __future__ import annotations

import pytest

from benchmarks.matching import SHAPES, Shape, measure, topic_of
from saps.topics import matches

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_match_is_no_more_work_among_a_hundred_times_the_subscriptions(shape: Shape) -> None:
    few, many = (measure(shape, count, seed=1) for count in (320, 32_000))
    assert many.subscriptions == 100 * few.subscriptions
    assert many.calls == few.calls > 0


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_each_topic_of_a_load_has_its_own_subscribers_and_no_others(shape: Shape) -> None:
    filters = [(number, f) for number in range(1100) for f in shape.filters(number)]
    assert len({f for _, f in filters}) == len(filters)
    for number in (0, 9, 1000):
        assert [owner for owner, f in filters if matches(f, topic_of(number))] == [number] * shape.matches
