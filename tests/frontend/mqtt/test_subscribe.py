from __future__ import annotations

import pytest

from saps.frontend.mqtt.packets import (
    V5,
    V311,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
)
from saps.frontend.mqtt.properties import Property
from saps.frontend.mqtt.reasons import Reason
from tests.frontend.mqtt.bench import Bench
from tests.hub.meshes import DelayingMesh


@pytest.mark.parametrize("version", [V311, V5])
def test_suback_grants_the_requested_qualities(version: int) -> None:
    client = Bench().client(version=version)
    entries = [SubscribeEntry("a", 0), SubscribeEntry("b/+", 1), SubscribeEntry("#", 2)]
    assert client.subscribe(*entries) == [0, 1, 2]


def test_suback_waits_until_the_mesh_has_taken_up_every_filter() -> None:
    mesh = DelayingMesh()
    client = Bench(mesh=mesh).client()
    client.send(Subscribe(9, [SubscribeEntry("a"), SubscribeEntry("b")]))
    assert client.take() == []
    assert mesh.subscribed == ["a", "b"]
    mesh.complete_subscriptions()
    client.bench.flush()
    assert client.expect(Suback) == Suback(9, [0, 0])


def test_no_suback_on_a_later_connection() -> None:
    mesh = DelayingMesh()
    bench = Bench(mesh=mesh)
    expiry = {Property.SESSION_EXPIRY: 60}
    first = bench.client("c", properties=expiry)
    first.send(Subscribe(9, [SubscribeEntry("a")]))
    again = bench.client("c", clean_start=False, properties=expiry)
    mesh.complete_subscriptions()
    bench.flush()
    assert again.take() == []
    assert not any(isinstance(packet, Suback) for packet in first.take())


@pytest.mark.parametrize(
    ("topic_filter", "reason"),
    [
        ("a/#/b", Reason.TOPIC_FILTER_INVALID),
        ("a+", Reason.TOPIC_FILTER_INVALID),
        ("", Reason.TOPIC_FILTER_INVALID),
        ("$share", Reason.TOPIC_FILTER_INVALID),
        ("$share/group", Reason.TOPIC_FILTER_INVALID),
        ("$share//a", Reason.TOPIC_FILTER_INVALID),
        ("$share/+/a", Reason.TOPIC_FILTER_INVALID),
        ("$share/group/a#", Reason.TOPIC_FILTER_INVALID),
    ],
)
def test_refused_filters_have_their_reason_and_do_not_spoil_the_others(topic_filter: str, reason: Reason) -> None:
    bench = Bench()
    assert bench.client("5").subscribe("ok", topic_filter, qos=1) == [1, reason]
    assert bench.client("4", version=V311).subscribe(topic_filter, "ok", qos=1) == [0x80, 1]
    assert set(bench.hub.index.filters) == {"ok"}


def test_unsubscribe_tells_what_existed() -> None:
    bench = Bench()
    client = bench.client()
    client.subscribe("a")
    client.send(Unsubscribe(3, ["a", "b"]))
    assert client.expect(Unsuback) == Unsuback(3, [0, Reason.NO_SUBSCRIPTION_EXISTED])
    bench.client("p").publish("a")
    assert client.messages() == []
    old = bench.client("4", version=V311)
    old.send(Unsubscribe(3, ["a"]))
    assert old.raw.endswith(b"\xb0\2\0\3")


def test_overlapping_subscriptions_give_one_copy_with_highest_qos_and_all_identifiers() -> None:
    bench = Bench()
    client = bench.client()
    client.subscribe("a/b", qos=0, properties={Property.SUBSCRIPTION_IDENTIFIER: (5,)})
    client.subscribe("a/+", qos=1, properties={Property.SUBSCRIPTION_IDENTIFIER: (300_000,)})
    client.subscribe("#", qos=0)
    bench.client("p").publish("a/b", b"x", qos=2)
    (message,) = client.messages()
    assert message.qos == 1
    assert sorted(message.properties[Property.SUBSCRIPTION_IDENTIFIER]) == [5, 300_000]


def test_wildcards_at_the_start_do_not_see_dollar_topics() -> None:
    bench = Bench()
    client = bench.client()
    client.subscribe("#", "+/x", "$app/#")
    publisher = bench.client("p")
    publisher.publish("$app/x", b"1")
    publisher.publish("$other/x", b"2")
    assert client.payloads() == [b"1"]


def test_no_local() -> None:
    bench = Bench()
    client, other = bench.client("c"), bench.client("o")
    client.subscribe(SubscribeEntry("a", no_local=True))
    client.publish("a", b"own")
    other.publish("a", b"foreign")
    assert client.payloads() == [b"foreign"]


# ---- retained messages


@pytest.mark.parametrize("version", [V311, V5])
def test_retained_message_comes_after_suback_with_the_retain_flag(version: int) -> None:
    bench = Bench()
    bench.client("p").publish("a/b", b"old", retain=True)
    bench.client("p").publish("a/b", b"kept", qos=1, retain=True)
    client = bench.client(version=version)
    client.send(Subscribe(1, [SubscribeEntry("a/#", 1)]))
    suback, message = client.take()
    assert isinstance(suback, Suback)
    assert message == Publish("a/b", b"kept", qos=1, retain=True, packet_id=1)


def test_empty_retained_message_clears() -> None:
    bench = Bench()
    publisher = bench.client("p")
    publisher.publish("a", b"kept", retain=True)
    publisher.publish("a", b"", retain=True)
    client = bench.client()
    client.subscribe("a")
    assert client.messages() == []


def test_retain_handling() -> None:
    bench = Bench()
    bench.client("p").publish("a", b"kept", retain=True)
    client = bench.client()

    def got(handling: int) -> list[bytes]:
        client.subscribe(SubscribeEntry("a", retain_handling=handling))
        return client.payloads()

    assert got(2) == []
    assert got(1) == [], "the subscription existed"
    assert got(0) == [b"kept"]
    client.send(Unsubscribe(1, ["a"]))
    client.take()
    assert got(1) == [b"kept"]


def test_retain_as_published() -> None:
    bench = Bench()
    keeping, clearing = bench.client("k"), bench.client("c")
    keeping.subscribe(SubscribeEntry("a", retain_as_published=True))
    clearing.subscribe(SubscribeEntry("a"))
    publisher = bench.client("p")
    publisher.publish("a", b"1", retain=True)
    publisher.publish("a", b"2")
    assert [m.retain for m in keeping.messages()] == [True, False]
    assert [m.retain for m in clearing.messages()] == [False, False]


def test_retained_message_expires_and_tells_what_is_left_of_its_life() -> None:
    bench = Bench()
    bench.client("p").publish("a", b"kept", retain=True, properties={Property.MESSAGE_EXPIRY: 10})
    bench.advance(4)
    client = bench.client()
    client.subscribe("a")
    assert client.messages()[0].properties == {Property.MESSAGE_EXPIRY: 6}
    bench.advance(6)
    client.subscribe("a")
    assert client.messages() == []


def test_retained_message_to_an_identified_subscription() -> None:
    bench = Bench()
    bench.client("p").publish("a", b"kept", retain=True)
    client = bench.client()
    client.subscribe("a", properties={Property.SUBSCRIPTION_IDENTIFIER: (4,)})
    assert client.messages()[0].properties == {Property.SUBSCRIPTION_IDENTIFIER: (4,)}
