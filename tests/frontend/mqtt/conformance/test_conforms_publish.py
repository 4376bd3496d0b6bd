"""PUBLISH in both directions: retained messages, properties, aliases, quality of service, order, flow control."""

from __future__ import annotations

from typing import Any

import pytest

from saps.frontend.mqtt.codec.packets import V5, V311, Ack, PacketType, Pingreq, Pingresp, Publish, SubscribeEntry
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.connection.publish_handler import TELL
from saps.frontend.mqtt.limits import Limits
from tests.frontend.mqtt.bench import Bench, Client, puback, pubcomp, pubrec, pubrel
from tests.frontend.mqtt.conformance.conforms import mqtt5, mqtt311
from tests.frontend.mqtt.conformance.raw import BOTH, bare, connected, field, packet, publish

versions = pytest.mark.parametrize("version", BOTH)


def staying(version: int, more: PropertyMap | None = None) -> dict[str, Any]:
    properties = {Property.SESSION_EXPIRY: 600, **(more or {})} if version == V5 else {}
    return {"version": version, "clean_start": False, "properties": properties}


def pair(version: int, topic_filter: str = "a", qos: int = 2, **fields: Any) -> tuple[Bench, Client, Client]:
    """A broker, a publisher, and a subscriber whose session stays."""
    bench = Bench()
    subscriber = bench.client("s", **{**staying(version), **fields})
    subscriber.subscribe(topic_filter, qos=qos)
    return bench, bench.client("p", version=version), subscriber


# ---- retained messages


@versions
@mqtt5("3.3.1-5", "3.3.1-6", "3.3.1-7", "3.3.1-8", "3.3.1-12")
@mqtt311("3.3.1-5", "3.3.1-6", "3.3.1-7", "3.3.1-8", "3.3.1-9", "3.3.1-10", "3.3.1-11", "3.3.1-12")
def test_retained_messages_are_replaced_left_and_removed(version: int) -> None:
    bench, publisher, subscriber = pair(version)

    def kept() -> list[tuple[bytes, int, bool]]:
        late = bench.client("late", version=version)
        late.subscribe("a", qos=2)
        return [(message.payload, message.qos, message.retain) for message in late.messages()]

    publisher.publish("a", b"1", qos=1, retain=True)
    assert kept() == [(b"1", 1, True)]
    publisher.publish("a", b"2", retain=True)
    assert kept() == [(b"2", 0, True)]
    publisher.publish("a", b"3", qos=1)
    assert kept() == [(b"2", 0, True)]
    publisher.publish("a", b"", retain=True)
    assert kept() == []
    assert [(m.payload, m.retain) for m in subscriber.messages()] == [(p, False) for p in (b"1", b"2", b"3", b"")]


@mqtt5("3.3.1-9", "3.3.1-10", "3.3.1-11")
def test_retain_handling() -> None:
    _, publisher, subscriber = pair(V5, "other")
    publisher.publish("a", b"kept", retain=True)
    got = []
    for handling in (2, 1, 1, 0, 0):
        subscriber.subscribe(SubscribeEntry("a", retain_handling=handling))
        got.append(len(subscriber.messages()))
    assert got == [0, 0, 0, 1, 1]
    _, publisher, subscriber = pair(V5, "other")
    publisher.publish("a", b"kept", retain=True)
    subscriber.subscribe(SubscribeEntry("a", retain_handling=1))
    assert subscriber.payloads() == [b"kept"]


@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("retain", [False, True])
@mqtt5("3.3.1-12", "3.3.1-13")
def test_retain_as_published(as_published: bool, retain: bool) -> None:
    _, publisher, subscriber = pair(V5, "other")
    subscriber.subscribe(SubscribeEntry("a", retain_as_published=as_published))
    publisher.publish("a", b"x", retain=retain)
    assert [message.retain for message in subscriber.messages()] == [as_published and retain]


# ---- what a subscriber gets


@versions
@mqtt5("2.2.1-2", "2.2.2-1", "3.3.2-1", "3.3.2-3", "3.3.1-2", "4.3.1-1")
@mqtt311("2.3.1-5", "3.3.2-1", "3.3.2-3", "3.3.1-2", "4.3.1-1")
def test_qos_0_is_sent_as_it_should_be_to_the_byte(version: int) -> None:
    _, publisher, subscriber = pair(version, "a/+")
    subscriber.raw = b""
    publisher.send_bytes(publish(version, b"a/b", b"x") + publish(version, b"b", b"x"))
    assert subscriber.raw == packet(0x30, field(b"a/b"), bare(version), b"x")
    publisher.send_bytes(publish(version, b"a/b", b"x"))
    assert subscriber.raw == packet(0x30, field(b"a/b"), bare(version), b"x") * 2


