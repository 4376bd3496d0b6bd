"""What a session has had: what it remembers one by one is read as it was; older ranges cover no more than there was."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from saps.routing.batch import UNNUMBERED, Origin
from saps.storage.past import MOST_RANGES, Older, Past, Range

places = st.tuples(st.sampled_from("ab"), st.integers(1, 2), st.sampled_from(("t/1", "t/2")))
numbered = st.lists(st.tuples(places, st.integers(1, 40)), max_size=60)


def older_of(pairs: list[tuple[tuple[str, int, str], int]]) -> Older:
    found = Older()
    found.add((Origin(broker, incarnation, seq), topic) for (broker, incarnation, topic), seq in pairs)
    return found


@given(numbered)
def test_a_past_is_read_as_it_was_written(pairs: list[tuple[tuple[str, int, str], int]]) -> None:
    had = {Origin(broker, incarnation, seq): topic for (broker, incarnation, topic), seq in pairs}
    past = Past.of(had, older_of(pairs).ranges)
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(past), type=Past)
    assert (read, read.had) == (past, had)


@given(numbered)
def test_what_comes_in_order_is_covered_and_what_lies_outside_is_not(
    pairs: list[tuple[tuple[str, int, str], int]],
) -> None:
    older = older_of(sorted(pairs))
    numbers: dict[tuple[str, int, str], list[int]] = {}
    for place, seq in pairs:
        numbers.setdefault(place, []).append(seq)
    for place, seqs in numbers.items():
        broker, incarnation, topic = place
        covered = [seq for seq in range(50) if older.covers(Origin(broker, incarnation, seq), topic)]
        assert covered == [*range(min(seqs), max(seqs) + 1)]
        assert not older.covers(Origin(broker, 3, min(seqs)), topic)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 10)), max_size=10))
def test_joined_ranges_cover_nothing_that_none_of_them_covers(spans: list[tuple[int, int]]) -> None:
    older = Older()
    for first, length in spans:
        older.join([Range("a", 1, "t", first, first + length)])
    every = {seq for first, length in spans for seq in range(first, first + length + 1)}
    covered = {seq for seq in range(60) if older.covers(Origin("a", 1, seq), "t")}
    assert covered <= every
    assert not every or max(every) in covered


def test_only_so_many_ranges_are_remembered_and_no_number_that_the_mesh_has_not_given() -> None:
    older = Older()
    older.add((Origin("a", 1, 7), f"t/{number}") for number in range(MOST_RANGES + 5))
    older.add([(Origin("a", 1, UNNUMBERED + 1), "unnumbered")])
    assert [each.topic for each in older.ranges] == [f"t/{number}" for number in range(5, MOST_RANGES + 5)]
