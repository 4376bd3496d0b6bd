"""What a session has had is packed, and is what it was."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.routing.batch import UNNUMBERED, Origin
from saps.storage.past import LAST, RECENT, TOGETHER, Asked, Brought, Recent, check, firsts, pack, unpack

origins = st.builds(Origin, st.sampled_from("ab"), st.integers(1, 2), st.integers(1, 300) | st.just(UNNUMBERED + 7))
many = st.lists(origins, max_size=3 * TOGETHER)


@given(steps=st.lists(st.lists(origins, max_size=400), max_size=6))
def test_what_is_packed_is_what_was_added(steps: list[list[Origin]]) -> None:
    recent, added = Recent(), list[Origin]()
    for step in steps:
        recent.extend(step)
        added += step
    assert len(recent) == len(added)
    assert Counter(recent) == Counter(added) == Counter(unpack(recent.packed))
    packed = len(added) // TOGETHER * TOGETHER
    for begin in range(0, packed, TOGETHER):
        assert Counter([*recent][begin : begin + TOGETHER]) == Counter(added[begin : begin + TOGETHER])
    assert [*recent][packed:] == added[packed:]


@given(before=many, added=many, most=st.integers(0, 4 * TOGETHER))
def test_what_joins_what_is_packed_counts_and_is_forgotten_as_the_rest(
    before: list[Origin], added: list[Origin], most: int
) -> None:
    recent = Recent()
    recent.extend(before, 1 << 20)
    recent.join(pack(added), 1 << 20)
    assert Counter(recent) == Counter(before) + Counter(added)
    recent.join([], most)
    assert len(recent) == len([*recent])
    assert min(most, len(before) + len(added)) <= len(recent) < most + 2 * TOGETHER


@given(moves=st.lists(st.lists(origins, max_size=TOGETHER), max_size=12))
def test_moves_leave_no_small_change(moves: list[list[Origin]]) -> None:
    """Each left up to three packs that stayed so, however few were in them."""
    recent = Recent()
    for had in moves:
        before, recent = recent, Recent()
        recent.join([*before.packed, *pack(had)], 1 << 20)
    assert Counter(recent) == Counter(origin for had in moves for origin in had)
    assert len(recent.packed) <= len(recent) // TOGETHER + 1


@given(had=many, asked=many)
def test_what_is_asked_for_is_found_packed_or_not(had: list[Origin], asked: list[Origin]) -> None:
    common = {*had} & {*asked}
    wanted = Asked([*asked, None])
    assert wanted.among(pack(had)) == common == {origin for origin in had if origin in wanted}
    brought = Brought()
    half = len(had) // 2
    brought.join(pack(had[:half]))
    brought.add(had[half:])
    assert bool(brought) is bool(had)
    assert [origin in brought for origin in asked] == [origin in {*had} for origin in asked]
    assert None not in brought
    brought.clear()
    assert not brought


@given(had=many)
def test_the_first_of_each_incarnation_is_known(had: list[Origin]) -> None:
    assert firsts(pack(had)) == {
        incarnation: min(origin.seq for origin in had if origin[:2] == incarnation)
        for incarnation in {origin[:2] for origin in had}
    }


@given(raw=st.binary(max_size=40) | st.sampled_from([b"\x91\x93\xa1a\x01\x90", b"\x91\x93\xa1a\x01\x91\xff"]))
def test_anything_else_is_refused(raw: bytes) -> None:
    try:
        check([raw])
    except ValueError:
        for use in (Recent().join, Brought().join, unpack, firsts, Asked([Origin("a", 1, 1)]).among):
            with pytest.raises(ValueError, match="publications of before"):
                use([raw])


def test_numbers_have_an_end() -> None:
    above = pack([Origin("a", 1, LAST)])[0].replace(b"\x91\xcf", b"\x92\x01\xcf")
    check(pack([Origin("a", 1, LAST)]))
    with pytest.raises(ValueError, match="too large"):
        check([above])


def test_the_oldest_are_forgotten_and_little_memory_is_used() -> None:
    recent = Recent()
    every = [Origin(f"b{number % 3}", 1, 10 * number) for number in range(3 * RECENT)]
    for origin in every:
        recent.extend([origin])
    assert RECENT <= len(recent) < RECENT + TOGETHER
    assert {*recent} == {*every[-len(recent) :]}
    assert sum(map(len, recent.packed)) < 2 * RECENT
