"""Plain publications, in runs and where they cross to other brokers, are what decoding them one by one calls so."""

from __future__ import annotations

from itertools import accumulate, takewhile
from operator import add
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saps import plain
from saps.frontend.mqtt.decode import PacketReader
from saps.frontend.mqtt.encode import encode
from saps.frontend.mqtt.packets import V5, V311, Publish
from saps.frontend.mqtt.properties import Property
from saps.frontend.mqtt.reasons import MalformedPacket
from saps.frontend.mqtt.wire import fixed_header
from saps.plain import LONGEST, Encoded, encoded, first_packet, lone_publication, packet_end, plain_payloads, plain_run
from tests.encoded import encoded_of
from tests.frontend.mqtt.strategies import LIMIT, is_plain, publications_to, versions

publications = publications_to("a", "a", "a", "a", "ab", "b")
many_alike = st.lists(publications.filter(lambda packet: is_plain(packet, V5) and not packet.qos), max_size=12)


@settings(max_examples=300)
@given(
    versions,
    st.builds(add, many_alike, st.lists(publications, min_size=1, max_size=12)),
    st.integers(0, 40),
    st.sampled_from([LIMIT, 1 << 28]),
)
def test_a_run_ends_where_a_packet_differs(version: int, sent: list[Publish], cut: int, limit: int) -> None:
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
                and pair[1] <= limit
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
        assert (plain_run(data, 0, first, version, limit) if first else []) == expected
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


@given(st.binary(max_size=3), st.lists(st.sampled_from([0, 1, 0x7F, 0x80, 0x84, 0xFF]), max_size=5).map(bytes))
def test_a_packet_ends_where_its_remaining_length_says(before: bytes, data: bytes) -> None:
    try:
        bounds = fixed_header(data, 0)
    except MalformedPacket:
        bounds = None
    short = bounds is not None and bounds[0] <= 3 <= len(data)
    assert packet_end(before + data, len(before)) == (len(before) + bounds[1] if bounds and short else 0)


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize(("first", "then"), [(5, 5), (130, 130), (5, 130), (130, 5)])
def test_a_run_does_not_go_on_to_another_topic_that_has_been_looked_at(version: int, first: int, then: int) -> None:
    def ends(*sent: tuple[str, int]) -> list[int]:
        data = b"".join(encode(Publish(topic, bytes(size)), version) for topic, size in sent)
        found = first_packet(data, 0)
        assert found is not None
        return plain_run(data, 0, found, version, 1 << 28)

    for topic in "ab":
        assert len(ends((topic, first), (topic, then), (topic, then))) == 3
    assert len(ends(("a", first), ("a", then), ("b", then))) == 2
    assert len(ends(("a", first), ("b", then), ("a", then))) == 1


def test_what_crosses_has_no_properties() -> None:
    bare = encode(Publish("a", b"x"), V5)
    named = encode(Publish("a", b"x", properties={Property.CONTENT_TYPE: "t"}), V5)
    assert encoded(V5, bare + bare, ["a"], [len(bare)] * 2, []) is not None
    assert encoded(V5, bare + named, ["a"], [len(bare), len(named)], []) is None


def test_a_run_of_more_sizes_than_are_kept_at_hand_is_a_run() -> None:
    packets = [encode(Publish("a", bytes(size % 700)), V5) for size in range(2000)]
    data = b"".join(packets)
    first = first_packet(data, 0)
    assert first is not None
    assert plain_run(data, 0, first, V5, 1 << 28) == list(accumulate(map(len, packets)))
    assert encoded(V5, data, ["a"], list(map(len, packets)), []) is not None
    assert 0 < len(plain._sizes(b"\0\1a\0")) <= 128
    assert 0 < len(plain._heads(b"\0\1a\0")) <= 128


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


TO_SEVERAL = st.lists(
    st.tuples(
        st.sampled_from(["a", "a/b", "ü", "long/" * 20]),
        st.builds(bytes, st.sampled_from([0, 1, 10, *range(118, 132), 300, 16_270, 16_370, 16_380])),
    ),
    min_size=1,
    max_size=12,
)


def short_enough(sent: list[tuple[str, bytes]], version: int) -> bool:
    """All have remaining lengths of two bytes at most."""
    return all(2 + len(topic.encode()) + (version == V5) + len(payload) <= LONGEST for topic, payload in sent)


def opened(found: Encoded) -> list[tuple[str, bytes]]:
    """The publications, by way of runs."""
    return [(run.topic, payload) for run in found.runs() for payload in run.payloads]


@given(versions, TO_SEVERAL)
def test_what_crosses_encoded_is_what_was_published(version: int, sent: list[tuple[str, bytes]]) -> None:
    before = encoded_of(sent, version)
    found = encoded(version, before.packets, before.topics, before.sizes, before.which or ())
    assert (found is not None) == short_enough(sent, version)
    if found is not None:
        assert opened(found) == sent
        assert (found.ends, found.counts) == (before.ends, [[t for t, _ in sent].count(t) for t in found.topics])
        assert sum(found.bytes_by_topic) == len(found.packets)


@settings(max_examples=300)
@given(versions, TO_SEVERAL, st.randoms(use_true_random=False))
def test_nothing_is_taken_for_encoded_publications_that_a_decoder_reads_otherwise(
    version: int, sent: list[tuple[str, bytes]], rng: Random
) -> None:
    """Whoever passes it on may be anybody, and clients get the bytes as they are."""
    one = encoded_of(sent, version)
    packets, topics, sizes, which = bytearray(one.packets), list(one.topics), one.sizes, list(one.which or ())
    for _ in range(rng.choice((1, 1, 2))):
        number = rng.randrange(len(sizes))
        match rng.randrange(6):
            case 0:  # a byte, most likely of a header
                packets[(sum(sizes[:number]) + rng.randrange(6)) % len(packets)] = rng.randrange(256)
            case 1:  # a border
                shift = rng.choice((-1, 1, 2))
                sizes[number] += shift
                sizes[number - 1] -= shift
            case 2:
                del sizes[number:]
            case 3 if which:
                which[number % len(which)] = rng.randrange(len(topics) + 1)
            case 4:
                topics.append(rng.choice(("a", "b")))
            case _:
                del packets[rng.randrange(len(packets)) :]
        if not sizes or not packets or min(sizes) < 0:
            return
    found = encoded(version, bytes(packets), topics, sizes, which)
    if found is not None:
        reader = PacketReader(version)
        read = [packet for packet in reader.feed(bytes(packets)) if isinstance(packet, Publish)]
        assert [(packet.topic, packet.payload) for packet in read] == opened(found)
        assert all((each.qos, each.retain, each.dup, each.properties) == (0, False, False, {}) for each in read)
        assert sorted(set(topics)) == sorted({packet.topic for packet in read})
