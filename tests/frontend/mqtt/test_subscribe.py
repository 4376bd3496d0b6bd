from __future__ import annotations

import pytest

from saps.frontend.mqtt.codec.packets import (
    V5,
    V311,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
)
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.connection.subscribe_handler import AT_ONCE, UNDER_WAY
from saps.frontend.mqtt.limits import Limits
from tests.frontend.mqtt.bench import Bench
from tests.routing.meshes import DelayingMesh


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


def test_refused_filters_have_their_reason_and_do_not_spoil_the_others() -> None:
    bench = Bench(Limits(maximum_topic_levels=3))
    assert bench.client("5").subscribe("ok", "a/b/c/d", qos=1) == [1, Reason.TOPIC_FILTER_INVALID]
    assert bench.client("4", version=V311).subscribe("$share/g/a/b/c/d", "ok", qos=1) == [0x80, 1]
    assert set(bench.hub.index.filters) == {"ok"}


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


def test_a_large_subscribe_is_served_in_slices_and_others_in_between() -> None:
    """9,900 filters at once held up all clients of the broker."""
    bench = Bench()
    client, other = bench.client("much"), bench.client("other")
    client.send(Subscribe(9, [SubscribeEntry(f"+/{number}") for number in range(9900)]))
    assert len(bench.hub.index) == AT_ONCE
    assert other.subscribe("calm") == [0]
    bench.advance(1.0)
    assert client.expect(Suback) == Suback(9, [0] * 9900)


def test_few_filters_of_a_packet_wait_for_the_mesh_together() -> None:
    mesh = DelayingMesh()
    bench = Bench(mesh=mesh)
    client = bench.client()
    client.send(Subscribe(9, [SubscribeEntry(f"+/{number}") for number in range(2000)]))
    for taken_up in (UNDER_WAY, 2 * UNDER_WAY, 3 * UNDER_WAY, 2000):
        bench.advance(1.0)
        assert len(mesh.subscribed) == taken_up
        assert client.take() == []
        mesh.complete_subscriptions()
    bench.flush()
    assert client.expect(Suback) == Suback(9, [0] * 2000)


def test_what_a_client_sends_behind_a_large_subscribe_is_handled_behind_it() -> None:
    bench = Bench()
    client = bench.client()
    filters = [f"+/{number}" for number in range(3 * AT_ONCE)]
    client.send(Subscribe(9, [SubscribeEntry(topic_filter) for topic_filter in filters]), Unsubscribe(10, filters))
    assert not client.reading
    bench.advance(1.0)
    assert client.expect(Suback) == Suback(9, [0] * len(filters))
    assert client.expect(Unsuback).reasons == [0] * len(filters)
    assert client.reading
    assert not bench.hub.index


def test_a_client_that_goes_in_the_midst_of_a_large_subscribe_leaves_nothing_behind() -> None:
    bench = Bench()
    client = bench.client()
    client.send(Subscribe(9, [SubscribeEntry(f"+/{number}") for number in range(3 * AT_ONCE)]))
    client.lose()
    bench.advance(1.0)
    assert not bench.hub.index
