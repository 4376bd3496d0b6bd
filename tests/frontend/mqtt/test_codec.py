from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.codec.decode import PacketReader, decode
from saps.frontend.mqtt.codec.encode import encode, framed
from saps.frontend.mqtt.codec.packets import V5, V311, Connect, Packet, Publish
from saps.frontend.mqtt.codec.properties import RULES, Kind, Property
from saps.frontend.mqtt.codec.reasons import MqttError, Reason
from saps.frontend.mqtt.codec.wire import fixed_header
from tests.frontend.mqtt.strategies import chunked, cut_lists, packets, versions

version_and_packets = versions.flatmap(lambda v: st.tuples(st.just(v), st.lists(packets(v), max_size=5)))


@given(version_and_packets, cut_lists)
def test_what_is_encoded_decodes_to_the_same_in_any_chunks(case: tuple[int, list[Packet]], cuts: list[int]) -> None:
    version, sent = case
    stream = b"".join(encode(packet, version) for packet in sent)
    reader = PacketReader(version)
    received: list[Packet] = []
    for chunk in chunked(stream, cuts):
        received += reader.feed(chunk)
    assert received == sent


@given(versions, st.binary(max_size=80), cut_lists)
def test_any_bytes_give_packets_or_the_defined_error(version: int, data: bytes, cuts: list[int]) -> None:
    assert verdict(version, chunked(data, cuts)) == verdict(version, [data])


def verdict(version: int, chunks: list[bytes]) -> Reason | None:
    """The reason for which the stream is refused, if it is."""
    reader = PacketReader(version)
    try:
        for chunk in chunks:
            reader.feed(chunk)
    except MqttError as error:
        return error.reason
    return None


@given(version_and_packets, st.integers(0, 1 << 16), st.integers(0, 255))
def test_damaged_packets_give_packets_or_the_defined_error(
    case: tuple[int, list[Packet]], place: int, value: int
) -> None:
    version, sent = case
    stream = bytearray(b"".join(encode(packet, version) for packet in sent))
    if stream:
        stream[place % len(stream)] = value
    reason = verdict(version, [bytes(stream)])
    assert reason is None or reason >= Reason.UNSPECIFIED_ERROR


def fault(data: bytes, version: int) -> Reason:
    """The reason for which the packet is refused."""
    bounds = fixed_header(data, 0)
    assert bounds is not None
    with pytest.raises(MqttError) as caught:
        decode(data[0], data, bounds[0], bounds[1], version)
    return caught.value.reason


MALFORMED, PROTOCOL = Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR
NAME = b"\0\4MQTT"


