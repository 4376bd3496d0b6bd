"""Batches written for subscribers: what writing each publication as a packet of its own gives."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.codec.decode import PacketReader
from saps.frontend.mqtt.codec.encode import encode as encode_packet
from saps.frontend.mqtt.codec.packets import V5, V311, Packet, Publish
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.publish_encode import (
    encode,
    encode_aliased,
    encode_duplicate,
    encode_numbered,
    packet_sizes,
)
from saps.messages import Message, Properties
from saps.routing.batch import Batch, Form
from tests.batches import batch_of
from tests.frontend.mqtt.strategies import versions

NOW = 50.0
described = st.builds(
    Properties,
    st.sampled_from([None, 0, 1]),
    st.sampled_from([None, 0, 60]),
    st.sampled_from([None, "text"]),
    st.sampled_from([None, "an/swer"]),
    st.sampled_from([None, b"", b"\0\1"]),
    st.sampled_from([(), (("a", "b"), ("a", "ü"))]),
)
message_lists = st.lists(
    st.builds(
        Message,
        st.sampled_from(["a", "ü/b", "x" * 600]),
        st.sampled_from([b"", b"x" * 20, b"x" * 130, b"x" * 17_000]),
        st.just(1),
        st.just(False),
        st.none() | described,
    ),
    min_size=1,
    max_size=8,
)
forms = st.builds(Form, st.integers(0, 2), st.booleans(), st.sampled_from([(), (5,), (5, 300_000)]))


def arrived(messages: list[Message]) -> Batch:
    """They came 10 s ago."""
    batch = batch_of(messages)
    batch.set_deadlines(NOW - 10)
    return batch


def alone(message: Message, form: Form, version: int, packet_id: int | None, **fields: bool) -> Publish:
    """The packet that a subscriber is to get."""
    given = message.properties or Properties()
    left = None if given.message_expiry is None else max(0, ceil(given.message_expiry - 10))
    properties: dict[Property, object] = {
        Property.PAYLOAD_FORMAT: given.payload_format,
        Property.MESSAGE_EXPIRY: left,
        Property.CONTENT_TYPE: given.content_type,
        Property.RESPONSE_TOPIC: given.response_topic,
        Property.CORRELATION_DATA: given.correlation_data,
        Property.USER_PROPERTY: given.user or None,
        Property.SUBSCRIPTION_IDENTIFIER: form.identifiers or None,
    }
    said: PropertyMap = {name: value for name, value in properties.items() if value is not None and version == V5}
    return Publish(
        message.topic, message.payload, form.qos, form.retain, packet_id=packet_id, properties=said, **fields
    )


def packet_ids_for(form: Form, count: int) -> list[int]:
    return list(range(0xFFFF - count, 0xFFFF)) if form.qos else [0] * count


def written(batch: Batch, form: Form, version: int) -> bytes:
    if not form.qos:
        return encode(batch, form, version, NOW)
    return encode_numbered(batch, form, version, NOW, packet_ids_for(form, len(batch)))


@given(message_lists, st.lists(st.tuples(forms, versions), min_size=1, max_size=4))
def test_every_subscriber_gets_each_publication_in_its_form(
    messages: list[Message], wanted: list[tuple[Form, int]]
) -> None:
    batch = arrived(messages)
    for form, version in wanted:
        raw = written(batch, form, version)
        packet_ids = packet_ids_for(form, len(messages))
        expected: list[Packet] = [
            alone(message, form, version, packet_id or None)
            for message, packet_id in zip(messages, packet_ids, strict=True)
        ]
        assert PacketReader(version).feed(raw) == expected
        assert written(batch, form, version) is raw  # the next subscriber gets the same bytes
        assert packet_sizes(batch, form, version, NOW) == [len(encode_packet(each, version)) for each in expected]


@given(message_lists, versions, st.sampled_from([1, 2]))
def test_a_publication_written_anew_is_a_duplicate(messages: list[Message], version: int, qos: int) -> None:
    form = Form(qos, False, ())
    for single, message in zip(arrived(messages).singles, messages, strict=True):
        (found,) = PacketReader(version).feed(encode_duplicate(single, form, version, NOW, 7))
        assert found == alone(message, form, version, 7, dup=True)


@given(message_lists, forms, st.booleans())
def test_a_topic_alias_stands_for_the_topic(messages: list[Message], form: Form, known: bool) -> None:
    for single, message in zip(arrived(messages).singles, messages, strict=True):
        raw = encode_aliased(single, form, NOW, 3, known, 7 if form.qos else 0)
        expected = alone(message, form, V5, 7 if form.qos else None)
        expected.properties = {**expected.properties, Property.TOPIC_ALIAS: 3}
        expected.topic = "" if known else message.topic
        assert PacketReader(V5).feed(raw) == [expected]


@pytest.mark.parametrize("version", [V311, V5])
def test_other_packet_identifiers_change_nothing_else(version: int) -> None:
    batch, form = arrived([Message("a", b"x", 1), Message("b", b"y", 1)]), Form(1, False, ())
    for packet_ids in ((1, 2), (300, 301), (0xFFFF, 1), (1, 2)):
        raw = encode_numbered(batch, form, version, NOW, packet_ids)
        found = PacketReader(version).feed(raw)
        assert [each.packet_id for each in found if isinstance(each, Publish)] == [*packet_ids]
        assert raw == b"".join(encode_packet(each, version) for each in found)
