"""Shared subscriptions on one broker (MQTT 5.0, section 4.8.2)."""

from __future__ import annotations

from saps.frontend.mqtt.codec.packets import V5, Publish, Subscribe, SubscribeEntry
from saps.frontend.mqtt.codec.properties import Property
from tests.frontend.mqtt.bench import Bench, Client, puback, pubcomp, pubrec
from tests.frontend.mqtt.conformance.conforms import mqtt5
from tests.frontend.mqtt.conformance.raw import connected

FILTER = "$share/g/a"
STAYING = {"clean_start": False, "properties": {Property.SESSION_EXPIRY: 60}}


def group(bench: Bench, *granted: int) -> list[Client]:
    """The members of one group, each with its QoS."""
    members = [bench.client(f"m{number}", **STAYING) for number in range(len(granted))]
    for member, qos in zip(members, granted, strict=True):
        assert member.subscribe(FILTER, qos=qos) == [qos]
    return members


@mqtt5("4.8.2-1", "4.8.2-2", "4.8.2-3")
def test_one_member_gets_each_message_with_the_qos_granted_to_it() -> None:
    bench = Bench()
    members = group(bench, 0, 1, 2)
    publisher = bench.client("p")
    for number in range(12):
        publisher.publish("a", b"%d" % number, qos=2, packet_id=number + 1)
    got = [member.messages() for member in members]
    assert sorted(int(message.payload) for messages in got for message in messages) == list(range(12))
    for qos, messages in enumerate(got):
        assert {message.qos for message in messages} <= {qos}


@mqtt5("3.8.3-4")
def test_no_local_with_a_shared_subscription_is_a_protocol_error() -> None:
    _, client = connected(V5)
    client.send(Subscribe(1, [SubscribeEntry(FILTER, no_local=True)]))
    assert client.raw == b"\xe0\1\x82"


def half_delivered(bench: Bench) -> tuple[Client, Client, Publish]:
    """A member that has a message with QoS 2 unacknowledged, another member, and the message."""
    members = group(bench, 2, 2)
    bench.client("p").publish("a", b"x", qos=2)
    holder, other = sorted(members, key=lambda member: not member.packets)
    (message,) = holder.messages()
    return holder, other, message


@mqtt5("4.8.2-4")
def test_a_delivery_with_qos_2_is_completed_with_the_same_client_when_it_returns() -> None:
    bench = Bench()
    holder, other, message = half_delivered(bench)
    assert message.packet_id is not None
    assert holder.connection.session is not None
    name = holder.connection.session.client_id
    holder.lose()
    assert other.messages() == []
    back = bench.client(name, **STAYING)
    assert back.payloads() == [b"x"]
    back.send(pubrec(message.packet_id))
    back.send(pubcomp(message.packet_id))
    assert other.messages() == []


@mqtt5("4.8.2-5")
def test_a_delivery_with_qos_2_is_not_moved_when_the_session_ends() -> None:
    bench = Bench()
    holder, other, _ = half_delivered(bench)
    holder.lose()
    bench.advance(61)
    assert other.messages() == []


@mqtt5("4.8.2-6")
def test_a_message_that_a_member_refuses_is_discarded() -> None:
    bench = Bench()
    holder, other, message = half_delivered(bench)
    assert message.packet_id is not None
    holder.send(pubrec(message.packet_id, 0x83))
    holder.send(puback(message.packet_id, 0x83))
    assert (holder.messages(), other.messages()) == ([], [])