@mqtt5(
    "3.3.2-4", "3.3.2-13", "3.3.2-15", "3.3.2-16", "3.3.2-17", "3.3.2-18", "3.3.2-19", "3.3.2-20", "1.5.7-1"
)  # fmt: skip
def test_properties_are_forwarded_unaltered_in_their_order() -> None:
    _, publisher, subscriber = pair(V5)
    properties = {
        Property.PAYLOAD_FORMAT: 1,
        Property.CONTENT_TYPE: "text/plain; \ufeff",
        Property.RESPONSE_TOPIC: "answers/é",
        Property.CORRELATION_DATA: b"\0\xff",
        Property.USER_PROPERTY: (("b", "1"), ("a", ""), ("b", "1")),
    }
    for qos in (0, 1, 2):
        publisher.publish("a", b"x", qos=qos, packet_id=qos + 1, properties=properties)
    assert [message.properties for message in subscriber.messages()] == [properties] * 3


@mqtt5("3.3.2-5", "3.3.2-6")
def test_expiry_is_lessened_by_the_time_waited_and_ends_what_waits_too_long() -> None:
    bench, publisher, subscriber = pair(V5)
    subscriber.lose()
    for number, expiry in enumerate((5, 100), 1):
        publisher.publish("a", b"%d" % expiry, qos=1, packet_id=number, properties={Property.MESSAGE_EXPIRY: expiry})
    bench.advance(10)
    subscriber = bench.client("s", **staying(V5))
    (message,) = subscriber.messages()
    assert (message.payload, message.properties[Property.MESSAGE_EXPIRY]) == (b"100", 90)


@mqtt5("3.3.4-2", "3.3.4-3", "3.3.4-4")
@mqtt311("3.3.5-1")
def test_overlapping_subscriptions_give_one_copy_of_the_highest_qos_with_all_identifiers() -> None:
    _, publisher, subscriber = pair(V5, "other")
    for number, (topic_filter, qos) in enumerate([("a/#", 0), ("a/b", 2), ("+/b", 1)], 1):
        properties = {Property.SUBSCRIPTION_IDENTIFIER: (number,)} if number != 3 else {}
        subscriber.subscribe(topic_filter, qos=qos, properties=properties)
    publisher.publish("a/b", b"x", qos=2)
    (message,) = subscriber.messages()
    assert message.qos == 2
    assert sorted(message.properties[Property.SUBSCRIPTION_IDENTIFIER]) == [1, 2]


@versions
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
@mqtt5("3.8.4-8", "4.5.0-1")
@mqtt311("3.8.4-6", "4.5.0-1")
def test_the_qos_is_the_lower_of_that_published_and_that_granted(version: int, published: int, granted: int) -> None:
    bench, publisher, subscriber = pair(version, qos=granted)
    other = bench.client("other")
    other.subscribe("#", qos=granted)
    publisher.publish("a", b"x", qos=published)
    assert [m.qos for m in subscriber.messages()] == [m.qos for m in other.messages()] == [min(published, granted)]


@versions
@mqtt5("3.3.1-1", "3.3.1-3", "4.3.2-2", "4.3.3-2")
@mqtt311("3.3.1-1", "3.3.1-3")
def test_dup_is_set_on_what_is_sent_again_and_says_nothing_of_the_publisher_s(version: int) -> None:
    bench, publisher, subscriber = pair(version)
    for qos in (1, 2):
        publisher.publish("a", b"x", qos=qos, packet_id=qos, dup=True)
    assert [m.dup for m in subscriber.messages()] == [False, False]
    subscriber.lose()
    assert [m.dup for m in bench.client("s", **staying(version)).messages()] == [True, True]


# ---- topic aliases


