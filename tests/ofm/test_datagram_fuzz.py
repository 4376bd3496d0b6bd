"""Inputs that fuzzing once broke something with, and what hypothesis finds in a moment."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .datagram_fuzzing import fuzz_datagrams, seeds

CRASHERS = sorted((Path(__file__).parent / "crashers").glob("*-*"))


@pytest.mark.parametrize("data", [*seeds(), *(path.read_bytes() for path in CRASHERS)])
def test_what_fuzzing_begins_with_and_what_once_broke_something_breaks_nothing(data: bytes) -> None:
    fuzz_datagrams(data)


chunk = st.one_of(
    st.binary(max_size=60),
    st.tuples(st.sampled_from(seeds()), st.integers(0, 200), st.integers(1, 255)).map(
        lambda drawn: bytes(byte ^ drawn[2] * (at == drawn[1]) for at, byte in enumerate(drawn[0][2:]))
    ),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), chunk), max_size=8))
def test_datagrams_of_any_kind_do_nothing_but_count(datagrams: list[tuple[int, bytes]]) -> None:
    fuzz_datagrams(b"".join(bytes((kind, len(raw[:255]))) + raw[:255] for kind, raw in datagrams))
