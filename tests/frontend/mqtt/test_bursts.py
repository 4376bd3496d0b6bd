"""The short cuts for runs of equal packets give what the packets one by one would give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.encode import encode
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.packets import V5, V311, Ack, Disconnect, PacketType, Publish, Subscribe, SubscribeEntry
from saps.frontend.mqtt.properties import Property, PropertyMap
from saps.frontend.mqtt.reasons import Reason
from saps.messages import Reached
from tests.frontend.mqtt.bench import Bench, Client, puback
from tests.frontend.mqtt.strategies import chunked, cut_lists, versions
from tests.hub.meshes import DelayingMesh


def stream(count: int, version: int, qos: int = 0, topic: str = "a") -> bytes:
    return b"".join(
        encode(Publish(topic, b"%05d" % n, qos, packet_id=n if qos else None), version) for n in range(1, count + 1)
    )


def payloads(count: int) -> list[bytes]:
    return [b"%05d" % n for n in range(1, count + 1)]


@pytest.mark.parametrize("sender", [V311, V5])
@pytest.mark.parametrize("receiver", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("granted", [0, 1])
def test_a_run_arrives_whole_and_in_order(sender: int, receiver: int, qos: int, granted: int) -> None:
    bench = Bench()
    clients = [bench.client(f"s{i}", version=receiver) for i in range(2)]
    for client in clients:
        client.subscribe("a", qos=granted)
    publisher = bench.client("p", version=sender)
    publisher.publish("a", b"first")
    publisher.send_bytes(stream(100, sender, qos))
    for client in clients:
        messages = client.messages()
        assert [m.payload for m in messages] == [b"first", *payloads(100)]
        assert {m.qos for m in messages[1:]} == {min(qos, granted)}
        if qos and granted:
            assert [m.packet_id for m in messages[1:]] == list(range(1, 101))
    answers = publisher.take()
    assert answers == ([puback(n) for n in range(1, 101)] if qos else [])
    assert bench.hub.published == 101
    assert bench.hub.delivered == 202
    assert bench.frontend.sessions["p"].publisher.published == 101


@given(
    versions,
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "$x"]), st.sampled_from([b"", b"1", b"22"]), st.integers(0, 1)),
        max_size=30,
    ),
    cut_lists,
    st.lists(st.tuples(versions, st.integers(0, 2), st.sampled_from(["a", "b", "#", "+"]), st.booleans()), max_size=4),
)
def test_any_mixture_in_any_chunks_gives_each_subscriber_what_the_rules_say(
    version: int,
    sent: list[tuple[str, bytes, int]],
    cuts: list[int],
    subscribers: list[tuple[int, int, str, bool]],
) -> None:
    bench = Bench()
    publisher = bench.client("p", version=version)
    clients: list[tuple[Client, int, str]] = []
    for number, (level, qos, topic_filter, aliases) in enumerate(subscribers):
        properties: PropertyMap = {Property.TOPIC_ALIAS_MAXIMUM: 1} if aliases and level == V5 else {}
        client = bench.client(f"s{number}", version=level, properties=properties)
        client.subscribe(topic_filter, qos=qos)
        clients.append((client, qos, topic_filter))
    data = b"".join(
        encode(Publish(topic, payload, qos, packet_id=n if qos else None), version)
        for n, (topic, payload, qos) in enumerate(sent, 1)
    )
    for chunk in chunked(data, cuts):
        publisher.send_bytes(chunk)
    for client, granted, topic_filter in clients:
        wanted = [m for m in sent if m[0] == topic_filter or (topic_filter in "#+" and m[0] != "$x")]
        messages = client.messages()
        assert [(m.payload, m.qos) for m in messages] == [(p, min(q, granted)) for _, p, q in wanted]
    acked = [a.packet_id for a in publisher.take() if isinstance(a, Ack)]
    assert acked == [n for n, (_, _, qos) in enumerate(sent, 1) if qos]


def test_a_run_goes_to_the_mesh_whole_and_is_answered_when_it_has_arrived() -> None:
    mesh = DelayingMesh()
    bench = Bench(mesh=mesh)
    publisher = bench.client("p")
    publisher.publish("a", b"first")
    publisher.send_bytes(stream(5, V5))
    publisher.send_bytes(stream(5, V5, qos=1))
    assert [m.payload for m in mesh.published] == [b"first", *payloads(5), *payloads(5)]
    assert publisher.take() == []
    mesh.complete_publications()
    bench.flush()
    assert [a.packet_id for a in publisher.take() if isinstance(a, Ack)] == [1, 2, 3, 4, 5]


@given(versions, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=4, max_size=4), st.booleans())
def test_a_run_is_answered_part_by_part_as_the_mesh_has_it(
    version: int, confirmed: list[tuple[int, int]], here: bool
) -> None:
    """In whatever order the parts arrive, and whatever each has reached."""
    mesh = DelayingMesh()
    bench = Bench(mesh=mesh)
    publisher = bench.client("p", version=version)
    if here:
        bench.client("s").send(Subscribe(1, [SubscribeEntry("a")]))
        mesh.complete_subscriptions()
    publisher.publish("a")
    publisher.send_bytes(stream(10, version, qos=1))  # in parts of 3, 3, 3 and 1
    parts, wanted = [(1, 2, 3), (4, 5, 6), (7, 8, 9), (10,)], []
    for number, subscribers in confirmed:
        mesh.complete_one(number, Reached(min(1, subscribers), subscribers))
        reason = Reason.SUCCESS if subscribers or here or version != V5 else Reason.NO_MATCHING_SUBSCRIBERS
        wanted += [puback(n, reason) for n in parts.pop(number % len(parts))]
    bench.flush()
    assert publisher.take() == wanted


def test_a_run_without_subscribers_is_answered_so() -> None:
    bench = Bench()
    publisher = bench.client("p")
    publisher.publish("a")
    publisher.send_bytes(stream(3, V5, qos=1))
    assert publisher.take() == [puback(n, Reason.NO_MATCHING_SUBSCRIBERS) for n in (1, 2, 3)]


def test_a_packet_identifier_0_within_a_run_is_found() -> None:
    bench = Bench()
    publisher = bench.client("p")
    publisher.publish("a")
    good = encode(Publish("a", b"x", 1, packet_id=1), V5)
    bad = bytearray(good)
    bad[5:7] = b"\0\0"
    publisher.send_bytes(good + bytes(bad) + good)
    assert publisher.expect(Disconnect).reason == Reason.MALFORMED_PACKET
    assert publisher.expect(Ack).packet_id == 1


def test_a_packet_with_properties_within_a_run_is_handled_as_such() -> None:
    bench = Bench()
    client, publisher = bench.client("s"), bench.client("p")
    client.subscribe("a", qos=1)
    publisher.publish("a")
    plain = Publish("a", b"xxxxx", 1, packet_id=1)
    special = Publish("a", b"yyy", 1, packet_id=2, properties={Property.PAYLOAD_FORMAT: 1})
    packets = [plain, plain, special, plain]
    assert len(encode(plain, V5)) == len(encode(special, V5))
    publisher.send(*packets)
    messages = client.messages()[1:]
    assert [m.payload for m in messages] == [b"xxxxx", b"xxxxx", b"yyy", b"xxxxx"]
    assert messages[2].properties == {Property.PAYLOAD_FORMAT: 1}


def test_a_run_respects_no_local_and_the_window() -> None:
    bench = Bench()
    publisher, slow = bench.client("p"), bench.client("s", properties={Property.RECEIVE_MAXIMUM: 3})
    publisher.subscribe(SubscribeEntry("a", 1, no_local=True))
    slow.subscribe("a", qos=1)
    publisher.publish("a")
    slow.take()
    publisher.send_bytes(stream(8, V5, qos=1))
    assert slow.payloads() == payloads(3)
    assert all(isinstance(p, Ack) for p in publisher.take())
    slow.send(*(puback(n) for n in (1, 2, 3)))
    assert slow.payloads() == payloads(6)[3:]


def test_a_run_that_wraps_the_packet_identifiers() -> None:
    bench = Bench()
    client, publisher = bench.client("s"), bench.client("p")
    client.subscribe("a", qos=1)
    publisher.publish("a")
    client.take()
    bench.frontend.sessions["s"].next_id = 0xFFFE
    publisher.send_bytes(stream(4, V5, qos=1))
    assert [m.packet_id for m in client.messages()] == [0xFFFE, 0xFFFF, 1, 2]


def test_a_run_to_an_absent_session_is_queued() -> None:
    bench = Bench()
    expiry = {Property.SESSION_EXPIRY: 60}
    client = bench.client("s", properties=expiry)
    client.subscribe("a", qos=1)
    client.lose()
    publisher = bench.client("p")
    publisher.publish("a")
    publisher.send_bytes(stream(4, V5, qos=1) + stream(4, V5))
    again = bench.client("s", clean_start=False, properties=expiry)
    assert again.payloads() == payloads(4)
    assert bench.frontend.sessions["s"].dropped == 5


def test_a_run_of_acknowledgements_with_a_reason_among_them() -> None:
    bench = Bench(Limits(send_maximum=4))
    client, publisher = bench.client("s"), bench.client("p")
    client.subscribe("a", qos=1)
    publisher.publish("a")
    publisher.send_bytes(stream(8, V5, qos=1))
    assert client.payloads() == [b"", *payloads(4)]
    client.send(puback(1), Ack(PacketType.PUBACK, 2, Reason.UNSPECIFIED_ERROR), puback(3), puback(77))
    assert client.payloads() == payloads(7)[4:]


@pytest.mark.parametrize("size", [100, 200, 20_000])
def test_runs_of_every_length_of_remaining_length(size: int) -> None:
    bench = Bench()
    client, publisher = bench.client("s"), bench.client("p")
    client.subscribe("a")
    publisher.publish("a", b"first")
    publisher.send_bytes(encode(Publish("a", bytes(size)), V5) * 3)
    assert [len(p) for p in client.payloads()] == [5, size, size, size]


def test_a_run_to_subscribers_at_different_packet_identifiers() -> None:
    bench = Bench()
    publisher, clients = bench.client("p"), [bench.client(f"s{i}") for i in range(3)]
    for client in clients:
        client.subscribe("a", qos=1)
    bench.frontend.sessions["s1"].next_id = 50
    publisher.publish("a")
    publisher.send_bytes(stream(3, V5, qos=1))
    assert [[m.packet_id for m in client.messages()[1:]] for client in clients] == [[1, 2, 3], [50, 51, 52], [1, 2, 3]]


def test_a_run_steps_over_packet_identifiers_in_flight() -> None:
    bench = Bench()
    client, publisher = bench.client("s"), bench.client("p")
    client.subscribe("a", qos=1)
    session = bench.frontend.sessions["s"]
    session.next_id = 5
    publisher.publish("a", b"first", qos=1)
    client.take()
    session.next_id = 3
    publisher.send_bytes(stream(4, V5, qos=1))
    assert [m.packet_id for m in client.messages()] == [3, 4, 6, 7]
    assert list(session.inflight) == [5, 3, 4, 6, 7]
