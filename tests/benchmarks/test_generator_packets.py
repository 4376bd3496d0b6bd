"""The pre-encoded packets and the grid they form."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import packets
from benchmarks.packets import Layout, Ring


@pytest.mark.parametrize(
    ("size", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16383, "ff7f"),
        (16384, "808001"),
        (268435455, "ffffff7f"),
    ],
)
def test_remaining_length_as_in_table_2_4_of_the_standard(size: int, encoded: str) -> None:
    assert packets.remaining_length(size).hex() == encoded


def test_connect_asks_for_a_clean_session_unless_it_is_to_last() -> None:
    assert packets.connect("c").hex() == "100d00044d51545404020000000163"
    assert packets.connect("c", lasting=True).hex() == "100d00044d51545404000000000163"


def test_publish_is_what_the_standard_says() -> None:
    assert packets.publish("a/b", b"xy", 0, 7).hex() == "30070003612f627879"
    assert packets.publish("a/b", b"xy", 1, 7).hex() == "32090003612f6200077879"


@given(st.integers(8, 20000), st.sampled_from([0, 1]), st.sampled_from([256, 512]))
def test_every_packet_of_a_ring_lies_on_the_grid(payload: int, qos: int, length: int) -> None:
    ring = Ring("bench/topic", payload % 400 + 8 if length > 256 else payload, qos, length)
    layout = ring.layout
    assert len(ring.bytes) == layout.size * length
    for number in (0, 1, 255, length - 1):
        packet = ring.bytes[number * layout.size : (number + 1) * layout.size]
        assert packet[0] == layout.first == 0x30 | qos << 1
        stamp = bytes(packet[layout.stamp : layout.stamp + packets.STAMP_BYTES])
        assert int.from_bytes(stamp, "big") == number
        if qos:
            assert int.from_bytes(packet[layout.packet_id : layout.packet_id + 2], "big") == number + 1


@given(st.lists(st.integers(1, 65535)))
def test_pubacks_of_columns(ids: list[int]) -> None:
    high, low = bytes(i >> 8 for i in ids), bytes(i & 0xFF for i in ids)
    assert packets.pubacks(high, low) == b"".join(b"\x40\x02" + i.to_bytes(2, "big") for i in ids)


@pytest.mark.parametrize("length", [0, 3, 65536])
def test_a_ring_refuses_lengths_that_have_no_packet_identifiers(length: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        Ring("t", 200, 1, length)


def test_a_payload_too_short_for_its_stamp_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 8 bytes"):
        Layout.of("t", 7, 0)


@given(st.integers(1, 8000))
def test_a_ring_is_at_least_four_windows_long(window: int) -> None:
    assert packets.ring_length(window) >= 4 * window


@given(st.integers(0, 511), st.integers(0, 3000), st.sampled_from([0, 60]))
def test_span_is_the_size_of_the_packets_around_the_ring(start: int, count: int, vary: int) -> None:
    ring = Ring("t", 100, 0, 512, vary)
    sizes = [end - begin for begin, end in zip([0, *ring.ends], ring.ends, strict=False)]
    assert ring.span(start, count) == sum(sizes[(start + i) % 512] for i in range(count))


def test_mixed_payloads_differ_from_their_neighbours_and_keep_the_mean() -> None:
    ring = Ring("t", 200, 0, 4096, 50)
    sizes = [end - begin for begin, end in zip([0, *ring.ends], ring.ends, strict=False)]
    equal = sum(a == b for a, b in itertools.pairwise(sizes))
    assert equal < 4096 * 0.02
    assert abs(sum(sizes) / 4096 - ring.layout.size - 50) < 2


@given(st.integers(0, 5000))
def test_publications_are_split_at_their_ends(cut: int) -> None:
    ring = Ring("t", 200, 0, 256, 100)
    data = bytes(ring.bytes[:cut])
    found, rest = packets.publications(data, 0x30)
    assert [ring.number(packet) for packet in found] == list(range(len(found)))
    assert data == b"".join(found) + rest
    assert len(rest) < ring.ends[len(found)] - ring.span(0, len(found))
