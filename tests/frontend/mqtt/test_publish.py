from __future__ import annotations

import pytest

from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.packets import V5, V311, Ack, Disconnect, Packet, PacketType, Publish
from saps.frontend.mqtt.properties import Property
from saps.frontend.mqtt.reasons import Reason
from saps.messages import Reached
from tests.frontend.mqtt.bench import Bench, Client, puback, pubcomp, pubrec, pubrel
from tests.hub.meshes import DelayingMesh

EXPIRY = {Property.SESSION_EXPIRY: 600}


@pytest.mark.parametrize("sender", [V311, V5])
@pytest.mark.parametrize("receiver", [V311, V5])
@pytest.mark.parametrize("sent", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_delivery_has_the_lower_quality_between_all_versions(
    sender: int, receiver: int, sent: int, granted: int
) -> None:
    bench = Bench()
    client = bench.client("s", version=receiver)
    client.subscribe("a", qos=granted)
    publisher = bench.client("p", version=sender)
    for number in (1, 2, 3):
        publisher.publish("a", b"%d" % number, qos=sent, packet_id=number)
    messages = client.messages()
    assert [m.payload for m in messages] == [b"1", b"2", b"3"]
    assert {m.qos for m in messages} == {min(sent, granted)}
    assert not any(m.dup or m.retain for m in messages)


def test_publisher_is_answered_by_quality() -> None:
    bench = Bench()
    bench.client("s").subscribe("a")
    client = bench.client("p")
    client.publish("a", qos=0)
    assert client.take() == []
    client.publish("a", qos=1, packet_id=5)
    assert client.take() == [puback(5)]
    client.publish("a", qos=2, packet_id=6)
    assert client.take() == [pubrec(6)]
    client.send(pubrel(6))
    assert client.take() == [pubcomp(6)]


@pytest.mark.parametrize("qos", [1, 2])
def test_nobody_there_is_told_to_5_0_only(qos: int) -> None:
    bench = Bench()
    for version, reason in ((V5, Reason.NO_MATCHING_SUBSCRIBERS), (V311, 0)):
        client = bench.client("p", version=version)
        client.publish("a", qos=qos)
        assert client.expect(Ack).reason == reason


@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledgement_waits_for_the_mesh_and_counts_its_subscribers(qos: int) -> None:
    mesh = DelayingMesh()
    bench = Bench(mesh=mesh)
    client = bench.client()
    client.publish("a", b"x", qos=qos, packet_id=7)
    client.publish("b", b"y", qos=qos, packet_id=8)
    assert client.take() == []
    assert [m.payload for m in mesh.published] == [b"x", b"y"]
    mesh.complete_publications(Reached(1, 1))
    bench.flush()
    make = puback if qos == 1 else pubrec
    assert client.take() == [make(7), make(8)]
    client.publish("a", qos=qos, packet_id=9)
    mesh.complete_publications()
    bench.flush()
    assert client.take() == [make(9, Reason.NO_MATCHING_SUBSCRIBERS)]


def test_qos_0_goes_to_the_mesh_too() -> None:
    mesh = DelayingMesh()
    bench = Bench(mesh=mesh)
    client = bench.client()
    for number in range(3):
        client.publish("a", b"%d" % number)
    assert [m.payload for m in mesh.published] == [b"0", b"1", b"2"]


def test_no_acknowledgement_on_a_dead_connection() -> None:
    mesh = DelayingMesh()
    bench = Bench(mesh=mesh)
    client = bench.client()
    client.publish("a", qos=1)
    client.lose()
    mesh.complete_publications()
    bench.flush()
    assert client.take() == []


def test_qos_2_is_published_once_however_often_it_is_repeated() -> None:
    bench = Bench()
    watcher = bench.client("w")
    watcher.subscribe("a")
    client = bench.client("p", properties=EXPIRY)
    client.publish("a", b"x", qos=2, packet_id=3)
    client.publish("a", b"x", qos=2, packet_id=3, dup=True)
    assert client.take() == [pubrec(3), pubrec(3)]
    client.lose()
    again = bench.client("p", clean_start=False, properties=EXPIRY)
    again.publish("a", b"x", qos=2, packet_id=3, dup=True)
    again.send(pubrel(3))
    again.send(pubrel(3))
    assert again.take() == [pubrec(3), pubcomp(3), pubcomp(3, Reason.PACKET_IDENTIFIER_NOT_FOUND)]
    again.publish("a", b"y", qos=2, packet_id=3)
    assert watcher.payloads() == [b"x", b"y"]


def test_qos_2_confirmed_after_a_reconnect_is_answered_on_the_new_connection() -> None:
    mesh = DelayingMesh()
    bench = Bench(mesh=mesh)
    bench.client("p", properties=EXPIRY).publish("a", qos=2, packet_id=3)
    again = bench.client("p", clean_start=False, properties=EXPIRY)
    again.publish("a", qos=2, packet_id=3, dup=True)
    assert again.take() == []
    mesh.complete_publications(Reached(1, 1))
    bench.flush()
    assert again.take() == [pubrec(3)]
    assert len(mesh.published) == 1


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (Publish("a/+"), Reason.TOPIC_NAME_INVALID),
        (Publish("#"), Reason.TOPIC_NAME_INVALID),
        (Publish(""), Reason.PROTOCOL_ERROR),
        (Publish("", properties={Property.TOPIC_ALIAS: 1}), Reason.PROTOCOL_ERROR),
        (Publish("a", properties={Property.TOPIC_ALIAS: 1000}), Reason.TOPIC_ALIAS_INVALID),
        (Publish("a", properties={Property.SUBSCRIPTION_IDENTIFIER: (1,)}), Reason.PROTOCOL_ERROR),
        (Publish("a", properties={Property.RESPONSE_TOPIC: "a/#"}), Reason.PROTOCOL_ERROR),
    ],
)
def test_publications_that_break_the_rules_close_the_connection(packet: Publish, reason: Reason) -> None:
    client = Bench().client()
    client.send(packet)
    assert client.expect(Disconnect).reason == reason
    assert client.closed


