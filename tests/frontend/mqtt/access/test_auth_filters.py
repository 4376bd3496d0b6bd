"""Topic filters as sets of topics, against all topics of a small world."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.access.filters import admits, covers, meet
from saps.topics import filter_fault, matches

LEVELS = ("", "a", "b", "$x")
WORLD = ["/".join(parts) for n in range(1, 5) for parts in product(LEVELS, repeat=n)]
"""All topics of up to four levels. `b` stands for any name no filter has, and four levels are one more than filters
have, so what holds in this world holds for all topics."""

filters = (
    st.lists(st.sampled_from(("", "a", "$x", "+", "#")), min_size=1, max_size=3)
    .map("/".join)
    .filter(lambda text: filter_fault(text) is None)
)


def split(text: str) -> tuple[str, ...]:
    return tuple(text.split("/"))


def extension(topic_filter: str) -> set[str]:
    return {topic for topic in WORLD if matches(topic_filter, topic)}


@given(filters)
def test_a_filter_admits_the_topics_it_matches(topic_filter: str) -> None:
    assert {topic for topic in WORLD if admits(split(topic_filter), split(topic))} == extension(topic_filter)


@given(filters, filters)
def test_covering_is_being_a_superset(outer: str, inner: str) -> None:
    assert covers(split(outer), split(inner)) == (extension(outer) >= extension(inner))


@given(filters, filters)
def test_meeting_is_having_a_topic_in_common(one: str, other: str) -> None:
    assert meet(split(one), split(other)) == bool(extension(one) & extension(other))
