"""A run of plain publications is what decoding the packets one by one would call so."""

from __future__ import annotations

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.encode import encode
from saps.frontend.mqtt.packets import V5, Publish
from saps.plain import first_packet, lone_publication, plain_payloads, plain_run
from tests.frontend.mqtt.strategies import LIMIT, is_plain, publications_to, versions

publications = publications_to("a", "a", "a", "ab")


@given(versions, st.lists(publications, min_size=1, max_size=20), st.integers(0, 40))
def test_a_run_ends_where_a_packet_differs(version: int, sent: list[Publish], cut: int) -> None:
    for number, packet in enumerate(sent, 1):
        packet.packet_id = number if packet.qos else None
    encoded = [encode(packet, version) for packet in sent]
    data = b"".join(encoded)
    data = data[: len(data) - cut]
    head = sent[0]
    expected: list[int] = []
    if is_plain(head, version):
        end = 0
        for _, size in takewhile(
            lambda pair: (
                is_plain(pair[0], version)
                and (pair[0].topic, pair[0].qos) == (head.topic, head.qos)
                and pair[1] <= LIMIT
            ),
            zip(sent, map(len, encoded), strict=True),
        ):
            end += size
            if end > len(data):
                break
            expected.append(end)
    # Packets that are not plain by their first byte are never asked about.
    if data[:1] in (b"\x30", b"\x32"):
        first = first_packet(data, 0)
        assert (plain_run(data, 0, first, version, LIMIT) if first else []) == expected
        if first and not head.qos:
            ahead = first.end - first.topic + (version == V5)
            found = plain_payloads(data, 0, ahead, expected)
            assert found == [packet.payload for packet in sent[: len(expected)]]


@given(
    versions,
    st.sampled_from([b"\x30", b"\x32"]),
    st.one_of(st.binary(max_size=12), publications.map(lambda packet: encode(packet, V5)[1:])),
    st.integers(-2, 2),
)
def test_a_lone_publication_is_a_run_of_one_that_is_all_there_is(
    version: int, first_byte: bytes, rest: bytes, wrong: int
) -> None:
    if rest:
        rest = bytes((max(0, rest[0] + wrong),)) + rest[1:] if rest[0] + wrong < 256 else rest
    data = first_byte + rest
    first = first_packet(data, 0)
    alone = first is not None and plain_run(data, 0, first, version, len(data)) == [len(data)]
    assert lone_publication(data, version) == (first.end if alone and first else 0)


def test_a_packet_identifier_of_0_ends_a_run() -> None:
    data = encode(Publish("a", b"1", 1, packet_id=1), V5) + encode(Publish("a", b"1", 1, packet_id=256), V5)
    data += b"\x32\x07\x00\x01a\x00\x00\x001"
    first = first_packet(data, 0)
    assert first is not None
    assert plain_run(data, 0, first, V5, LIMIT) == [9, 18]


def test_a_remaining_length_that_is_not_the_shortest_ends_a_run() -> None:
    data = b"\x30\x04\x00\x01a1" + b"\x30\x84\x00\x00\x01a1"
    first = first_packet(data, 0)
    assert first is not None
    assert plain_run(data, 0, first, 4, LIMIT) == [6]
