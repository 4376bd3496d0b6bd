"""SUBSCRIBE and UNSUBSCRIBE, and which topics which filters match."""

from __future__ import annotations

from typing import Any

import pytest

from saps.frontend.mqtt.codec.packets import V5, Publish, Suback, Subscribe, SubscribeEntry, Unsuback, Unsubscribe
from saps.frontend.mqtt.codec.properties import Property
from tests.frontend.mqtt.bench import Bench, puback
from tests.frontend.mqtt.conformance.conforms import mqtt5, mqtt311
from tests.frontend.mqtt.conformance.raw import BOTH, connected, subscribe

versions = pytest.mark.parametrize("version", BOTH)
VALID = ("a", "+", "#", "/", "+/+", "a/#", "+/a/#", "a b", "A", "é", "$SYS/#", "a//b", "a/" * 100)
INVALID = ("", "a#", "a/#/b", "#/a", "a+", "+a/b", "a/+b", "##")
NOT_SHARED = ("$share", "$share/", "$share//a", "$share/g", "$share/g/", "$share/g+/a", "$share/g#/a", "$share/g/a#")
DEEP = "/".join("a" * 1000)


def staying(version: int) -> dict[str, Any]:
    properties = {Property.SESSION_EXPIRY: 60} if version == V5 else {}
    return {"clean_start": False, "properties": properties}


@versions
@mqtt5("2.2.1-6", "3.8.4-1", "3.8.4-2", "3.8.4-5", "3.8.4-6", "3.8.4-7", "3.9.3-1", "3.9.3-2")
@mqtt311("2.3.1-7", "3.8.4-1", "3.8.4-2", "3.8.4-4", "3.8.4-5", "3.9.3-1", "3.9.3-2")
def test_each_filter_is_granted_or_refused_in_its_place(version: int) -> None:
    _, client = connected(version)
    filters = [*VALID, DEEP, *VALID]
    client.send(Subscribe(77, [SubscribeEntry(f, number % 3) for number, f in enumerate(filters)]))
    suback = client.expect(Suback)
    assert suback.packet_id == 77
    refused = 0x8F if version == V5 else 0x80
    assert suback.reasons == [number % 3 if f in VALID else refused for number, f in enumerate(filters)]


@versions
@pytest.mark.parametrize("topic_filter", [*INVALID, *NOT_SHARED])
@pytest.mark.parametrize("kind", [Subscribe, Unsubscribe])
@mqtt5("4.7.0-1", "4.7.1-1", "4.7.1-2", "4.7.3-1", "4.8.2-1", "4.8.2-2", "4.13.1-1")
@mqtt311("4.7.1-1", "4.7.1-2", "4.7.1-3", "4.7.3-1", "4.8.0-1")
def test_an_ill_formed_filter_ends_the_connection_and_nothing_of_its_packet_is_done(
    version: int, topic_filter: str, kind: type[Subscribe] | type[Unsubscribe]
) -> None:
    bench = Bench()
    client = bench.client("c", version=version, **staying(version))
    client.subscribe("old")
    client.raw = b""
    if kind is Subscribe:
        client.send(Subscribe(2, [SubscribeEntry("new"), SubscribeEntry(topic_filter)]))
    else:
        client.send(Unsubscribe(2, ["old", topic_filter]))
    assert client.closed
    assert client.raw == (b"\xe0\1\x81" if version == V5 else b"")
    assert list(bench.sessions["c"].subscriptions) == ["old"]


@versions
@mqtt5("4.7.3-3")
@mqtt311("4.7.3-3")
def test_names_and_filters_may_have_65535_bytes(version: int) -> None:
    _, client = connected(version)
    name = "a" * 65535
    assert client.subscribe(name) == [0]
    client.publish(name, b"x")
    assert [message.topic for message in client.messages()] == [name]


@versions
@mqtt5("3.8.4-3", "3.8.4-4")
@mqtt311("3.8.4-3")
def test_the_same_filter_again_replaces_the_subscription_and_nothing_is_lost(version: int) -> None:
    bench = Bench()
    client, publisher = bench.client("c", version=version), bench.client("p", version=version)
    publisher.publish("a", b"kept", qos=1, retain=True)
    client.subscribe("a", qos=0)
    assert [(m.payload, m.qos) for m in client.messages()] == [(b"kept", 0)]
    publisher.publish("a", b"1", qos=1)
    client.subscribe("a", qos=1)
    publisher.publish("a", b"2", qos=1)
    assert [(m.payload, m.qos) for m in client.messages()] == [(b"1", 0), (b"kept", 1), (b"2", 1)]


