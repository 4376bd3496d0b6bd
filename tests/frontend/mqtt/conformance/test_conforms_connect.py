"""CONNECT, CONNACK, sessions, wills and the end of a connection."""

from __future__ import annotations

from typing import Any

import pytest

from saps.frontend.mqtt.codec.packets import (
    V5,
    V311,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Subscribe,
    SubscribeEntry,
    Will,
)
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import CONNACK_REASONS, Reason
from saps.frontend.mqtt.connection.connect import refuse_level
from saps.frontend.mqtt.limits import Limits
from tests.frontend.mqtt.bench import Bench, Client, puback
from tests.frontend.mqtt.conformance.conforms import mqtt5, mqtt311
from tests.frontend.mqtt.conformance.raw import BOTH, connect, connected, field, fresh, publish

versions = pytest.mark.parametrize("version", BOTH)
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def staying(version: int, seconds: int = 60) -> dict[str, Any]:
    """The fields of a CONNECT that goes on with its session, and keeps it."""
    properties = {Property.SESSION_EXPIRY: seconds} if version == V5 else {}
    return {"version": version, "clean_start": False, "properties": properties}


def watcher(bench: Bench, topic_filter: str = "will") -> Client:
    client = bench.client("watcher")
    client.subscribe(topic_filter, qos=2)
    return client


# ---- CONNECT and its answer


@versions
@mqtt5("3.1.4-5", "3.2.0-1", "3.2.0-2", "3.2.2-1", "3.2.2-8", "4.2.0-1", "4.12.0-6", "3.1.2-28")
@mqtt311("3.1.4-4", "3.2.0-1", "7.0.0-2", "7.1.1-1")
def test_a_good_connect_is_answered_once_by_connack_0_in_whatever_pieces_it_comes(version: int) -> None:
    _, client = fresh(version)
    for byte in connect(version, properties=b"\2\x19\0" if version == V5 else b""):
        assert client.packets == []
        client.send_bytes(bytes((byte,)))
    client.send(Pingreq())
    assert client.raw[0] == 0x20
    assert client.raw[2:4] == b"\0\0"
    connack = client.expect(Connack)
    assert not connack.properties.keys() & {Property.AUTHENTICATION_METHOD, Property.RESPONSE_INFORMATION}
    assert len(client.take()) == 1


@versions
@pytest.mark.parametrize("size", [1, 23, 62])
@mqtt5("3.1.3-5", "3.1.3-2")
@mqtt311("3.1.3-5", "3.1.3-2")
def test_client_identifiers_of_letters_and_digits_are_allowed(version: int, size: int) -> None:
    bench, client = fresh(version)
    client.connect(LETTERS[:size])
    assert list(bench.sessions) == [LETTERS[:size]]
    assert not client.closed


@versions
@mqtt5("3.1.3-1", "3.1.2-9", "3.1.2-16", "3.1.2-17", "3.1.2-18", "3.1.2-19")
@mqtt311("3.1.3-1", "3.1.2-9", "3.1.2-18", "3.1.2-19", "3.1.2-20", "3.1.2-21")
def test_the_fields_of_the_payload_are_read_in_their_order(version: int) -> None:
    bench, client = fresh(version)
    will = (b"\0", field(b"t"), field(b"w")) if version == V5 else (field(b"t"), field(b"w"))
    client.send_bytes(connect(version, field(b"id"), *will, field(b"user"), field(b"pw"), flags=0xCE))
    session = bench.sessions["id"]
    assert session.will is not None
    message = session.will.message
    assert (message.topic, message.payload, message.qos) == ("t", b"w", 1)


@versions
@mqtt5("3.1.3-6", "3.1.3-7", "3.2.2-16")
@mqtt311("3.1.3-6")
def test_an_empty_identifier_is_replaced_by_one_that_nobody_has(version: int) -> None:
    bench = Bench()
    clients = [bench.client("", version=version) for _ in range(3)]
    assert len(bench.sessions) == 3
    if version == V5:
        told = [client.connack.properties[Property.ASSIGNED_CLIENT_IDENTIFIER] for client in clients]
        assert set(told) == set(bench.sessions)


@mqtt5("3.1.3-8", "3.2.2-7")
@mqtt311("3.1.3-9", "3.2.2-5", "3.2.2-4")
def test_an_identifier_that_is_rejected_is_told_so() -> None:
    _, client = fresh(V311)
    client.send_bytes(connect(V311, field(b""), flags=0))
    assert (client.raw, client.closed) == (b"\x20\2\0\2", True)
    assert Reason.CLIENT_IDENTIFIER_NOT_VALID in CONNACK_REASONS


