from __future__ import annotations

import pytest

from saps.frontend.mqtt.codec.packets import V5, V311, Ack, Packet, PacketType, Publish
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.limits import Limits
from saps.messages import Reached
from tests.frontend.mqtt.bench import Bench, Client, puback, pubcomp, pubrec, pubrel
from tests.routing.meshes import DelayingMesh

EXPIRY = {Property.SESSION_EXPIRY: 600}


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


def test_no_acknowledgement_on_a_dead_connection() -> None:
    mesh = DelayingMesh()
    bench = Bench(mesh=mesh)
    client = bench.client()
    client.publish("a", qos=1)
    client.lose()
    mesh.complete_publications()
    bench.flush()
    assert client.take() == []


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


def test_an_identifier_that_a_stale_copy_of_the_session_knows_is_a_new_messages_without_dup() -> None:
    """MQTT-3.3.1-1: who repeats a PUBLISH on a new connection says so. Copies of a session may not have heard of the
    PUBREL: a client that used the identifier again was told PUBREC, and nobody got its message."""
    mesh = DelayingMesh()
    bench = Bench(mesh=mesh)
    bench.client("p", properties=EXPIRY).publish("a", b"1", qos=2, packet_id=3)
    mesh.complete_publications(Reached(1, 1))
    again = bench.client("p", clean_start=False, properties=EXPIRY)
    again.publish("a", b"1", qos=2, packet_id=3, dup=True)
    assert len(mesh.published) == 1
    again.publish("a", b"2", qos=2, packet_id=3)
    assert len(mesh.published) == 2
    again.publish("a", b"2", qos=2, packet_id=3)
    assert len(mesh.published) == 2


def test_topic_alias_towards_the_client_first_come_first_served() -> None:
    bench = Bench()
    client = bench.client("s", properties={Property.TOPIC_ALIAS_MAXIMUM: 1})
    client.subscribe("#", qos=1)
    publisher = bench.client("p")
    for topic, qos in [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 0)]:
        publisher.publish(topic, qos=qos)
    found = [(m.topic, m.properties.get(Property.TOPIC_ALIAS)) for m in client.messages()]
    assert found == [("a", 1), ("b", None), ("", 1), ("b", None), ("", 1)]


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
    assert bench.sessions["s"].dropped == 1


def test_full_queue_gives_up_its_oldest_messages() -> None:
    bench = Bench(Limits(maximum_queued=3))
    client = bench.client("s", properties=EXPIRY)
    client.subscribe("a", qos=1)
    client.lose()
    publish_many(bench, 5)
    again = bench.client("s", clean_start=False, properties=EXPIRY)
    assert again.payloads() == [b"3", b"4", b"5"]
    assert Bench.brokers > 1 or bench.sessions["s"].dropped == 2, "where it was"


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


def test_unexpected_acknowledgements_do_no_harm() -> None:
    bench = Bench()
    client: Client = bench.client("s")
    client.send(puback(1), pubcomp(1), pubrec(1))
    assert client.take() == [pubrel(1, Reason.PACKET_IDENTIFIER_NOT_FOUND)]
    assert not client.closed
    client.send(Ack(PacketType.PUBACK, 5, Reason.UNSPECIFIED_ERROR))
    assert not client.closed