@pytest.mark.parametrize("topic", [b"a\0b", b"\xff", b"\xed\xa0\x80"])
def test_topics_must_be_proper_utf_8(topic: bytes) -> None:
    client = Bench().client()
    client.send_bytes(bytes((0x30, len(topic) + 3, 0, len(topic))) + topic + b"\0")
    assert client.expect(Disconnect).reason == Reason.MALFORMED_PACKET


def test_sys_topics_belong_to_the_broker() -> None:
    bench = Bench()
    watcher = bench.client("w")
    watcher.subscribe("$SYS/#")
    client = bench.client("p")
    for _ in range(2):
        client.publish("$SYS/x", qos=0)
        client.publish("$SYS/x", qos=1)
        assert client.expect(Ack).reason == Reason.NOT_AUTHORIZED
    assert watcher.messages() == []


def test_properties_reach_the_subscribers_of_5_0_unaltered() -> None:
    bench = Bench()
    new, old = bench.client("5"), bench.client("4", version=V311)
    new.subscribe("a", qos=1)
    old.subscribe("a", qos=1)
    properties = {
        Property.PAYLOAD_FORMAT: 1,
        Property.MESSAGE_EXPIRY: 60,
        Property.CONTENT_TYPE: "text/plain",
        Property.RESPONSE_TOPIC: "answer",
        Property.CORRELATION_DATA: b"\0\1",
        Property.USER_PROPERTY: (("a", "1"), ("a", "2"), ("b", "")),
    }
    for qos in (0, 1):
        bench.client("p").publish("a", b"x", qos=qos, properties=properties)
        assert new.messages()[0].properties == properties
        assert old.payloads() == [b"x"]


def test_topic_alias_from_the_client() -> None:
    bench = Bench()
    watcher = bench.client("w")
    watcher.subscribe("#")
    client = bench.client("p")
    client.publish("a", b"1", properties={Property.TOPIC_ALIAS: 2})
    client.publish("", b"2", properties={Property.TOPIC_ALIAS: 2})
    client.publish("b", b"3", properties={Property.TOPIC_ALIAS: 2})
    client.publish("", b"4", properties={Property.TOPIC_ALIAS: 2})
    messages = watcher.messages()
    assert [(m.topic, m.payload) for m in messages] == [("a", b"1"), ("a", b"2"), ("b", b"3"), ("b", b"4")]
    assert not any(m.properties for m in messages)