@mqtt5("1.5.4-3")
@mqtt311("1.5.3-3")
def test_ef_bb_bf_is_a_character_like_others() -> None:
    _, client = connected()
    client.subscribe("#")
    client.send_bytes(publish(V5, b"\xef\xbb\xbfa\xef\xbb\xbf"))
    assert [message.topic for message in client.messages()] == ["\ufeffa\ufeff"]
    assert publish(V5, b"\xef\xbb\xbfa\xef\xbb\xbf") in client.raw


@mqtt5("3.1.2-21", "3.2.2-21", "3.2.2-22")
def test_keep_alive_is_the_client_s_unless_connack_gives_another() -> None:
    bench = Bench(Limits(maximum_keep_alive=10))
    free, asking, modest = [bench.client(f"{alive}", keep_alive=alive) for alive in (0, 60, 5)]
    told = [client.connack.properties.get(Property.SERVER_KEEP_ALIVE) for client in (free, asking, modest)]
    assert told == [10, 10, None]
    bench.advance(7.6)
    assert [client.closed for client in (free, asking, modest)] == [False, False, True]
    bench.advance(7.5)
    assert [client.closed for client in (free, asking)] == [True, True]


@versions
@mqtt5("3.1.2-22")
@mqtt311("3.1.2-24")
def test_one_and_a_half_keep_alive_intervals_of_silence_end_the_connection_as_if_it_broke(version: int) -> None:
    bench = Bench()
    seen = watcher(bench)
    client = bench.client("c", version=version, keep_alive=10, will=Will("will", b"gone"))
    bench.advance(14)
    client.send(Pingreq())
    bench.advance(14.9)
    assert not client.closed
    bench.advance(0.2)
    assert client.closed
    assert version == V311 or client.raw.endswith(b"\xe0\1\x8d")
    assert seen.payloads() == [b"gone"]


@mqtt5("3.1.2-24")
def test_answers_larger_than_the_client_takes_are_not_sent() -> None:
    bench = Bench()
    client = bench.client("c", properties={Property.MAXIMUM_PACKET_SIZE: 30})
    client.send(Subscribe(1, [SubscribeEntry(f"a/{number}") for number in range(40)]))
    assert client.take() == []
    assert len(bench.sessions["c"].subscriptions) == 40
    client.send(Pingreq())
    assert len(client.take()) == 1


# ---- sessions


@versions
@mqtt5("3.1.2-4", "3.1.2-5", "3.1.2-6", "3.1.2-23", "3.1.4-4", "3.2.2-2", "3.2.2-3", "3.1.3-2", "4.1.0-1", "4.5.0-1")
@mqtt311(
    "3.1.2-4", "3.1.2-5", "3.1.2-6", "3.1.4-3", "3.2.2-1", "3.2.2-2", "3.2.2-3", "3.1.3-2", "4.1.0-1", "4.5.0-1"
)  # fmt: skip
def test_a_session_is_kept_resumed_and_discarded_as_the_client_asks(version: int) -> None:
    bench = Bench()
    other = bench.client("p")
    client = bench.client("c", **staying(version))
    assert not client.connack.session_present
    client.subscribe("a", qos=1)
    client.lose()
    other.publish("a", b"meanwhile", qos=1)
    client = bench.client("c", **staying(version))
    assert client.connack.session_present
    assert client.payloads() == [b"meanwhile"]
    client.send(puback(1))
    client.lose()
    client = bench.client("c", version=version, clean_start=True)
    assert not client.connack.session_present
    other.publish("a", b"unwanted", qos=1)
    assert client.messages() == []
    client.lose()
    assert not bench.client("c", **staying(version)).connack.session_present, "nothing of it is used again"


@mqtt5("4.1.0-2", "3.1.2-23")
def test_a_session_ends_when_its_expiry_has_passed_and_not_while_the_client_is_there() -> None:
    bench = Bench()
    client = bench.client("c", **staying(V5, 10))
    bench.advance(100)
    client.lose()
    bench.advance(9.9)
    assert "c" in bench.sessions
    bench.advance(0.2)
    assert "c" not in bench.sessions


@versions
@mqtt5("3.1.4-3", "3.14.2-1")
@mqtt311("3.1.4-2")
def test_a_client_that_connects_again_takes_over(version: int) -> None:
    bench = Bench()
    older = bench.client("c", **staying(version))
    older.raw = b""
    newer = bench.client("c", **staying(version))
    assert newer.connack.session_present
    bench.flush()
    assert older.closed
    assert older.raw == (b"\xe0\1\x8e" if version == V5 else b"")


@mqtt311("3.1.2-7", "4.1.0-2")
def test_retained_messages_outlive_the_session() -> None:
    bench = Bench()
    client = bench.client("c", version=V311)
    client.publish("a", b"kept", retain=True)
    client.lose()
    other = bench.client("o")
    other.subscribe("a")
    assert other.payloads() == [b"kept"]