@mqtt5("3.3.2-7", "3.3.2-12", "3.3.2-8")
def test_all_aliases_up_to_the_maximum_are_accepted_and_end_with_the_connection() -> None:
    bench, publisher, subscriber = pair(V5, "#")
    most = publisher.connack.properties[Property.TOPIC_ALIAS_MAXIMUM]
    for alias in (1, most):
        publisher.publish(f"a/{alias}", properties={Property.TOPIC_ALIAS: alias})
        publisher.publish("", properties={Property.TOPIC_ALIAS: alias})
    assert [m.topic for m in subscriber.messages()] == ["a/1", "a/1", f"a/{most}", f"a/{most}"]
    publisher.lose()
    again = bench.client("p")
    again.publish("", properties={Property.TOPIC_ALIAS: 1})
    assert again.closed
    assert subscriber.messages() == []


@pytest.mark.parametrize("allowed", [0, 2])
@mqtt5("3.1.2-26", "3.1.2-27", "3.3.2-11", "3.3.2-8")
def test_aliases_to_a_client_keep_to_its_maximum(allowed: int) -> None:
    properties = {Property.TOPIC_ALIAS_MAXIMUM: allowed, Property.SESSION_EXPIRY: 60} if allowed else {}
    bench, publisher, subscriber = pair(V5, "#", properties=properties)
    for topic in ("a", "b", "c", "a", "b", "c"):
        publisher.publish(topic)
    aliases = [message.properties.get(Property.TOPIC_ALIAS) for message in subscriber.messages()]
    assert aliases == ([1, 2, None, 1, 2, None] if allowed else [None] * 6)
    subscriber.lose()
    again = bench.client("s", properties=properties, clean_start=False)
    again.subscribe("#")
    publisher.publish("a")
    assert [message.topic for message in again.messages()] == ["a"], "told anew on a new connection"


# ---- quality of service: as a receiver


@versions
@mqtt5("2.2.1-5", "3.3.4-1", "3.4.2-1", "3.5.2-1", "3.7.2-1", "4.3.2-4", "4.3.3-8", "4.3.3-11")
@mqtt311("2.3.1-6", "3.3.4-1")
def test_publications_are_answered_as_their_qos_asks(version: int) -> None:
    _, client = connected(version)
    client.subscribe("a")
    client.raw = b""
    client.send_bytes(publish(version, b"a") + publish(version, b"a", flags=2, packet_id=7))
    client.send_bytes(publish(version, b"a", flags=4, packet_id=0xFFFF) + b"\x62\2\xff\xff\x62\2\xff\xfe")
    answers = [p for p in client.take() if isinstance(p, Ack)]
    assert [(a.type, a.packet_id) for a in answers] == [
        (PacketType.PUBACK, 7),
        (PacketType.PUBREC, 0xFFFF),
        (PacketType.PUBCOMP, 0xFFFF),
        (PacketType.PUBCOMP, 0xFFFE),
    ]
    assert [a.reason for a in answers] == [0, 0, 0, 0x92 if version == V5 else 0]


@versions
@mqtt5("4.3.2-5")
@mqtt311("4.3.2-2")
def test_after_puback_the_same_identifier_is_a_new_publication(version: int) -> None:
    _, publisher, subscriber = pair(version)
    for dup in (False, True):
        publisher.publish("a", b"x", qos=1, dup=dup)
    assert subscriber.payloads() == [b"x", b"x"]


@versions
@mqtt5("4.3.3-10", "4.3.3-12", "4.3.3-8")
@mqtt311("4.3.3-2")
def test_between_publish_and_pubrel_nothing_is_delivered_twice(version: int) -> None:
    bench, publisher, subscriber = pair(version)
    publisher = bench.client("q", **staying(version))
    publisher.publish("a", b"1", qos=2)
    publisher.publish("a", b"1", qos=2, dup=True)
    publisher.lose()
    publisher = bench.client("q", **staying(version))
    publisher.publish("a", b"1", qos=2, dup=True)
    assert [p.type for p in publisher.take() if isinstance(p, Ack)] == [PacketType.PUBREC]
    publisher.send(pubrel(1))
    publisher.publish("a", b"2", qos=2)
    assert subscriber.payloads() == [b"1", b"2"]


@mqtt5("4.3.3-13")
def test_the_exchange_goes_on_though_the_message_has_expired() -> None:
    bench, publisher, subscriber = pair(V5)
    subscriber.lose()
    publisher.publish("a", b"x", qos=2, properties={Property.MESSAGE_EXPIRY: 1})
    bench.advance(10)
    publisher.send(pubrel(1))
    assert [p.type for p in publisher.take() if isinstance(p, Ack)] == [PacketType.PUBREC, PacketType.PUBCOMP]


