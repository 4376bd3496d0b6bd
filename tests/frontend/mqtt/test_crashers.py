"""Inputs that fuzzing once broke something with, and what hypothesis finds in a moment."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saps.frontend.mqtt.encode import encode
from tests.frontend.mqtt.fuzzing import TARGETS, fuzz_codec, fuzz_machine
from tests.frontend.mqtt.strategies import packets, versions

CRASHERS = sorted((Path(__file__).parent / "crashers").glob("*-*"))


@pytest.mark.parametrize("path", CRASHERS, ids=[path.name for path in CRASHERS])
def test_what_once_broke_something_does_not_any_more(path: Path) -> None:
    TARGETS[path.name.partition("-")[0]](path.read_bytes())


packet_bytes = versions.flatmap(lambda version: packets(version).map(lambda packet: encode(packet, version)))
actions = st.one_of(
    packet_bytes.map(lambda data: bytes((0, len(data) % 256)) + data[:255]),
    st.tuples(st.integers(0xE0, 0xE5), st.integers(0, 255)).map(bytes),
    st.binary(max_size=40).map(lambda data: bytes((0, len(data))) + data),
)


@settings(max_examples=25)
@given(st.lists(actions, max_size=8).map(b"".join))
def test_clients_that_do_anything_stay_within_their_limits(data: bytes) -> None:
    fuzz_machine(data)


@settings(max_examples=25)
@given(
    st.lists(packet_bytes | st.binary(max_size=10), max_size=3).map(b"".join), st.integers(0, 1000), st.integers(0, 255)
)
def test_what_can_be_decoded_is_encoded_alike(data: bytes, place: int, value: int) -> None:
    damaged = bytearray(data)
    if damaged:
        damaged[place % len(damaged)] = value
    fuzz_codec(bytes(damaged))
