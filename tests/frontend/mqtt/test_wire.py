from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.codec.reasons import MalformedPacket
from saps.frontend.mqtt.codec.wire import (
    MAX_VARINT,
    Framer,
    Reader,
    encode_binary,
    encode_string,
    encode_varint,
    fixed_header,
)
from tests.frontend.mqtt.strategies import chunked, cut_lists


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (MAX_VARINT, "ffffff7f"),
    ],
)
def test_variable_byte_integers_of_table_1_1(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert encode_varint(value) == data
    assert Reader(data, 0, len(data)).varint() == value
    assert fixed_header(b"\x30" + data, 0) == (1 + len(data), 1 + len(data) + value)


@pytest.mark.parametrize("data", ["8000", "80808000", "808080808001", "ffffffff01"])
def test_other_forms_of_variable_byte_integers_are_malformed(data: str) -> None:
    encoded = bytes.fromhex(data)
    with pytest.raises(MalformedPacket):
        Reader(encoded, 0, len(encoded)).varint()
    with pytest.raises(MalformedPacket):
        fixed_header(b"\x30" + encoded, 0)


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError):
        encode_varint(MAX_VARINT + 1)
    with pytest.raises(ValueError):
        encode_binary(bytes(65_536))


@pytest.mark.parametrize("data", [b"\0\2\xc3\x28", b"\0\3\xed\xa0\x80", b"\0\1\0", b"\0\2a\0", b"\0\5abc", b"\0"])
def test_bad_strings_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedPacket):
        Reader(data, 0, len(data)).string()


def test_unusual_but_valid_strings_pass() -> None:
    for value in ("", "\ufeff", "a\U0002a6d4", "\u0001"):
        data = encode_string(value)
        assert Reader(data, 0, len(data)).string() == value


@given(st.lists(st.binary(max_size=300), max_size=8), cut_lists)
def test_framer_gives_whole_packets_however_the_bytes_arrive(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(b"\x30" + encode_varint(len(body)) + body for body in bodies)
    framer = Framer()
    found = []
    for chunk in chunked(stream, cuts):
        data, pos = framer.feed(chunk), 0
        while (bounds := fixed_header(data, pos)) is not None and bounds[1] <= len(data):
            found.append(data[bounds[0] : bounds[1]])
            pos = bounds[1]
        framer.keep(data, pos)
    assert found == bodies


def test_framer_hands_out_nothing_until_a_large_packet_is_complete() -> None:
    framer = Framer()
    framer.keep(b"\x30\x80\x80\x04", 0)
    assert all(framer.feed(b"x" * 1000) == b"" for _ in range(65))
    assert len(framer.feed(b"x" * 1000)) == 4 + 66_000