@mqtt5("4.3.3-9", "3.5.2-1", "3.4.2-1")
def test_after_an_error_the_identifier_is_free_again() -> None:
    _, publisher, subscriber = pair(V5, "#")
    publisher.publish("$SYS/broker/version", b"forged", qos=2)
    publisher.publish("a", b"x", qos=2)
    assert [p.reason for p in publisher.take() if isinstance(p, Ack)] == [0x87, 0]
    assert subscriber.payloads() == [b"x"]


@mqtt5("3.1.2-29", "3.4.2-3", "3.5.2-3")
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(
    ("properties", "told"),
    [({}, True), ({Property.REQUEST_PROBLEM_INFORMATION: 0}, False), ({Property.MAXIMUM_PACKET_SIZE: 23}, False)],
)
def test_user_properties_of_an_answer_only_where_the_client_takes_them(
    qos: int, properties: dict[int, int], told: bool
) -> None:
    bench = Bench()
    client = bench.client("c", properties=properties)
    client.publish("a", b"x", qos=qos, properties={Property.USER_PROPERTY: ((TELL, ""),)})
    (answer,) = client.take()
    assert isinstance(answer, Ack)
    assert (answer.reason, Property.USER_PROPERTY in answer.properties) == (0x10, told)


@versions
@mqtt311("3.3.5-2")
def test_a_publication_that_is_not_authorised_is_answered_and_not_delivered(version: int) -> None:
    _, publisher, subscriber = pair(version, "$SYS/#")
    publisher.publish("$SYS/x", b"forged", qos=1)
    (answer,) = publisher.take()
    assert isinstance(answer, Ack)
    assert answer.reason == (0x87 if version == V5 else 0)
    assert subscriber.messages() == []


# ---- quality of service: as a sender


@versions
@mqtt5("2.2.1-4", "4.3.2-1", "4.3.3-1")
@mqtt311("2.3.1-4", "2.3.1-1", "4.3.2-1", "4.3.3-1")
def test_identifiers_of_messages_in_flight_differ_and_are_not_0_though_all_have_been_used(version: int) -> None:
    bench, publisher, subscriber = pair(version)
    bench.sessions["s"].window.next_id = 0x3FFE  # a session keeps to a quarter of the identifiers
    for number in range(1, 5):
        publisher.publish("a", b"x", qos=1 + number % 2, packet_id=number)
    assert [m.packet_id for m in subscriber.messages()] == [0x3FFE, 0x3FFF, 1, 2]
    bench.sessions["s"].window.next_id = 0x3FFF
    publisher.publish("a", b"x", qos=1, packet_id=9)
    assert [m.packet_id for m in subscriber.messages()] == [3]


@versions
@mqtt5("4.3.2-3", "4.3.3-3", "4.3.3-4", "4.3.3-5", "4.3.3-6", "4.4.0-1", "3.6.2-1", "2.2.1-5")
@mqtt311("4.3.2-1", "4.3.3-1", "4.4.0-1", "2.3.1-6")
def test_what_is_unacknowledged_is_sent_again_with_its_identifier_and_only_at_reconnection(version: int) -> None:
    bench, publisher, subscriber = pair(version)
    for number, qos in enumerate((1, 2, 1, 2), 1):
        publisher.publish("a", b"%d" % number, qos=qos, packet_id=number)
    first = {m.packet_id: m for m in subscriber.messages()}
    subscriber.send(puback(1), pubrec(2))
    assert subscriber.take() == [pubrel(2)]
    bench.advance(300)
    assert subscriber.take() == []
    subscriber.lose()
    subscriber = bench.client("s", **staying(version))
    again = subscriber.take()
    assert [(p.packet_id, p.payload, p.qos, p.dup) for p in again if isinstance(p, Publish)] == [
        (number, first[number].payload, first[number].qos, True) for number in (3, 4)
    ]
    assert [p for p in again if isinstance(p, Ack)] == [pubrel(2)]
    subscriber.send(pubcomp(2), puback(3), pubrec(4))
    assert subscriber.take() == [pubrel(4)]
    subscriber.send(pubcomp(4))
    subscriber.lose()
    assert bench.client("s", **staying(version)).take() == []


