"""Every target with the inputs kept for it, what once broke something, and what hypothesis draws in a moment."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saps.frontend.mqtt.codec.encode import encode
from saps.topics import filter_fault
from scripts.fuzz import Fuzzing, blind, choose
from tests.frontend.mqtt.strategies import packets, versions
from tests.fuzzing import targets
from tests.fuzzing.datagrams import fuzz_datagrams
from tests.fuzzing.datagrams import seeds as datagrams
from tests.fuzzing.frames import fuzz_frames
from tests.fuzzing.links import fuzz_links
from tests.fuzzing.mqtt import fuzz_codec, fuzz_machine
from tests.fuzzing.node import fuzz_node
from tests.fuzzing.openflow import fuzz_switch
from tests.fuzzing.target import Target, corpus, crashers


@pytest.mark.parametrize("name", targets.MODULES)
def test_what_is_kept_for_a_target_breaks_nothing(name: str) -> None:
    target, inputs = targets.target(name), corpus(name)
    assert inputs
    for data in inputs:
        target.run(data)


@pytest.mark.parametrize(("name", "path"), crashers(), ids=[path.name for _, path in crashers()])
def test_what_once_broke_something_does_not_any_more(name: str, path: Path) -> None:
    targets.target(name).run(path.read_bytes())


# --- drawn anew ---------------------------------------------------------------------------------------------------


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


chunk = st.one_of(
    st.binary(max_size=60),
    st.tuples(st.sampled_from(datagrams()), st.integers(0, 200), st.integers(1, 255)).map(
        lambda drawn: bytes(byte ^ drawn[2] * (at == drawn[1]) for at, byte in enumerate(drawn[0][2:]))
    ),
)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), chunk), max_size=8))
def test_datagrams_of_any_kind_do_nothing_but_count(drawn: list[tuple[int, bytes]]) -> None:
    fuzz_datagrams(b"".join(bytes((kind, len(raw[:255]))) + raw[:255] for kind, raw in drawn))


@settings(max_examples=100)
@given(st.binary(max_size=300))
def test_any_frames_mean_the_same_when_they_are_written_again(data: bytes) -> None:
    fuzz_frames(data)


@settings(max_examples=30)
@given(st.binary(max_size=300))
def test_any_connections_leave_nothing_behind(data: bytes) -> None:
    fuzz_links(data)


@settings(max_examples=8)
@given(st.binary(min_size=200, max_size=800))
def test_a_hostile_broker_breaks_nobody(data: bytes) -> None:
    fuzz_node(data)


@settings(max_examples=30)
@given(st.binary(max_size=300))
def test_a_switch_outlives_its_controllers(data: bytes) -> None:
    fuzz_switch(data)


# --- the frame ----------------------------------------------------------------------------------------------------


def _fragile(data: bytes) -> None:
    assert b"!!" not in data


def test_what_breaks_a_target_is_kept(tmp_path: Path) -> None:
    target = Target("fragile", "nobody", _fragile, list)
    with pytest.raises(AssertionError):
        blind(Fuzzing(target, tmp_path), [b"one!", b"!other"], 20, 60.0, Random(1))
    (path,) = tmp_path.iterdir()
    assert b"!!" in path.read_bytes()


def test_an_input_that_takes_too_long_counts_as_broken(tmp_path: Path) -> None:
    target = Target("slow", "nobody", lambda data: sum(range(200_000)), list, timeout=0.0)
    with pytest.raises(AssertionError, match="s for 1 bytes"):
        Fuzzing(target, tmp_path).one(b"x")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"x"]


def test_of_many_inputs_those_are_kept_that_reach_more() -> None:
    target = Target("filters", "nobody", lambda data: filter_fault(data.decode()), list)
    chosen = choose(target, [b"a", b"b", b"a/b", b"", b"#/a", b"a/#", b"+b"], 10)
    assert {filter_fault(data.decode()) for data in chosen} == {
        filter_fault(data.decode()) for data in (b"a", b"", b"#/a", b"+b")
    }
    assert len(chosen) <= 4
