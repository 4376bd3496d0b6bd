"""The publications at the head of a read, cut into batches: what decoding them packet by packet gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as changed

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from saps.frontend.mqtt.codec.decode import PacketReader, check_publish_flags, decode
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, V311, Publish
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.publish_cut import MAX_NAMES, Cutter
from saps.frontend.mqtt.codec.publish_encode import encode as encode_batch
from saps.frontend.mqtt.codec.reasons import MqttError, ProtocolError, Reason
from saps.frontend.mqtt.codec.wire import fixed_header
from saps.messages import Message, Properties
from saps.routing.batch import MOST, form
from saps.topics import topic_fault
from tests.frontend.mqtt.strategies import publications, versions

LIMIT, ALIASES, LEVELS = 300, 3, 4
"""Bytes of a packet, topic aliases, levels of a topic: the most there may be here."""


def cutter(version: int, names: dict[bytes, str] | None = None) -> Cutter:
    return Cutter(version, LIMIT, ALIASES, LEVELS, {} if names is None else names)


@dataclass
class Understood:
    """What a stream of PUBLISH packets says."""

    messages: list[Message] = field(default_factory=list)
    packet_ids: list[int] = field(default_factory=list)
    end: int = 0
    """Where the first packet begins that is not complete, or is faulty."""
    fault: Reason | None = None


def cut(version: int, data: bytes, most: int = MOST) -> Understood:
    """By batches."""
    found, cutting = Understood(), cutter(version)
    try:
        while found.end < len(data) and data[found.end] >> 4 == 3:
            piece = cutting.cut(data, found.end, most)
            if piece is None:
                break
            batch, packet_ids, found.end = piece
            assert len(batch) <= most
            found.messages += batch.messages
            found.packet_ids += map(int.from_bytes, packet_ids) if batch.qos else [0] * len(batch)
    except MqttError as error:
        found.fault = error.reason
    return found


def decoded(version: int, data: bytes) -> Understood:
    """Packet by packet."""
    found = Understood()
    aliases: dict[int, str] = {}
    try:
        while found.end < len(data) and data[found.end] >> 4 == 3:
            check_publish_flags(data[found.end])
            bounds = fixed_header(data, found.end)
            if bounds is None:
                break
            body, end = bounds
            if end - found.end > LIMIT:
                raise ProtocolError("long", Reason.PACKET_TOO_LARGE)
            if end > len(data):
                break
            packet = decode(data[found.end], data, body, end, version)
            assert isinstance(packet, Publish)
            found.messages.append(accepted(packet, version, aliases))
            found.packet_ids.append(packet.packet_id or 0)
            found.end = end
    except MqttError as error:
        found.fault = error.reason
    return found


def accepted(packet: Publish, version: int, aliases: dict[int, str]) -> Message:
    """What a server takes it for (3.3.2, 3.3.4). Raises `ProtocolError`."""
    given, topic = packet.properties, packet.topic
    if Property.SUBSCRIPTION_IDENTIFIER in given:
        raise ProtocolError("identifier")
    response = given.get(Property.RESPONSE_TOPIC)
    if response is not None and topic_fault(response) is not None:
        raise ProtocolError("response topic")
    alias = given.get(Property.TOPIC_ALIAS)
    if alias is not None:
        if alias > ALIASES:
            raise ProtocolError("alias", Reason.TOPIC_ALIAS_INVALID)
        topic = topic or aliases.get(alias, "")
    if not topic and version == V5:
        raise ProtocolError("no topic")
    if alias is not None:
        aliases[alias] = topic
    if topic_fault(topic) is not None or topic.count("/") >= LEVELS:
        raise ProtocolError("topic", Reason.TOPIC_NAME_INVALID)
    described = Properties(
        given.get(Property.PAYLOAD_FORMAT),
        given.get(Property.MESSAGE_EXPIRY),
        given.get(Property.CONTENT_TYPE),
        response,
        given.get(Property.CORRELATION_DATA),
        given.get(Property.USER_PROPERTY, ()),
    )
    named = described if described != Properties() else None
    return Message(topic, packet.payload, packet.qos, packet.retain, named)


streams = versions.flatmap(lambda version: st.tuples(st.just(version), st.lists(publications(), max_size=20)))


def written(version: int, packets: list[Publish]) -> bytes:
    return b"".join(encode(packet, version) for packet in packets)


@settings(max_examples=500)
@given(streams, st.integers(0, 40), st.sampled_from([1, 3, MOST]))
def test_batches_are_the_packets_in_their_order(stream: tuple[int, list[Publish]], missing: int, most: int) -> None:
    version, packets = stream
    data = written(version, packets)
    data = data[: max(0, len(data) - missing)]
    assert cut(version, data, most) == decoded(version, data)


@settings(max_examples=500)
@given(streams, st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=3))
def test_a_damaged_packet_is_refused_as_the_decoder_does_and_those_before_it_are_taken(
    stream: tuple[int, list[Publish]], damages: list[tuple[int, int]]
) -> None:
    version, packets = stream
    data = bytearray(written(version, packets) or b"\x30")
    for place, value in damages:
        data[place % len(data)] = value
    data[0] = 0x30 | data[0] & 0x0F
    found, expected = cut(version, bytes(data)), decoded(version, bytes(data))
    assert changed(found, fault=None) == changed(expected, fault=None)
    assert (found.fault is None) == (expected.fault is None), "of two faults in a packet either is told"


@given(streams)
def test_what_is_passed_through_says_what_would_be_encoded(stream: tuple[int, list[Publish]]) -> None:
    version, packets = stream
    data, cutting, pos = written(version, packets), cutter(version), 0
    try:
        while pos < len(data) and (piece := cutting.cut(data, pos)) is not None:
            batch, _, pos = piece
            kept = list(batch.encoded.values())
            batch.encoded.clear()
            again = encode_batch(batch, form(0, batch.retain), version, 10.0)
            for passed in kept:
                assert PacketReader(version).feed(passed) == PacketReader(version).feed(again)
            if version == V311 and not batch.qos:
                assert kept
    except MqttError:
        return


@pytest.mark.parametrize(
    ("packet", "passed"),
    [
        (Publish("a", b"x"), True),
        (Publish("a", b"x", retain=True), True),
        (Publish("a", b"x", properties={Property.CONTENT_TYPE: "t"}), True),
        (Publish("a", b"x", properties={Property.MESSAGE_EXPIRY: 9}), False),  # it grows less on the way
        (Publish("a", b"x", properties={Property.TOPIC_ALIAS: 1}), False),
        (Publish("a", b"x", 1, packet_id=1), False),
    ],
)
def test_qos_0_is_passed_through_unless_subscribers_get_other_bytes(packet: Publish, passed: bool) -> None:
    piece = cutter(V5).cut(encode(packet, V5) * 3, 0)
    assert piece is not None
    assert len(piece[0]) == 3
    assert bool(piece[0].encoded) == passed


def test_one_property_or_another_topic_does_not_end_a_batch_and_a_duplicate_is_like_any_other() -> None:
    sent = [Publish("ab"[n % 2], b"x", 1, packet_id=n + 1, dup=n == 4) for n in range(10)]
    sent[3].properties = {Property.CONTENT_TYPE: "t"}
    piece = cutter(V5).cut(written(V5, sent), 0)
    assert piece is not None
    batch, packet_ids, _ = piece
    assert batch.topics == ["a", "b"]
    assert [*map(int.from_bytes, packet_ids)] == [*range(1, 11)]
    assert batch.properties == [None] * 3 + [Properties(content_type="t")] + [None] * 6


def test_the_names_of_topics_are_checked_once_and_bounded() -> None:
    names: dict[bytes, str] = {}
    cutting = cutter(V311, names)
    for number in range(MAX_NAMES + 10):
        cutting.cut(b"\x30\x08\x00\x06%06d" % number, 0)
    assert len(names) == 10
    cutting = Cutter(V5, 1 << 20, 0, 4, names)
    cutting.cut(encode(Publish("x" * 1000), V5), 0)
    assert len(names) == 10  # long ones are looked at each time


def test_properties_seen_before_are_the_same_object() -> None:
    packet = Publish("a", properties={Property.USER_PROPERTY: (("unit", "µg/m³"),)})
    first, second = (cutter(V5).cut(encode(replace(packet, payload=each), V5), 0) for each in (b"1", b"2"))
    assert first is not None
    assert second is not None
    assert first[0].properties is not None
    assert second[0].properties is not None
    assert first[0].properties[0] is second[0].properties[0]
