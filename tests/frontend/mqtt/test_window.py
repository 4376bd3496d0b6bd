"""The packet identifiers of a session: a quarter of them, and those of a branch are others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.session.window import QUARTER, Window, beside, following

ids = st.integers(1, 0xFFFF)


@given(first=ids, taken=st.sets(ids, max_size=50), counts=st.lists(st.integers(1, 600), max_size=20))
def test_identifiers_are_free_and_of_one_quarter(first: int, taken: set[int], counts: list[int]) -> None:
    window = Window()
    window.next_id = first
    window.inflight.update(dict.fromkeys(taken))
    for count in counts:
        found = window.take_ids(count)
        assert len({*found}) == count
        assert not {*found} & window.inflight.keys()
        assert {packet_id // QUARTER for packet_id in found} == {first // QUARTER}
        assert all(1 <= packet_id <= 0xFFFF for packet_id in found)
        window.inflight.update(dict.fromkeys(found))


@given(first=ids)
def test_a_full_quarter_is_left(first: int) -> None:
    window = Window()
    window.next_id = first
    found: list[int] = []
    for count in (*[0x2000] * 7, 0x1FFF):
        packet_ids = window.take_ids(count)
        window.inflight.update(dict.fromkeys(packet_ids))
        found += packet_ids
    assert sorted(found) == [*range(1, 0x10000)]


@given(packet_id=ids, place=st.integers(0, 1 << 32))
def test_a_branch_has_identifiers_of_its_own(packet_id: int, place: int) -> None:
    """Those of four that come from each other differ."""
    quarters = []
    for _ in range(4):
        quarters.append(packet_id // QUARTER)
        assert following(packet_id) // QUARTER == quarters[-1]
        packet_id = beside(packet_id, place)
        assert 1 <= packet_id <= 0xFFFF
    assert len({*quarters}) == 4
