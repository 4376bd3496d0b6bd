from __future__ import annotations

import pytest

from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, V311, Ack, Pingreq, Pingresp, Publish, Will
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.limits import Limits
from saps.messages import Message
from saps.routing.batch import Batch
from tests.frontend.mqtt.bench import Bench, Client, puback

pytestmark = pytest.mark.one_broker("between brokers, their links hold publishers back")


def scene(limits: Limits | None = None, qos: int = 0) -> tuple[Bench, Client, Client]:
    """A slow subscriber, whose transport is full, and a publisher."""
    bench = Bench(limits)
    slow, publisher = bench.client("s"), bench.client("p")
    slow.subscribe("a", qos=qos)
    slow.connection.pause_writing()
    return bench, slow, publisher


def drain(bench: Bench, client: Client) -> None:
    client.connection.resume_writing()
    bench.flush()


def test_messages_wait_for_the_transport_and_the_publisher_waits_with_them() -> None:
    bench, slow, publisher = scene()
    publisher.publish("a", b"1")
    assert slow.messages() == []
    assert not publisher.reading
    drain(bench, slow)
    assert slow.payloads() == [b"1"]
    assert publisher.reading


def test_what_comes_from_elsewhere_for_a_slow_client_holds_nobody_here() -> None:
    bench, _, other = scene()
    for _ in range(100):
        bench.hub.deliver(Batch.of(Message("a", b"x")))
    other.send(Pingreq())
    assert other.reading
    assert len(bench.frontend.congestion.blocked) <= 1


def test_the_wait_is_bounded_and_not_repeated_soon() -> None:
    bench, slow, publisher = scene(Limits(publisher_wait=0.2, publisher_wait_interval=10))
    publisher.publish("a", b"1")
    bench.advance(0.21)
    assert publisher.reading
    publisher.publish("a", b"2")
    assert publisher.reading, "the wait is used up"
    drain(bench, slow)
    assert slow.payloads() == [b"1", b"2"]
    bench.advance(10)
    slow.connection.pause_writing()
    publisher.publish("a", b"3")
    assert not publisher.reading


def test_only_the_time_that_publishers_wait_uses_up_the_wait() -> None:
    bench, slow, publisher = scene(Limits(publisher_wait=0.2, publisher_wait_interval=10))
    publisher.publish("a", b"1")
    bench.advance(0.01)
    drain(bench, slow)
    bench.advance(0.18)
    slow.connection.pause_writing()
    publisher.publish("a", b"2")
    bench.advance(0.18)
    assert not publisher.reading, "0.19 s of waiting"
    bench.advance(0.02)
    assert publisher.reading


def test_qos_0_beyond_the_limit_is_dropped_and_counted() -> None:
    bench, slow, publisher = scene(Limits(maximum_queued=3, publisher_wait=0))
    for number in range(5):
        publisher.publish("a", b"%d" % number)
    drain(bench, slow)
    assert slow.payloads() == [b"0", b"1", b"2"]
    assert bench.sessions["s"].dropped == 2


def test_a_batch_fills_the_room_that_is_left() -> None:
    bench, slow, publisher = scene(Limits(maximum_queued=3))
    publisher.publish("a", b"0")
    publisher.send_bytes(b"".join(encode(Publish("a", b"%d" % n), V5) for n in range(1, 6)))
    drain(bench, slow)
    assert slow.payloads() == [b"0", b"1", b"2"]
    assert bench.sessions["s"].dropped == 3
    publisher.publish("a", b"later")
    assert slow.payloads() == [b"later"]


def test_held_bytes_are_bounded() -> None:
    bench, slow, publisher = scene(Limits(maximum_queued_bytes=100))
    for _ in range(3):
        publisher.publish("a", bytes(50))
    drain(bench, slow)
    assert len(slow.payloads()) == 1
    assert bench.sessions["s"].dropped == 2


def test_qos_1_waits_in_the_session_while_the_transport_is_full() -> None:
    bench, slow, publisher = scene(qos=1)
    publisher.publish("a", b"1", qos=1)
    publisher.publish("a", b"2", qos=1)
    assert slow.messages() == []
    assert not publisher.reading
    drain(bench, slow)
    assert slow.payloads() == [b"1", b"2"]
    assert publisher.reading


def test_a_subscriber_slow_to_acknowledge_holds_the_publisher_before_its_queue_is_full() -> None:
    bench = Bench(Limits(maximum_queued=4))
    slow = bench.client("s", properties={Property.RECEIVE_MAXIMUM: 1})
    slow.subscribe("a", qos=1)
    publisher = bench.client("p")
    for number in range(3):
        publisher.publish("a", qos=1, packet_id=number + 1)
    assert publisher.reading
    publisher.publish("a", qos=1, packet_id=4)
    assert not publisher.reading
    for number in range(1, 4):
        assert not publisher.reading
        slow.send_bytes(b"\x40\2" + number.to_bytes(2))
    assert publisher.reading


