from __future__ import annotations

import logging

import pytest

from saps.frontend.mqtt.codec.encode import encode, framed
from saps.frontend.mqtt.codec.packets import (
    V5,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingresp,
    Publish,
    Suback,
    Will,
)
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.limits import Limits
from tests.frontend.mqtt.bench import Bench, Client


def test_connack_states_the_limits() -> None:
    connack = Bench(Limits(receive_maximum=7, maximum_packet_size=5000, topic_alias_maximum=3)).client().connack
    assert connack.reason == 0
    assert connack.properties == {
        Property.RECEIVE_MAXIMUM: 7,
        Property.MAXIMUM_PACKET_SIZE: 5000,
        Property.TOPIC_ALIAS_MAXIMUM: 3,
    }


def test_mqtt_3_1_is_refused_with_its_return_code() -> None:
    client = Client(Bench(), V311)
    client.send_bytes(framed(0x10, b"\0\6MQIsdp\3\2\0\0\0\1c"))
    assert (client.raw, client.closed) == (b"\x20\2\0\1", True)


def test_authentication_data_without_method_is_a_protocol_error() -> None:
    assert Client(Bench()).connect(properties={Property.AUTHENTICATION_DATA: b"x"}).reason == 0x82


def test_malformed_connect_of_5_0_is_answered_with_the_reason_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client(Bench())
    with caplog.at_level(logging.WARNING):
        client.send_bytes(framed(0x10, b"\0\4MQTT\5\3\0\0\0\0\1c"))
    assert client.expect(Connack).reason == 0x81
    assert client.closed
    assert len(caplog.records) == 1
    assert "MALFORMED_PACKET" in caplog.text


@pytest.mark.parametrize("packet", [Connect("c"), Connack(), Suback(1, [0]), Pingresp(), Auth(0x18)])
def test_packets_a_connected_client_may_not_send_are_protocol_errors(packet: Connect) -> None:
    client = Bench().client()
    client.send(packet)
    assert client.expect(Disconnect).reason == Reason.PROTOCOL_ERROR
    assert client.closed


def test_nothing_is_handled_after_the_fault_nor_after_disconnect() -> None:
    bench = Bench()
    watcher = bench.client("w")
    watcher.subscribe("#")
    for ending in (b"\x00\0", encode(Disconnect(), V5)):
        client = bench.client()
        client.send_bytes(ending + encode(Publish("a"), V5))
        client.send_bytes(encode(Publish("b"), V5))
        assert client.closed
    assert watcher.messages() == []


def test_any_connection_must_connect_in_time() -> None:
    bench = Bench(Limits(connect_timeout=10))
    client = Client(bench)
    bench.advance(9.9)
    assert not client.closed
    bench.advance(0.2)
    assert client.closed


@pytest.mark.one_broker("a simulated mesh takes too long for so many days")
def test_keep_alive_0_means_no_limit() -> None:
    bench = Bench()
    client = bench.client()
    bench.advance(1e6)
    assert not client.closed


def test_take_over_without_session_expiry_begins_a_new_session() -> None:
    bench = Bench()
    bench.client("c").subscribe("a")
    assert not bench.client("c", clean_start=False).connack.session_present
    assert len(bench.hub.index) == 0


def test_session_expires_after_its_interval_unless_the_client_returns() -> None:
    bench = Bench()
    client = bench.client("c", properties={Property.SESSION_EXPIRY: 60})
    client.subscribe("a")
    client.lose()
    bench.advance(59)
    again = bench.client("c", clean_start=False, properties={Property.SESSION_EXPIRY: 60})
    assert again.connack.session_present
    bench.advance(30)
    again.lose()
    bench.advance(59)
    assert "c" in bench.sessions
    bench.advance(2)
    assert bench.sessions == {}
    assert bench.hub.agents == {}
    assert len(bench.hub.index) == 0


def test_session_expiry_is_capped_and_the_client_is_told() -> None:
    bench = Bench(Limits(maximum_session_expiry=100))
    connack = bench.client("c", properties={Property.SESSION_EXPIRY: 0xFFFFFFFF}).connack
    assert connack.properties[Property.SESSION_EXPIRY] == 100


def test_disconnect_may_change_the_session_expiry_but_not_from_zero() -> None:
    bench = Bench()
    keeping = bench.client("k", properties={Property.SESSION_EXPIRY: 60})
    keeping.send(Disconnect(properties={Property.SESSION_EXPIRY: 0}))
    assert "k" not in bench.sessions
    passing = bench.client("p")
    passing.send(Disconnect(properties={Property.SESSION_EXPIRY: 5}))
    assert passing.expect(Disconnect).reason == Reason.PROTOCOL_ERROR


# ---- will


def watcher_of(bench: Bench, topic_filter: str = "will", qos: int = 2) -> Client:
    watcher = bench.client("watcher")
    watcher.subscribe(topic_filter, qos=qos)
    return watcher


def test_disconnect_with_will_publishes_it() -> None:
    bench = Bench()
    watcher = watcher_of(bench)
    bench.client("a", will=Will("will", b"gone")).send(Disconnect(Reason.DISCONNECT_WITH_WILL))
    assert watcher.payloads() == [b"gone"]


def test_will_is_published_after_a_protocol_error_and_a_keep_alive_timeout() -> None:
    bench = Bench()
    watcher = watcher_of(bench)
    bench.client("a", will=Will("will", b"1")).send_bytes(b"\0\0")
    bench.client("b", will=Will("will", b"2"), keep_alive=1)
    bench.advance(2)
    assert watcher.payloads() == [b"1", b"2"]


def test_will_does_not_wait_beyond_the_end_of_the_session() -> None:
    bench = Bench()
    watcher = watcher_of(bench)
    will = Will("will", b"gone", properties={Property.WILL_DELAY: 1000})
    bench.client("a", will=will).lose()
    assert watcher.payloads() == [b"gone"]
    bench.client("b", will=will, properties={Property.SESSION_EXPIRY: 5}).lose()
    bench.advance(5)
    assert watcher.payloads() == [b"gone"]
    bench.client("c", will=will, properties={Property.SESSION_EXPIRY: 500}).lose()
    bench.client("c", clean_start=True)
    assert watcher.payloads() == [b"gone"]


def test_will_with_a_wildcard_topic_is_refused() -> None:
    assert Client(Bench()).connect(will=Will("a/#", b"")).reason == Reason.TOPIC_NAME_INVALID


def test_server_shut_down_tells_the_reason_and_publishes_no_will() -> None:
    bench = Bench()
    watcher = watcher_of(bench)
    client = bench.client("a", will=Will("will", b"gone"))
    client.connection.close(Reason.SERVER_SHUTTING_DOWN)
    bench.flush()
    assert client.expect(Disconnect).reason == Reason.SERVER_SHUTTING_DOWN
    assert watcher.messages() == []


def test_timers_of_an_earlier_absence_do_not_count_for_a_later_one() -> None:
    bench = Bench()
    watcher = watcher_of(bench)
    fields = {
        "clean_start": False,
        "will": Will("will", b"gone", properties={Property.WILL_DELAY: 10}),
        "properties": {Property.SESSION_EXPIRY: 60},
    }
    bench.client("a", **fields).lose()
    bench.advance(5)
    bench.client("a", **fields).lose()
    bench.advance(6)
    assert watcher.messages() == [], "due 10 s after the second loss"
    bench.advance(4)
    assert watcher.payloads() == [b"gone"]
    bench.advance(47)
    assert "a" in bench.sessions, "62 s after the first loss, 57 s after the second"
    bench.advance(3)
    assert "a" not in bench.sessions
