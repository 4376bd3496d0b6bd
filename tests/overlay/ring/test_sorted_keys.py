"""Keys in order, beside a sorted list of the standard library."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from saps.overlay.ring import sorted_keys
from saps.overlay.ring.keys import Key
from saps.overlay.ring.sorted_keys import SortedKeys

KEYS = st.integers(0, 30).map(lambda number: Key(b"%02d" % number))
STEPS = st.lists(st.tuples(st.booleans(), KEYS), max_size=120)


@given(STEPS, st.integers(2, 5))
@settings(max_examples=200)
def test_finds_what_a_plain_sorted_list_finds(steps: list[tuple[bool, Key]], longest: int) -> None:
    keys, model = SortedKeys(), set[Key]()
    with patch.object(sorted_keys, "LONGEST", longest):
        for adds, key in steps:
            if adds:
                assert keys.add(key) == (key not in model)
                model.add(key)
            else:
                keys.discard(key)
                model.discard(key)
            found = sorted(model)
            assert list(keys) == found == [keys[at] for at in range(len(keys))]
            less, more = [each for each in found if each < key], [each for each in found if each > key]
            assert (keys.first(), keys.last()) == (min(found, default=None), max(found, default=None))
            assert (keys.before(key), keys.after(key)) == (max(less, default=None), min(more, default=None))
            assert keys.at_or_after(key) == (key if key in model else keys.after(key))


@given(STEPS, KEYS, KEYS)
def test_a_range_has_its_low_end_and_not_its_high_end(steps: list[tuple[bool, Key]], low: Key, high: Key) -> None:
    keys = SortedKeys()
    with patch.object(sorted_keys, "LONGEST", 3):
        for _, key in steps:
            keys.add(key)
    assert keys.between(low, high) == [key for key in keys if low <= key < high]