@pytest.mark.parametrize(
    ("packet", "version", "reason"),
    [
        (b"\x00\0", V5, MALFORMED),  # packet type 0
        (b"\xf0\0", V311, MALFORMED),  # AUTH does not exist in 3.1.1
        (b"\xc1\0", V5, MALFORMED),  # PINGREQ with flags
        (b"\xc0\1\0", V5, MALFORMED),  # PINGREQ with a body
        (framed(0x80, b"\0\1\0\0\1a\0"), V5, MALFORMED),  # SUBSCRIBE with wrong flags
        (framed(0x60, b"\0\1"), V5, MALFORMED),  # PUBREL with wrong flags
        (framed(0x36, b"\0\1a\0\1\0"), V5, MALFORMED),  # QoS 3
        (framed(0x38, b"\0\1a\0"), V5, MALFORMED),  # DUP with QoS 0
        (framed(0x32, b"\0\1a\0\0\0"), V5, MALFORMED),  # packet identifier 0
        (framed(0x32, b"\0\1a\0"), V311, MALFORMED),  # no packet identifier
        (framed(0x30, b"\0\5a"), V311, MALFORMED),  # topic beyond the end
        (framed(0x30, b""), V311, MALFORMED),
        (framed(0x30, b"\0\1a\5\1"), V5, MALFORMED),  # properties beyond the end
        (framed(0x30, b"\0\1a\2\x7f\0"), V5, MALFORMED),  # unknown property
        (framed(0x30, b"\0\1a\3\x21\0\1"), V5, PROTOCOL),  # RECEIVE_MAXIMUM in PUBLISH
        (framed(0x30, b"\0\1a\2\1\2"), V5, PROTOCOL),  # payload format 2
        (framed(0x30, b"\0\1a\4\1\1\1\1"), V5, PROTOCOL),  # a property twice
        (framed(0x30, b"\0\1a\3\x23\0\0"), V5, Reason.TOPIC_ALIAS_INVALID),
        (framed(0x30, b"\0\1a\2\x0b\0"), V5, PROTOCOL),  # subscription identifier 0
        (framed(0x82, b"\0\1"), V311, PROTOCOL),  # no filters
        (framed(0x82, b"\0\1\0"), V5, PROTOCOL),
        (framed(0x82, b"\0\1\0\0\1a\3"), V5, MALFORMED),  # QoS 3
        (framed(0x82, b"\0\1\0\0\1a\x30"), V5, PROTOCOL),  # retain handling 3
        (framed(0x82, b"\0\1\0\0\1a\x40"), V5, MALFORMED),  # reserved bits
        (framed(0x82, b"\0\1\0\1a\4"), V311, MALFORMED),  # options of 5.0 in 3.1.1
        (framed(0x82, b"\0\1\0\1a"), V311, MALFORMED),  # no options
        (framed(0x82, b"\0\1\4\x0b\1\x0b\2\0\1a\0"), V5, PROTOCOL),  # two subscription identifiers
        (framed(0xA2, b"\0\1"), V311, PROTOCOL),
        (framed(0x40, b"\0\1\0"), V311, MALFORMED),  # a reason code in 3.1.1
        (framed(0x40, b"\0"), V311, MALFORMED),
        (framed(0xE0, b"\0"), V311, MALFORMED),
        (framed(0x10, b"\0\4MQTX\5\2\0\0\0\0\0"), V5, Reason.UNSUPPORTED_PROTOCOL_VERSION),
        (framed(0x10, NAME + b"\6\2\0\0\0\0\0"), V5, Reason.UNSUPPORTED_PROTOCOL_VERSION),
        (framed(0x10, NAME + b"\5\3\0\0\0\0\0"), V5, MALFORMED),  # reserved flag
        (framed(0x10, NAME + b"\5\x0a\0\0\0\0\0"), V5, MALFORMED),  # will QoS without a will
        (framed(0x10, NAME + b"\5\x22\0\0\0\0\0"), V5, MALFORMED),  # will retain without a will
        (framed(0x10, NAME + b"\5\x1e\0\0\0\0\0\0\0\1a\0\0"), V5, MALFORMED),  # will QoS 3
        (framed(0x10, NAME + b"\4\x42\0\0\0\0\0\1x"), V5, MALFORMED),  # 3.1.1: password without user
        (framed(0x10, NAME + b"\5\2\0\0\3\x21\0\0\0\0"), V5, PROTOCOL),  # receive maximum 0
        (framed(0x10, NAME + b"\5\2\0\0\5\x27\0\0\0\0\0\0"), V5, PROTOCOL),  # maximum packet size 0
        (framed(0x10, NAME + b"\5\2\0\0\0\0\0more"), V5, MALFORMED),
    ],
)
def test_each_fault_has_its_reason(packet: bytes, version: int, reason: Reason) -> None:
    assert fault(packet, version) is reason


def test_too_large_a_packet_is_refused_by_its_header_alone() -> None:
    with pytest.raises(MqttError) as caught:
        PacketReader(V5, maximum_packet_size=100).feed(b"\x30\x64")
    assert caught.value.reason is Reason.PACKET_TOO_LARGE
    assert PacketReader(V5, maximum_packet_size=100).feed(b"\x30\x62") == []


def test_the_version_of_a_stream_follows_from_its_connect() -> None:
    reader = PacketReader(V5)
    reader.feed(encode(Connect("c", version=V311), V311))
    assert reader.feed(b"\x30\x03\0\1a") == [Publish("a")]


def test_a_password_alone_is_allowed_in_5_0() -> None:
    packet = Connect("c", password=b"secret")
    assert PacketReader(V5).feed(encode(packet, V5)) == [packet]


def test_properties_that_occur_twice_are_refused_for_every_property_but_two() -> None:
    for identifier, rule in RULES.items():
        value = {Kind.STRING: b"\0\0", Kind.BINARY: b"\0\0"}.get(rule.kind, b"\0\0\0\1"[-(rule.kind or 1) :])
        if rule.kind in (Kind.PAIRS, Kind.VARINTS) or 2 not in rule.packets:
            continue
        twice = (bytes((identifier,)) + value) * 2
        assert fault(framed(0x20, b"\0\0", bytes((len(twice),)), twice), V5) is PROTOCOL, Property(identifier).name