@mqtt5("4.4.0-2", "4.8.2-6")
def test_a_message_that_the_client_refuses_is_not_sent_again() -> None:
    bench, publisher, subscriber = pair(V5)
    publisher.publish("a", b"1", qos=1)
    publisher.publish("a", b"2", qos=2)
    subscriber.take()
    subscriber.send(puback(1, 0x83), pubrec(2, 0x97))
    subscriber.lose()
    assert bench.client("s", **staying(V5)).take() == []


@mqtt5("4.3.3-7")
def test_what_has_been_sent_is_sent_again_though_it_has_expired_since() -> None:
    bench, publisher, subscriber = pair(V5)
    publisher.publish("a", b"x", qos=2, properties={Property.MESSAGE_EXPIRY: 1})
    assert subscriber.payloads() == [b"x"]
    bench.advance(10)
    subscriber.lose()
    assert bench.client("s", **staying(V5)).payloads() == [b"x"]


@mqtt5("3.1.2-24", "3.1.2-25")
def test_a_message_too_large_for_the_client_counts_as_sent() -> None:
    properties = {Property.MAXIMUM_PACKET_SIZE: 40, Property.SESSION_EXPIRY: 60, Property.RECEIVE_MAXIMUM: 1}
    bench, publisher, subscriber = pair(V5, properties=properties)
    for number, size in enumerate((100, 33, 34, 1, 1), 1):
        publisher.publish("a", bytes(size), qos=number % 3, packet_id=number)
    sizes = [len(message.payload) for message in subscriber.messages()]
    assert sizes == [34, 1] or sizes == [33, 34], sizes
    assert bench.sessions["s"].dropped


# ---- order and flow control


@versions
@pytest.mark.parametrize("qos", [0, 1, 2])
@mqtt5("4.6.0-5", "4.6.0-6")
@mqtt311("4.6.0-5", "4.6.0-6")
def test_messages_of_a_topic_keep_the_publisher_s_order_over_waits_and_reconnections(version: int, qos: int) -> None:
    bench, publisher, subscriber = pair(version, "#")
    got: list[bytes] = []
    for number in range(40):
        publisher.publish("a", b"%d" % number, qos=qos, packet_id=number + 1)
        if number == 10:
            subscriber.connection.pause_writing()
        if number == 20:
            subscriber.connection.resume_writing()
            bench.flush()
        if number == 30 and qos:
            got += subscriber.payloads()
            subscriber.lose()
            subscriber = bench.client("s", **staying(version))
    got += subscriber.payloads()
    assert list(dict.fromkeys(got)) == [b"%d" % number for number in range(40)]


@mqtt5("3.3.4-9", "3.3.4-10", "4.9.0-1", "4.9.0-2", "4.9.0-3", "3.3.4-8")
def test_the_client_s_receive_maximum_holds_back_publications_and_nothing_else() -> None:
    _, publisher, subscriber = pair(V5, properties={Property.RECEIVE_MAXIMUM: 2, Property.SESSION_EXPIRY: 60})
    for number in range(1, 6):
        publisher.publish("a", b"%d" % number, qos=1 + number % 2, packet_id=number)
    publisher.publish("a", b"0")
    assert subscriber.payloads() == [b"1", b"2", b"0"]
    subscriber.send(Pingreq())
    assert subscriber.take() == [Pingresp()]
    subscriber.send(pubrec(1))
    assert subscriber.take() == [pubrel(1)]
    subscriber.send(pubcomp(1))
    assert subscriber.payloads() == [b"3"]
    subscriber.send(puback(2))
    assert subscriber.payloads() == [b"4"]