@pytest.mark.parametrize("no_local", [False, True])
@mqtt5("3.8.3-3")
def test_no_local(no_local: bool) -> None:
    bench = Bench()
    client, other = bench.client("c"), bench.client("o")
    client.subscribe(SubscribeEntry("a", no_local=no_local))
    client.publish("a", b"own")
    other.publish("a", b"foreign")
    assert client.payloads() == [b"foreign"] if no_local else [b"own", b"foreign"]


@versions
@mqtt5("2.2.1-6", "3.10.4-1", "3.10.4-2", "3.10.4-4", "3.10.4-5", "3.10.4-6", "3.11.3-1", "3.11.3-2")
@mqtt311("2.3.1-7", "3.10.4-1", "3.10.4-2", "3.10.4-4", "3.10.4-5", "3.10.4-6")
def test_unsubscribe_ends_what_is_equal_character_by_character(version: int) -> None:
    bench = Bench()
    client, publisher = bench.client("c", version=version), bench.client("p", version=version)
    client.subscribe("a/+", "a/#", "b")
    client.send(Unsubscribe(0xFFFF, ["a/b", "a/+", "A/#", "b", "b"]))
    unsuback = client.expect(Unsuback)
    assert unsuback.packet_id == 0xFFFF
    assert unsuback.reasons == ([0x11, 0, 0x11, 0, 0x11] if version == V5 else [])
    for topic in ("a/b", "b"):
        publisher.publish(topic, topic.encode())
    assert client.payloads() == [b"a/b"]
    client.send(Unsubscribe(1, ["nothing"]))
    assert client.expect(Unsuback).packet_id == 1


@versions
@mqtt5("3.10.4-3")
@mqtt311("3.10.4-3")
def test_deliveries_that_have_begun_are_completed_after_unsubscribe(version: int) -> None:
    bench = Bench()
    client = bench.client("c", version=version, **staying(version))
    publisher = bench.client("p", version=version)
    client.subscribe("a", qos=1)
    publisher.publish("a", b"x", qos=1)
    client.send(Unsubscribe(1, ["a"]))
    client.lose()
    client = bench.client("c", version=version, **staying(version))
    assert client.take() == [Publish("a", b"x", 1, dup=True, packet_id=1)]
    client.send(puback(1))
    publisher.publish("a", b"y", qos=1)
    assert client.take() == []


@versions
@mqtt5("4.7.1-1", "4.7.1-2", "4.7.2-1", "4.7.3-4", "3.3.2-3")
@mqtt311("4.7.1-2", "4.7.1-3", "4.7.2-1", "4.7.3-4", "3.3.2-3")
def test_which_topics_a_filter_matches(version: int) -> None:
    names = ["a", "a/b", "a/b/c", "/a", "a/", "A", "a//c", "$x", "$x/a", "é", "e\u0301", "a ", "%61", "a/../b"]
    matched = {
        "a": ["a"],
        "+": ["a", "A", "é", "e\u0301", "a ", "%61"],
        "#": [name for name in names if name[0] != "$"],
        "a/#": ["a", "a/b", "a/b/c", "a/", "a//c", "a/../b"],
        "a/+": ["a/b", "a/"],
        "+/a": ["/a"],
        "a/+/c": ["a/b/c", "a//c"],
        "$x/#": ["$x", "$x/a"],
        "$x/+": ["$x/a"],
        "+/+": ["a/b", "/a", "a/"],
        "/+": ["/a"],
        "é": ["é"],
    }
    for topic_filter, expected in matched.items():
        _, client = connected(version)
        client.send_bytes(subscribe(version, topic_filter.encode()))
        client.expect(Suback)
        for name in names:
            client.publish(name, b"x")
        assert [message.topic for message in client.messages()] == expected, topic_filter


@versions
@mqtt5("4.7.2-1", "4.7.3-1")
@mqtt311("4.7.2-1", "4.7.3-1")
def test_topics_of_one_character(version: int) -> None:
    _, client = connected(version)
    client.subscribe("+", "+/+")
    for name in ("/", "x", "$"):
        client.publish(name, b"x")
    assert [message.topic for message in client.messages()] == ["/", "x"]
