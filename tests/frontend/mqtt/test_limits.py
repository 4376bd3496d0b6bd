"""Each limit holds, is told in the client's words, and is counted; what a slow client costs is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.budget import ENTRY_COST
from saps.frontend.mqtt.codec.decode import MAX_FILTERS
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import (
    V5,
    V311,
    Connack,
    Connect,
    Disconnect,
    Publish,
    Subscribe,
    SubscribeEntry,
    Unsubscribe,
    Will,
)
from saps.frontend.mqtt.codec.properties import MAX_REPEATED, Property
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.limits import Limits
from tests.frontend.mqtt.bench import Bench, Client, puback

STAYING = {"clean_start": False, "properties": {Property.SESSION_EXPIRY: 600}}


def refused(bench: Bench, version: int = V5, client_id: str = "late", **fields: object) -> int:
    """The reason, or return code, with which a client is turned away."""
    client = Client(bench, version)
    client.send(Connect(client_id, version, **fields))  # type: ignore[arg-type]
    assert client.closed
    return client.expect(Connack).reason


@pytest.mark.parametrize(("version", "reason"), [(V5, Reason.SERVER_BUSY), (V311, 3)])
@pytest.mark.one_broker("each broker has this limit")
def test_connections_beyond_the_limit_are_told_so_but_a_client_may_take_over_its_own(version: int, reason: int) -> None:
    bench = Bench(Limits(maximum_connections=2))
    first, _ = bench.client("a"), bench.client("b")
    assert refused(bench, version) == reason
    assert bench.frontend.counts.refused == 1
    assert not bench.client("a").closed
    assert first.closed


@pytest.mark.one_broker("each broker has this limit")
def test_sessions_beyond_the_limit_are_refused_and_those_there_are_resumed() -> None:
    bench = Bench(Limits(maximum_sessions=1))
    bench.client("a", **STAYING)
    assert refused(bench, **STAYING) == Reason.QUOTA_EXCEEDED  # type: ignore[arg-type]
    assert bench.client("a", **STAYING).connack.session_present


@pytest.mark.one_broker("each broker has this limit")
def test_connections_come_no_faster_than_the_rate() -> None:
    bench = Bench(Limits(connection_rate=2))
    for name in "ab":
        bench.client(name)
    assert refused(bench) == Reason.CONNECTION_RATE_EXCEEDED
    bench.advance(0.5)
    bench.client("c")
    assert refused(bench, V311) == 3


def test_a_client_that_publishes_faster_than_the_rate_is_not_read_for_a_while_and_loses_nothing() -> None:
    bench = Bench(Limits(message_rate=10))
    client, other = bench.client("c", keep_alive=10), bench.client("o")
    other.subscribe("a")
    client.send_bytes(b"".join(encode(Publish("a", b"%d" % n), V5) for n in range(30)))
    assert not client.reading
    bench.advance(1.9)
    assert not client.reading
    bench.advance(0.2)
    assert client.reading
    assert len(other.payloads()) == 30
    client.publish("a")
    assert not client.reading
    bench.advance(0.11)
    assert client.reading


def test_subscriptions_beyond_the_limit_are_refused_one_by_one() -> None:
    bench = Bench(Limits(maximum_subscriptions=2))
    client = bench.client("c")
    assert client.subscribe("a", "b", "c") == [0, 0, Reason.QUOTA_EXCEEDED]
    assert client.subscribe("b", qos=1) == [1], "replaced, not one more"
    assert bench.client("d", version=V311).subscribe("a", "b", "c") == [0, 0, 0x80]


def test_a_packet_of_the_same_filter_over_and_over_is_not_carried_out_over_and_over() -> None:
    client = Bench(Limits(maximum_subscriptions=2)).client("c")
    assert client.subscribe("a", "a", "a", "a") == [0, 0, Reason.QUOTA_EXCEEDED, Reason.QUOTA_EXCEEDED]


@pytest.mark.parametrize("more", [0, 1])
def test_the_properties_of_a_packet_are_bounded_in_number(more: int) -> None:
    client = Bench().client("c")
    client.subscribe("a")
    user = (("", ""),) * (MAX_REPEATED + more)
    client.publish("a", b"x", properties={Property.USER_PROPERTY: user})
    if more:
        assert client.take() == [Disconnect(Reason.QUOTA_EXCEEDED)]
    else:
        (message,) = client.messages()
        assert message.properties[Property.USER_PROPERTY] == user


def test_the_filters_of_a_packet_are_bounded_in_number() -> None:
    for kind in (Subscribe(1, [SubscribeEntry("a")] * (MAX_FILTERS + 1)), Unsubscribe(1, ["a"] * (MAX_FILTERS + 1))):
        client = Bench().client("c")
        client.send(kind)
        assert client.take() == [Disconnect(Reason.QUOTA_EXCEEDED)]


def test_topics_have_no_more_levels_than_the_limit() -> None:
    bench = Bench(Limits(maximum_topic_levels=3))
    client = bench.client("c")
    assert client.subscribe("a/b/c", "a/b/c/d", "a/b/c/#") == [
        0,
        Reason.TOPIC_FILTER_INVALID,
        Reason.TOPIC_FILTER_INVALID,
    ]
    client.publish("a/b/c", b"x")
    assert client.payloads() == [b"x"]
    client.publish("a/b/c/d", b"x")
    assert client.take() == [Disconnect(Reason.TOPIC_NAME_INVALID)]
    assert refused(bench, will=Will("a/b/c/d", b"")) == Reason.TOPIC_NAME_INVALID


# ---- slow clients


def slow(limits: Limits, qos: int, version: int = V5) -> tuple[Bench, Client, Client]:
    """A subscriber whose transport takes nothing any more, and a publisher."""
    bench = Bench(limits)
    fields = STAYING if version == V5 else {"clean_start": False}
    client = bench.client("s", version=version, **fields)
    client.subscribe("a", qos=qos)
    client.connection.pause_writing()
    return bench, client, bench.client("p")


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.one_broker("the client is told while the publisher's input is handled")
def test_a_client_too_slow_for_qos_1_and_2_is_disconnected_and_its_session_keeps_the_latest(qos: int) -> None:
    bench, client, publisher = slow(Limits(maximum_queued=3, publisher_wait=0), qos)
    for number in range(1, 6):
        publisher.publish("a", b"%d" % number, qos=qos, packet_id=number)
    assert not client.closed, "not in the middle of what another client has sent"
    bench.advance(0)
    assert client.closed
    assert client.take() == [Disconnect(Reason.QUOTA_EXCEEDED)]
    assert bench.frontend.counts.too_slow == 1
    assert bench.client("s", **STAYING).payloads() == [b"3", b"4", b"5"]
    assert bench.sessions["s"].dropped == 2


def test_a_slow_client_without_a_session_to_keep_leaves_nothing() -> None:
    bench = Bench(Limits(maximum_queued=2, publisher_wait=0))
    client, publisher = bench.client("s"), bench.client("p")
    client.subscribe("a", qos=1)
    client.connection.pause_writing()
    for number in range(1, 9):
        publisher.publish("a", b"x", qos=1, packet_id=number)
    bench.advance(0)
    assert "s" not in bench.sessions
    assert bench.frontend.queued.used == 0
    assert bench.frontend.counts.dropped == 6


@given(
    st.integers(0, 2),
    st.lists(
        st.tuples(
            st.sampled_from(["publish", "publish", "publish", "pause", "resume", "lose", "back", "ack", "wait"]),
            st.integers(0, 400),
        ),
        max_size=60,
    ),
    st.integers(0, 5),
)
def test_what_slow_clients_keep_is_bounded_whatever_happens(
    qos: int, steps: list[tuple[str, int]], queued: int
) -> None:
    """Each within its own limits, all together within theirs, and nothing is left when they are gone."""
    limits = Limits(
        maximum_queued=queued, maximum_queued_bytes=1000, maximum_queued_total=2000, send_maximum=3, publisher_wait=0.01
    )
    bench = Bench(limits)
    publisher = bench.client("p")
    clients = [bench.client(f"s{n}", **STAYING) for n in range(3)]
    for client in clients:
        client.subscribe("a", qos=qos)
    for step, (action, size) in enumerate(steps, 1):
        client = clients[size % 3]
        if action == "publish":
            publisher.publish("a", bytes(size), qos=size % 3, packet_id=step)
            publisher.send_bytes(b"\x62\2" + step.to_bytes(2))
        elif action == "pause":
            client.connection.pause_writing()
        elif action == "resume":
            client.connection.resume_writing()
            bench.flush()
        elif action == "lose":
            client.lose()
        elif action == "back":
            clients[size % 3] = bench.client(f"s{size % 3}", **STAYING)
        elif action == "ack" and not client.closed:
            client.send(*[puback(number) for number in range(1, step)])
        elif action == "wait":
            bench.advance(size / 100)
        kept = 0
        for session in bench.sessions.values():
            connection = session.connection
            held = list(connection.outbound._held or ()) if connection is not None else []
            waiting = list(session.queue.copies or ())
            assert len(waiting) <= queued
            assert sum(count for _, count in held) <= queued
            assert len(session.window.inflight) <= 3
            payload = sum(single.size for single, _ in waiting)
            assert payload == session.queue.bytes <= 1000
            assert sum(len(packets) for packets, _ in held) <= 1000
            kept += payload + sum(len(packets) for packets, _ in held) + ENTRY_COST * (len(waiting) + len(held))
        assert kept == bench.frontend.queued.used <= 2000
    for client in clients:
        client.lose()
    bench.advance(1000)
    assert list(bench.sessions) == ["p"]
    assert bench.frontend.queued.used == 0


# ---- retained messages for a slow client


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.one_broker("what comes in one turn")
def test_retained_messages_wait_where_they_are_stored_and_all_come_in_the_end(qos: int) -> None:
    bench = Bench(Limits(write_high_water=1000, maximum_queued=2, send_maximum=5))
    publisher, client = bench.client("p"), bench.client("s")
    for number in range(50):
        publisher.publish(f"r/{number}", bytes(100), qos=1, retain=True)
    client.subscribe("r/#", qos=qos)
    messages = client.messages()
    assert 0 < len(messages) < 50, "a portion"
    last = f"r/{max(set(range(50)) - {int(message.topic[2:]) for message in messages})}"
    publisher.publish(last, b"new", qos=1, retain=True)
    seen = []
    while messages:
        seen += messages
        client.send(*[puback(message.packet_id) for message in messages if message.packet_id is not None])
        bench.advance(0.01)
        messages = client.messages()
    assert not client.closed
    assert [message.payload for message in seen if message.topic == last] == [b"new"], "not the older one after it"
    assert bench.sessions["s"].dropped == 0
    assert sorted(message.topic for message in seen) == sorted(f"r/{number}" for number in range(50))