@pytest.mark.parametrize("allowed", [1, 2, 9, 10, None])
@mqtt5("3.3.4-9", "4.4.0-1", "4.9.0-1", "4.9.0-2", "4.6.0-1")
def test_a_client_that_returns_with_another_receive_maximum_gets_no_more_at_once(allowed: int | None) -> None:
    bench, publisher, subscriber = pair(V5)
    for number in range(1, 13):
        publisher.publish("a", b"%d" % number, qos=1 + number % 2, packet_id=number)
    assert len(subscriber.messages()) == 12
    subscriber.send(pubrec(1), pubrec(3))
    subscriber.lose()
    publisher.publish("a", b"13", qos=1, packet_id=13)
    maximum: PropertyMap = {Property.RECEIVE_MAXIMUM: allowed} if allowed is not None else {}
    subscriber = bench.client("s", **staying(V5, maximum))
    releases = [packet for packet in subscriber.packets if isinstance(packet, Ack)]
    assert releases == [pubrel(1), pubrel(3)], "they are not held back"
    got: list[Publish] = []
    open_at_client = {1, 3}
    while subscriber.packets:
        for came in subscriber.take():
            assert isinstance(came, Publish | Ack)
            assert came.packet_id is not None
            if isinstance(came, Ack):
                subscriber.send(pubcomp(came.packet_id))
                open_at_client.remove(came.packet_id)
                continue
            got.append(came)
            open_at_client.add(came.packet_id)
            assert len(open_at_client) <= max(allowed or 0xFFFF, 2)
            subscriber.send(puback(came.packet_id) if came.qos == 1 else pubrec(came.packet_id))
            if came.qos == 1:
                open_at_client.remove(came.packet_id)
    assert [message.payload for message in got] == [b"%d" % number for number in (2, *range(4, 14))]
    assert [message.dup for message in got] == [True] * 10 + [False]


@mqtt5("3.3.4-9", "4.9.0-1")
def test_what_is_acknowledged_before_it_is_repeated_frees_no_room() -> None:
    bench, publisher, subscriber = pair(V5)
    for number in range(1, 6):
        publisher.publish("a", b"%d" % number, qos=1, packet_id=number)
    subscriber.lose()
    subscriber = bench.client("s", **staying(V5, {Property.RECEIVE_MAXIMUM: 2}))
    assert subscriber.payloads() == [b"1", b"2"]
    subscriber.send(puback(4), puback(5))
    assert subscriber.messages() == []
    subscriber.send(puback(1))
    assert subscriber.payloads() == [b"3"]
    subscriber.send(puback(2), puback(3))
    assert subscriber.messages() == []


@pytest.mark.parametrize(
    ("version", "qos", "answers"),
    [
        *((version, 1, [pubrec(1)]) for version in BOTH),
        *((version, 1, [pubcomp(1)]) for version in BOTH),
        *((version, 2, [puback(1)]) for version in BOTH),
        *((version, 2, [pubcomp(1)]) for version in BOTH),
        *((version, 2, [pubrec(1), puback(1)]) for version in BOTH),
        (V5, 1, [pubrec(1, 0x80)]),
        (V5, 2, [puback(1, 0x80)]),
    ],
)
@mqtt5("4.3.2-3", "4.3.3-3", "4.3.3-6", "4.13.1-1")
@mqtt311("4.3.2-1", "4.3.3-1", "4.8.0-1")
def test_an_acknowledgement_of_another_quality_ends_the_connection_and_not_the_delivery(
    version: int, qos: int, answers: list[Ack]
) -> None:
    bench, publisher, subscriber = pair(version)
    publisher.publish("a", b"x", qos=qos)
    assert subscriber.payloads() == [b"x"]
    subscriber.raw = b""
    subscriber.send(*answers)
    assert subscriber.closed
    assert subscriber.raw.endswith(b"\xe0\1\x82") == (version == V5)
    subscriber = bench.client("s", **staying(version))
    (again,) = subscriber.take()
    assert again == (pubrel(1) if len(answers) > 1 else Publish("a", b"x", qos, dup=True, packet_id=1))


@versions
@mqtt5("3.3.4-7")
@mqtt311("4.8.0-2")
def test_more_than_the_server_s_receive_maximum_ends_an_mqtt_5_connection(version: int) -> None:
    bench = Bench(Limits(receive_maximum=2))
    client = bench.client("c", version=version)
    client.send_bytes(b"".join(publish(version, b"a", b"x", 4, packet_id=number) for number in (1, 2, 3)))
    assert client.closed == (version == V5)
    if version == V5:
        assert client.raw.endswith(b"\xe0\1\x93")


@mqtt311("4.8.0-2")
def test_an_error_of_ours_closes_only_the_connection_it_came_by() -> None:
    bench = Bench(Limits(maximum_packet_size=50))
    client, other = bench.client("c", version=V311), bench.client("o", version=V311)
    client.send_bytes(publish(V311, b"a", bytes(100)))
    assert client.closed
    other.send(Pingreq())
    assert other.take() == [Pingresp()]