def test_topic_alias_towards_the_client_first_come_first_served() -> None:
    bench = Bench()
    client = bench.client("s", properties={Property.TOPIC_ALIAS_MAXIMUM: 1})
    client.subscribe("#", qos=1)
    publisher = bench.client("p")
    for topic, qos in [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 0)]:
        publisher.publish(topic, qos=qos)
    found = [(m.topic, m.properties.get(Property.TOPIC_ALIAS)) for m in client.messages()]
    assert found == [("a", 1), ("b", None), ("", 1), ("b", None), ("", 1)]


def test_packets_larger_than_the_client_takes_are_left_out() -> None:
    bench = Bench()
    client = bench.client("s", properties={Property.MAXIMUM_PACKET_SIZE: 30})
    client.subscribe("a", qos=1)
    publisher = bench.client("p")
    for qos in (0, 1):
        publisher.publish("a", bytes(40), qos=qos)
        publisher.publish("a", b"small", qos=qos)
    assert client.payloads() == [b"small", b"small"]
    assert bench.frontend.sessions["s"].dropped == 2


def test_a_large_message_leaves_no_alias_behind_that_the_client_never_saw() -> None:
    bench = Bench()
    limits = {Property.MAXIMUM_PACKET_SIZE: 30, Property.TOPIC_ALIAS_MAXIMUM: 5}
    client = bench.client("s", properties=limits)
    client.subscribe("a")
    publisher = bench.client("p")
    publisher.publish("a", bytes(40))
    publisher.publish("a", b"1")
    publisher.publish("a", b"2")
    assert [(m.topic, m.payload) for m in client.messages()] == [("a", b"1"), ("", b"2")]


def test_receive_maximum_of_the_server_is_enforced() -> None:
    client = Bench(Limits(receive_maximum=2), DelayingMesh()).client()
    for number in (1, 2):
        client.publish("a", qos=number, packet_id=number)
    assert not client.closed
    client.publish("a", qos=1, packet_id=3)
    assert client.expect(Disconnect).reason == Reason.RECEIVE_MAXIMUM_EXCEEDED


def test_3_1_1_clients_are_not_read_while_the_mesh_is_behind() -> None:
    mesh = DelayingMesh()
    bench = Bench(Limits(receive_maximum=2), mesh)
    client = bench.client(version=V311)
    for number in (1, 2, 3):
        client.publish("a", qos=1, packet_id=number)
    assert not client.reading
    mesh.complete_publications()
    bench.flush()
    assert client.reading
    assert client.take() == [puback(1), puback(2), puback(3)]


# ---- towards subscribers


def ids(packets: list[Packet]) -> list[int | None]:
    assert all(isinstance(p, Publish) for p in packets)
    return [p.packet_id for p in packets if isinstance(p, Publish)]


def publish_many(bench: Bench, count: int, qos: int = 1, topic: str = "a") -> None:
    publisher = bench.client("publisher")
    for number in range(1, count + 1):
        publisher.publish(topic, b"%d" % number, qos=qos, packet_id=number)
        publisher.send(pubrel(number))


def test_receive_maximum_of_the_client_is_kept_and_the_rest_follows() -> None:
    bench = Bench()
    client = bench.client("s", properties={Property.RECEIVE_MAXIMUM: 2})
    client.subscribe("a", qos=2)
    publish_many(bench, 5, qos=2)
    assert ids(client.take()) == [1, 2]
    client.send(pubrec(1))
    assert client.take() == [pubrel(1)]
    client.send(pubcomp(1))
    assert client.payloads() == [b"3"]
    client.send(pubrec(2, Reason.QUOTA_EXCEEDED))
    assert client.payloads() == [b"4"]


def test_acknowledged_identifiers_are_not_used_while_in_flight() -> None:
    bench = Bench()
    client = bench.client("s")
    client.subscribe("a", qos=1)
    publish_many(bench, 3)
    client.take()
    bench.frontend.sessions["s"].next_id = 0xFFFF
    client.send(puback(2))
    publish_many(bench, 3)
    assert ids(client.take()) == [0xFFFF, 2, 4]