def test_large_messages_hold_the_publisher_before_the_queue_is_full() -> None:
    bench = Bench(Limits(maximum_queued_bytes=100, send_maximum=1))
    slow, publisher = bench.client("s"), bench.client("p")
    slow.subscribe("a", qos=1)
    for number in range(1, 4):
        assert publisher.reading
        publisher.publish("a", bytes(30), qos=1, packet_id=number)
    assert not publisher.reading
    assert not slow.closed


def test_a_slow_client_that_goes_away_frees_the_publisher() -> None:
    _, slow, publisher = scene()
    publisher.publish("a", b"1")
    slow.lose()
    assert publisher.reading


def test_a_publisher_is_free_only_when_all_it_waits_for_are() -> None:
    bench, slow, publisher = scene()
    other = bench.client("o")
    other.subscribe("a")
    other.connection.pause_writing()
    publisher.publish("a", b"1")
    drain(bench, slow)
    assert not publisher.reading
    drain(bench, other)
    assert publisher.reading


def test_a_client_that_does_not_read_its_answers_is_not_read() -> None:
    bench = Bench()
    client = bench.client("c", keep_alive=10)
    client.connection.pause_writing()
    client.send(Pingreq())
    assert not client.reading
    drain(bench, client)
    assert client.reading


def test_a_client_that_is_not_read_lives_as_long_as_it_takes_output() -> None:
    """[MQTT-3.1.2-22] Its output is full: a client that has gone stayed for ever."""
    bench = Bench()
    client = bench.client("c", keep_alive=10, will=Will("will", b"gone"))
    watcher = bench.client("w")
    watcher.subscribe("will")
    client.connection.pause_writing()
    client.send(Pingreq())
    assert not client.reading
    for _ in range(8):
        bench.advance(14)
        client.raw += b"\0"
        assert not client.closed, "it takes a byte now and then"
    bench.advance(30)
    assert client.closed
    assert watcher.payloads() == [b"gone"]


def test_a_publisher_that_is_not_read_does_not_time_out() -> None:
    bench = Bench(Limits(publisher_wait=1000))
    slow, publisher = bench.client("s"), bench.client("p", keep_alive=10)
    slow.subscribe("a")
    slow.connection.pause_writing()
    publisher.publish("a", b"1")
    bench.advance(40)
    assert not publisher.closed
    drain(bench, slow)
    bench.advance(14)
    assert not publisher.closed
    bench.advance(2)
    assert publisher.closed


def test_a_client_that_publishes_to_itself_does_not_wait_for_itself() -> None:
    bench = Bench()
    client = bench.client("c", version=V311)
    client.subscribe("a")
    client.publish("a", b"1")
    assert client.payloads() == [b"1"]
    client.connection.pause_writing()
    client.publish("a", b"2")
    drain(bench, client)
    assert client.reading
    assert client.payloads() == [b"2"]


def test_congested_mesh_stops_the_clients_that_publish_and_no_others() -> None:
    bench = Bench()
    publisher, idle = bench.client("p"), bench.client("i")
    publisher.publish("a")
    bench.frontend.pause_publishers(True)
    assert (publisher.reading, idle.reading) == (False, True)
    idle.publish("a")
    assert not idle.reading, "it publishes now"
    bench.frontend.pause_publishers(False)
    assert (publisher.reading, idle.reading) == (True, True)


@pytest.mark.parametrize("topics", [1, 2], ids=["one topic", "two topics in turn"])
@pytest.mark.parametrize("version", [V311, V5])
def test_one_input_never_overflows_the_queue_of_a_client_that_keeps_up(version: int, topics: int) -> None:
    bench = Bench(Limits(send_maximum=3, maximum_queued=8))
    subscriber, publisher = bench.client("s", version=version), bench.client("p", version=version)
    subscriber.subscribe("+", qos=1)
    sent = [b"%d" % number for number in range(100)]
    packets = [
        encode(Publish("ab"[number % topics], payload, 1, packet_id=number + 1), version)
        for number, payload in enumerate(sent)
    ]
    publisher.send_bytes(packets[0])  # the routes are known from now on
    publisher.send_bytes(packets[1])
    publisher.send_bytes(b"".join(packets[2:]) + encode(Pingreq(), version))
    assert not publisher.reading
    got = []
    while messages := subscriber.messages():
        got += [message.payload for message in messages]
        subscriber.send(*[puback(message.packet_id or 0) for message in messages])
        bench.advance(0)
    assert got == sent
    assert not subscriber.closed
    assert publisher.reading
    assert [type(packet) for packet in publisher.take()] == [Ack] * 100 + [Pingresp]
