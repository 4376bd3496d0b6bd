"""Topics over planes, by their loads."""

from __future__ import annotations

from math import frexp

from hypothesis import given
from hypothesis import strategies as st

from saps.ofm.stateless.spread import by_hash, by_load, carried

LOADS = st.dictionaries(st.text(min_size=1, max_size=3), st.floats(0.001, 1e9), max_size=60)
PLANES = st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True)


@given(loads=LOADS, planes=PLANES)
def test_the_busiest_plane_carries_its_share_and_less_than_one_topic_more(
    loads: dict[str, float], planes: list[int]
) -> None:
    """Of loads that are powers of two, as all of them count (Graham 1969)."""
    classes = {topic: 2.0 ** frexp(load)[1] for topic, load in loads.items()}
    chosen = by_load(loads, planes)
    assert chosen.keys() == loads.keys()
    found = carried(classes, chosen, planes)
    largest = max(classes.values(), default=0.0)
    assert max(found.values()) <= sum(classes.values()) / len(planes) + (1 - 1 / len(planes)) * largest + 1e-6


@given(loads=LOADS, planes=PLANES, change=st.floats(0.75, 1.0))
def test_a_load_that_changes_a_little_moves_no_topic(loads: dict[str, float], planes: list[int], change: float) -> None:
    rounded = {topic: 0.999 * 2.0 ** frexp(load)[1] for topic, load in loads.items()}
    assert by_load(rounded, planes) == by_load({topic: load * change for topic, load in rounded.items()}, planes)


def test_a_few_busy_topics_are_spread_better_than_by_a_hash() -> None:
    """Zipf's law; the busiest of four planes carries 28 % instead of 40 %."""
    loads = {f"city/{number}": 1e6 / number for number in range(1, 101)}
    planes, total = range(4), sum(loads.values())
    spread, hashed = (max(carried(loads, each, planes).values()) / total for each in (by_load(loads, planes), {}))
    assert (round(spread, 2), round(hashed, 2)) == (0.28, 0.4)


def test_other_topics_and_planes_that_do_not_work_are_left_to_the_hash() -> None:
    assert by_load({"a": 1.0, "b": 0.0}, []) == {}
    assert by_load({"a": 1.0, "b": 0.0}, [3]) == {"a": 3}
    assert carried({"a": 1.0, "b": 2.0}, {"a": 7}, [1, 2]) == {
        plane: sum(load for topic, load in (("a", 1.0), ("b", 2.0)) if by_hash(topic, [1, 2]) == plane)
        for plane in (1, 2)
    }