# ---- wills


@versions
@pytest.mark.parametrize("retain", [False, True])
@mqtt5("3.1.2-7", "3.1.2-8", "3.1.2-14", "3.1.2-15", "3.1.2-10")
@mqtt311("3.1.2-8", "3.1.2-16", "3.1.2-17", "3.1.2-10")
def test_a_will_is_published_once_when_the_connection_breaks(version: int, retain: bool) -> None:
    bench = Bench()
    seen = watcher(bench)
    client = bench.client("c", version=version, will=Will("will", b"gone", 1, retain))
    client.lose()
    bench.client("c", version=version).lose()
    assert [(m.payload, m.qos, m.retain) for m in seen.messages()] == [(b"gone", 1, False)]
    late = bench.client("late")
    late.subscribe("will")
    assert [(m.payload, m.retain) for m in late.messages()] == ([(b"gone", True)] if retain else [])


@versions
@mqtt5("3.14.4-3", "3.1.2-8", "3.1.2-10")
@mqtt311("3.14.4-3", "3.1.2-8", "3.1.2-10", "3.1.2-12")
def test_disconnect_discards_the_will_and_without_one_none_is_published(version: int) -> None:
    bench = Bench()
    seen = watcher(bench, "#")
    client = bench.client("c", version=version, will=Will("will", b"gone"))
    client.send(Disconnect())
    bench.client("d", version=version).lose()
    assert client.closed
    assert seen.messages() == []


@mqtt5("3.1.2-8", "3.1.3-9")
def test_a_delayed_will_waits_for_its_delay_or_the_end_of_the_session_and_not_if_the_client_returns() -> None:
    bench = Bench()
    seen = watcher(bench)
    will = Will("will", b"gone", properties={Property.WILL_DELAY: 10})
    bench.client("c", will=will, **staying(V5)).lose()
    bench.advance(5)
    client = bench.client("c", will=will, **staying(V5))
    bench.advance(20)
    assert seen.messages() == []
    client.lose()
    bench.advance(9.9)
    assert seen.messages() == []
    bench.advance(0.2)
    assert seen.payloads() == [b"gone"]
    bench.client("d", will=will, **staying(V5, 3)).lose()
    bench.advance(3.1)
    assert seen.payloads() == [b"gone"], "the session has ended before"


@mqtt5("3.1.3-10")
def test_the_user_properties_of_a_will_keep_their_order() -> None:
    bench = Bench()
    seen = watcher(bench)
    user = (("b", "1"), ("a", "2"), ("b", "3"))
    bench.client("c", will=Will("will", b"", properties={Property.USER_PROPERTY: user})).lose()
    (message,) = seen.messages()
    assert message.properties[Property.USER_PROPERTY] == user


# ---- the end


@mqtt5("3.14.0-1", "3.14.1-1", "3.14.2-2", "3.14.4-1", "3.14.4-2")
def test_the_server_says_why_it_closes_and_nothing_after_it() -> None:
    bench = Bench()
    client, silent = bench.client("c", properties={Property.SESSION_EXPIRY: 100}), Client(bench)
    client.raw = b""
    client.subscribe("a")
    client.raw = b""
    for connection in list(bench.connections):
        connection.close(Reason.SERVER_SHUTTING_DOWN)
    bench.flush()
    assert client.raw == b"\xe0\1\x8b"
    assert silent.raw == b""
    assert client.closed
    assert silent.closed


@mqtt5("3.12.4-1")
@mqtt311("3.12.4-1")
def test_pingreq_is_answered() -> None:
    _, client = connected(V311)
    client.send_bytes(b"\xc0\0")
    assert client.raw == b"\xd0\0"


@pytest.mark.parametrize("reason", Reason)
@mqtt5("3.2.2-8", "3.2.2-6", "3.14.2-1")
def test_whatever_goes_wrong_the_reason_told_is_one_of_the_packet_s_table(reason: Reason) -> None:
    connack = {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F}
    disconnect = {*range(0x80, 0x84), 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, *range(0x93, 0xA3)}
    _, client = fresh()
    refuse_level(client.connection, reason, V5)
    client.flush()
    assert client.raw[:3] == b"\x20\3\0"
    assert client.raw[3] in connack
    if reason >= 0x80:
        _, client = connected()
        client.connection.close(reason)
        client.flush()
        assert client.raw[2] in disconnect


@mqtt5("3.1.4-2")
def test_a_connect_beyond_a_limit_is_refused() -> None:
    bench = Bench(Limits(maximum_connections=1))
    for number in range(Bench.brokers):
        bench.client(f"c{number}")
    other = Client(bench)
    other.send(Connect("d"))
    assert other.expect(Connack).reason == Reason.SERVER_BUSY
    assert other.closed
