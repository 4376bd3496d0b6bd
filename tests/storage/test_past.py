"""What a session has had is packed, and is what it was."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from saps.routing.batch import UNNUMBERED, Origin
from saps.storage.past import RECENT, TOGETHER, Recent

origins = st.builds(Origin, st.sampled_from("ab"), st.integers(1, 2), st.integers(1, 300) | st.just(UNNUMBERED + 7))


@given(steps=st.lists(st.lists(origins, max_size=400), max_size=6))
def test_what_is_packed_is_what_was_added(steps: list[list[Origin]]) -> None:
    recent, added = Recent(), list[Origin]()
    for step in steps:
        recent.extend(step)
        added += step
    assert len(recent) == len(added)
    assert Counter(recent) == Counter(added)
    packed = len(added) // TOGETHER * TOGETHER
    for begin in range(0, packed, TOGETHER):
        assert Counter([*recent][begin : begin + TOGETHER]) == Counter(added[begin : begin + TOGETHER])
    assert [*recent][packed:] == added[packed:]


def test_the_oldest_are_forgotten_and_little_memory_is_used() -> None:
    recent = Recent()
    every = [Origin(f"b{number % 3}", 1, 10 * number) for number in range(3 * RECENT)]
    for origin in every:
        recent.extend([origin])
    assert RECENT <= len(recent) < RECENT + TOGETHER
    assert {*recent} == {*every[-len(recent) :]}
    assert sum(map(len, recent._packed)) < 2 * RECENT