@pytest.mark.parametrize("version", [V311, V5])
def test_unacknowledged_messages_are_repeated_in_order_on_resume(version: int) -> None:
    bench = Bench()
    fields = {"version": version, "clean_start": False, "properties": EXPIRY if version == V5 else {}}
    client = bench.client("s", **fields)
    client.subscribe("a", qos=2)
    publish_many(bench, 4, qos=2)
    client.send(pubrec(3), pubrec(1), pubcomp(3))
    client.lose()
    again = bench.client("s", **fields)
    packets = again.take()
    assert packets == [
        Publish("a", b"2", qos=2, dup=True, packet_id=2),
        Publish("a", b"4", qos=2, dup=True, packet_id=4),
        pubrel(1),
    ]
    again.send(pubrec(2), pubrec(4), pubcomp(1), pubcomp(2), pubcomp(4))
    assert again.take() == [pubrel(2), pubrel(4)]
    assert bench.frontend.sessions["s"].inflight == {}


def test_messages_for_an_absent_client_wait_but_not_those_of_qos_0() -> None:
    bench = Bench()
    client = bench.client("s", properties=EXPIRY)
    client.subscribe("a", qos=1)
    client.lose()
    publish_many(bench, 3, qos=1)
    publish_many(bench, 1, qos=0)
    again = bench.client("s", clean_start=False, properties=EXPIRY)
    messages = again.messages()
    assert [m.payload for m in messages] == [b"1", b"2", b"3"]
    assert not any(m.dup for m in messages)
    assert bench.frontend.sessions["s"].dropped == 1


def test_full_queue_gives_up_its_oldest_messages() -> None:
    bench = Bench(Limits(maximum_queued=3))
    client = bench.client("s", properties=EXPIRY)
    client.subscribe("a", qos=1)
    client.lose()
    publish_many(bench, 5)
    again = bench.client("s", clean_start=False, properties=EXPIRY)
    assert again.payloads() == [b"3", b"4", b"5"]
    assert bench.frontend.sessions["s"].dropped == 2


def test_queue_is_bounded_in_bytes_too() -> None:
    bench = Bench(Limits(maximum_queued_bytes=250))
    client = bench.client("s", properties=EXPIRY)
    client.subscribe("a", qos=1)
    client.lose()
    publisher = bench.client("p")
    for number in range(4):
        publisher.publish("a", bytes((number,)) * 100, qos=1)
    again = bench.client("s", clean_start=False, properties=EXPIRY)
    assert [p[:1] for p in again.payloads()] == [b"\2", b"\3"]


def test_waiting_messages_expire_or_tell_what_is_left_of_their_life() -> None:
    bench = Bench()
    client = bench.client("s", properties=EXPIRY)
    client.subscribe("a", qos=1)
    client.lose()
    publisher = bench.client("p")
    for life in (5, 20):
        publisher.publish("a", b"%d" % life, qos=1, properties={Property.MESSAGE_EXPIRY: life})
    bench.advance(7.5)
    again = bench.client("s", clean_start=False, properties=EXPIRY)
    (message,) = again.messages()
    assert (message.payload, message.properties) == (b"20", {Property.MESSAGE_EXPIRY: 13})


def test_session_may_go_on_in_another_protocol_version() -> None:
    bench = Bench()
    client = bench.client("s", properties=EXPIRY)
    client.subscribe("a", qos=1)
    bench.client("p").publish("a", b"0", qos=0)
    publish_many(bench, 1)
    client.lose()
    again = bench.client("s", version=V311, clean_start=False)
    assert again.messages() == [Publish("a", b"1", qos=1, dup=True, packet_id=1)]
    bench.client("p").publish("a", b"2")
    assert again.messages() == [Publish("a", b"2")]


def test_unexpected_acknowledgements_do_no_harm() -> None:
    bench = Bench()
    client: Client = bench.client("s")
    client.send(puback(1), pubcomp(1), pubrec(1))
    assert client.take() == [pubrel(1, Reason.PACKET_IDENTIFIER_NOT_FOUND)]
    assert not client.closed
    client.send(Ack(PacketType.PUBACK, 5, Reason.UNSPECIFIED_ERROR))
    assert not client.closed
