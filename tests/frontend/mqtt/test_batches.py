"""What one read brings gives everyone what its packets one by one would give."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, Ack, Disconnect, PacketType, Publish, Subscribe, SubscribeEntry
from saps.frontend.mqtt.codec.properties import Property, PropertyMap
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.limits import Limits
from saps.mesh import Alone
from saps.messages import Message, Reached
from saps.statistics import publishers
from tests.batches import batch_of
from tests.frontend.mqtt.bench import Bench, Client, puback, pubrel
from tests.frontend.mqtt.strategies import chunked, cut_lists, versions
from tests.routing.meshes import DelayingMesh

TOPICS = ["a", "b", "c/d", "$x"]
FILTERS = ["#", "+", "a", "b", "$x", "+/d", "$share/g/+", "$share/g/a"]
DESCRIBED: list[PropertyMap] = [
    {},
    {},
    {},
    {Property.USER_PROPERTY: (("unit", "µg/m³"),)},
    {Property.MESSAGE_EXPIRY: 60},
    {Property.TOPIC_ALIAS: 1},
]


class Subscriber(NamedTuple):
    """Somebody who takes what a filter matches."""

    version: int
    filter: str
    qos: int
    identifier: int
    """Of the subscription; 0: none."""
    as_published: bool
    state: str
    """``there``, ``away`` (its session stays), or ``slow``: its transport is full until the end."""

    def join(self, bench: Bench, name: str) -> Client:
        stays: dict[str, Any] = {"properties": {Property.SESSION_EXPIRY: 60}}
        client = bench.client(name, version=self.version, **(stays if self.version == V5 else {"clean_start": False}))
        named = self.identifier and self.version == V5
        properties: PropertyMap = {Property.SUBSCRIPTION_IDENTIFIER: (self.identifier,)} if named else {}
        as_published = self.as_published and self.version == V5
        entry = SubscribeEntry(self.filter, self.qos, retain_as_published=as_published, retain_handling=0)
        client.send(Subscribe(1, [entry], properties))
        return client


subscriber_lists = st.lists(
    st.builds(
        Subscriber,
        versions,
        st.sampled_from(FILTERS),
        st.integers(0, 2),
        st.integers(0, 1),
        st.booleans(),
        st.sampled_from(["there", "there", "there", "away", "slow"]),
    ),
    max_size=4,
)
sent_lists = st.lists(
    st.builds(
        lambda topic, payload, qos, retain, properties: Publish(topic, payload, qos, retain, properties=properties),
        st.sampled_from(TOPICS),
        st.sampled_from([b"", b"1", b"22", b"3" * 130]),
        st.sampled_from([0, 0, 0, 1, 1, 1, 2]),
        st.sampled_from([False] * 9 + [True]),
        st.sampled_from(DESCRIBED),
    ),
    max_size=30,
)
Seen = dict[tuple[str, int], list[Publish]]
"""By topic and QoS: only within these there is an order (4.6)."""


def seen(client: Client) -> Seen:
    """The publications among what has come; the rest stays."""
    found: defaultdict[tuple[str, int], list[Publish]] = defaultdict(list)
    for packet in client.packets:
        if isinstance(packet, Publish):
            found[packet.topic, packet.qos].append(replace(packet, packet_id=None))
    client.packets = [packet for packet in client.packets if not isinstance(packet, Publish)]
    return dict(found)


class Outcome(NamedTuple):
    """What the publications have led to."""

    delivered: list[Seen]
    answers: list[tuple[int, int]]
    mesh: dict[str, list[Message]]
    retained: list[Message]
    counts: tuple[int, ...]
    topics: dict[str, tuple[int, int]]


def play(version: int, sent: list[Publish], subscribers: list[Subscriber], remote: bool, reads: list[bytes]) -> Outcome:
    mesh = DelayingMesh() if remote else None
    bench = Bench(mesh=mesh if mesh is not None else Alone())
    bench.hub.count(100)
    publisher = bench.client("p", version=version)
    publisher.send(Subscribe(1, [SubscribeEntry("+", 1, no_local=version == V5)]))
    clients = [each.join(bench, f"s{number}") for number, each in enumerate(subscribers)]
    if mesh is not None:
        mesh.complete_subscriptions()
    bench.flush()
    for client in (publisher, *clients):
        client.take()
    for client, each in zip(clients, subscribers, strict=True):
        if each.state == "away":
            client.lose()
        elif each.state == "slow":
            client.connection.pause_writing()
    for data in reads:
        publisher.send_bytes(data)
        bench.flush()
    for client in clients:
        client.connection.resume_writing()
    bench.advance(5)  # what waited for a slow subscriber is published
    if mesh is not None:
        mesh.complete_publications(Reached(1, 1))
        bench.flush()
    for number, each in enumerate(subscribers):
        if each.state == "away":
            clients[number] = bench.client(f"s{number}", version=each.version, clean_start=False)
    given: defaultdict[str, list[Message]] = defaultdict(list)
    for message in mesh.published if mesh is not None else ():
        given[message.topic].append(message)
    hub, statistics = bench.hub, bench.hub.statistics
    assert statistics is not None
    return Outcome(
        [seen(client) for client in (publisher, *clients)],
        [(packet.packet_id, packet.reason) for packet in publisher.take() if isinstance(packet, Ack)],
        dict(given),
        [single.message for single in hub.retained_for("#")],
        (hub.published, hub.delivered, *[session.dropped for session in bench.sessions.values()]),
        {topic: (count.messages, publishers(count.publishers)) for topic, count in statistics.topics.items()},
    )


@settings(max_examples=300)
@given(versions, sent_lists, subscriber_lists, st.booleans(), cut_lists)
@example(V5, [Publish("b", b"1", 1), Publish("c/d", b"1", 1)], [], False, [])
def test_one_read_gives_what_its_packets_one_by_one_give(
    version: int, sent: list[Publish], subscribers: list[Subscriber], remote: bool, cuts: list[int]
) -> None:
    for number, packet in enumerate(sent, 1):
        packet.packet_id = number if packet.qos else None
    packets = [encode(packet, version) for packet in sent]
    together = play(version, sent, subscribers, remote, chunked(b"".join(packets), cuts))
    apart = play(version, sent, subscribers, remote, packets)
    if remote:  # the answers come batch by batch
        together, apart = (each._replace(answers=sorted(each.answers)) for each in (together, apart))
    assert together == apart


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.sampled_from(TOPICS), st.sampled_from([b"", b"1", b"2" * 130])), min_size=1, max_size=20),
    st.integers(0, 2),
    subscriber_lists,
)
def test_a_batch_from_another_broker_gives_what_its_messages_one_by_one_give(
    sent: list[tuple[str, bytes]], qos: int, subscribers: list[Subscriber]
) -> None:
    whole = batch_of([Message(topic, payload, qos) for topic, payload in sent])

    def arrive(apart: bool) -> tuple[object, ...]:
        bench = Bench()
        bench.hub.count(100)
        clients = [each.join(bench, f"s{number}") for number, each in enumerate(subscribers)]
        for client, each in zip(clients, subscribers, strict=True):
            if each.state == "slow":
                client.connection.pause_writing()
        matched: dict[str, int] = {}
        for batch in whole.singles if apart else [whole]:
            matched |= zip(batch.topics, bench.hub.deliver(batch), strict=True)
        for client in clients:
            client.connection.resume_writing()
        bench.flush()
        assert bench.hub.statistics is not None
        received = {topic: count.received for topic, count in bench.hub.statistics.topics.items()}
        return [seen(client) for client in clients], matched, bench.hub.received, bench.hub.delivered, received

    assert arrive(apart=True) == arrive(apart=False)


# ---- one by one


def stream(count: int, qos: int = 0, topics: str = "a", version: int = V5) -> bytes:
    return b"".join(
        encode(Publish(topics[n % len(topics)], b"%05d" % n, qos, packet_id=n if qos else None), version)
        for n in range(1, count + 1)
    )


def payloads(count: int) -> list[bytes]:
    return [b"%05d" % n for n in range(1, count + 1)]


@pytest.mark.one_broker("the order between topics is one broker's")
def test_who_wants_the_same_part_gets_it_in_one_piece() -> None:
    bench = Bench()
    every, some, publisher = bench.client("s"), bench.client("t"), bench.client("p")
    every.subscribe("+/x")
    some.subscribe("z/x")
    parts: dict[str, list[bytes]] = {}
    for name, client in (("every", every), ("some", some)):
        client.flush = lambda n=name, c=client: parts.update({n: c.connection.output.out[:]})  # type: ignore
    packets = [encode(Publish(topic, b"x"), V5) for topic in ["a/x", "z/x", "c/x", "z/x"]]
    publisher.send_bytes(b"".join(packets))
    assert parts == {"every": [b"".join(packets)], "some": [packets[1] + packets[3]]}


def test_a_batch_goes_to_the_mesh_whole_and_is_answered_when_it_has_arrived() -> None:
    mesh = DelayingMesh()
    bench = Bench(mesh=mesh)
    publisher = bench.client("p")
    publisher.send_bytes(stream(5))
    publisher.send_bytes(stream(5, qos=1, topics="ab"))
    assert [message.payload for message in mesh.published] == [*payloads(5), *payloads(5)]
    assert publisher.take() == []
    mesh.complete_publications(Reached(1, 1))
    bench.flush()
    assert publisher.take() == [puback(n) for n in (1, 2, 3, 4, 5)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=3, max_size=3), st.booleans(), versions)
def test_batches_are_answered_in_whatever_order_the_mesh_has_them(
    confirmed: list[tuple[int, int]], here: bool, version: int
) -> None:
    mesh = DelayingMesh()
    bench = Bench(mesh=mesh)
    publisher = bench.client("p", version=version)
    if here:
        bench.client("s").send(Subscribe(1, [SubscribeEntry("a")]))
        mesh.complete_subscriptions()
    data = stream(10, qos=1, version=version)
    size = len(data) // 10
    for part in (data[: 3 * size], data[3 * size : 7 * size], data[7 * size :]):
        publisher.send_bytes(part)
    parts, wanted = [(1, 2, 3), (4, 5, 6, 7), (8, 9, 10)], []
    for number, subscribers in confirmed:
        mesh.complete_one(number, Reached(min(1, subscribers), subscribers))
        reason = Reason.SUCCESS if subscribers or here or version != V5 else Reason.NO_MATCHING_SUBSCRIBERS
        wanted += [puback(n, reason) for n in parts.pop(number % len(parts))]
    bench.flush()
    assert publisher.take() == wanted


def test_what_is_faulty_within_a_batch_is_found_and_what_came_before_it_is_published() -> None:
    bench = Bench()
    publisher = bench.client("p")
    good = encode(Publish("a", b"x", 1, packet_id=1), V5)
    bad = good[:5] + b"\0\0" + good[7:]  # packet identifier 0
    publisher.send_bytes(good + bad + good)
    assert publisher.expect(Disconnect).reason == Reason.MALFORMED_PACKET
    assert publisher.expect(Ack).packet_id == 1
    assert bench.hub.published == 1


@pytest.mark.parametrize("too_many", [0, 1])
def test_the_receive_maximum_holds_for_a_batch(too_many: int) -> None:
    mesh = DelayingMesh()
    bench = Bench(Limits(receive_maximum=10), mesh)
    publisher = bench.client("p")
    publisher.send_bytes(stream(10 + too_many, qos=1, topics="ab"))
    assert publisher.closed == bool(too_many)
    assert len(mesh.published) == 10


def test_qos_2_is_published_once_though_it_is_repeated_within_a_batch() -> None:
    bench = Bench()
    client, publisher = bench.client("s"), bench.client("p")
    client.subscribe("a", qos=2)
    publisher.send_bytes(stream(3, qos=2) + stream(3, qos=2))
    assert client.payloads() == payloads(3)
    kinds = [(packet.type, packet.packet_id) for packet in publisher.take() if isinstance(packet, Ack)]
    assert kinds[:3] == [(PacketType.PUBREC, n) for n in (1, 2, 3)]
    publisher.send(pubrel(1), pubrel(2), pubrel(3))
    publisher.take()
    publisher.send_bytes(stream(3, qos=2))
    assert client.payloads() == payloads(3)


def test_no_local_and_the_window_hold_for_a_batch() -> None:
    bench = Bench()
    publisher, slow = bench.client("p"), bench.client("s", properties={Property.RECEIVE_MAXIMUM: 3})
    publisher.subscribe(SubscribeEntry("a", 1, no_local=True))
    slow.subscribe("a", qos=1)
    publisher.send_bytes(stream(8, qos=1))
    assert slow.payloads() == payloads(3)
    assert all(isinstance(packet, Ack) for packet in publisher.take())
    slow.send(*(puback(n) for n in (1, 2, 3)))
    assert slow.payloads() == payloads(6)[3:]


@pytest.mark.parametrize(
    ("following", "in_flight", "given"),
    [
        (0x3FFE, None, [0x3FFE, 0x3FFF, 1, 2]),
        (0xFFFF, None, [0xFFFF, 0xC000, 0xC001, 0xC002]),
        (3, 5, [3, 4, 6, 7]),
        (5, 5, [6, 7, 8, 9]),
    ],
)
def test_packet_identifiers_begin_anew_and_step_over_those_in_flight(
    following: int, in_flight: int | None, given: list[int]
) -> None:
    bench = Bench()
    client, publisher = bench.client("s"), bench.client("p")
    client.subscribe("a", qos=1)
    session = bench.sessions["s"]
    if in_flight is not None:
        session.window.next_id = in_flight
        publisher.publish("a", b"first", qos=1)
        client.take()
    session.window.next_id = following
    publisher.send_bytes(stream(4, qos=1))
    assert [message.packet_id for message in client.messages()] == given


def test_acknowledgements_with_a_reason_among_others_make_room() -> None:
    bench = Bench(Limits(send_maximum=4))
    client, publisher = bench.client("s"), bench.client("p")
    client.subscribe("a", qos=1)
    publisher.send_bytes(stream(8, qos=1))
    assert client.payloads() == payloads(4)
    client.send(puback(1), Ack(PacketType.PUBACK, 2, Reason.UNSPECIFIED_ERROR), puback(3), puback(77))
    assert client.payloads() == payloads(7)[4:]


def test_what_is_delivered_again_is_in_the_form_of_the_new_connection() -> None:
    bench = Bench()
    expiry: PropertyMap = {Property.SESSION_EXPIRY: 60}
    client, publisher = bench.client("s", properties=expiry), bench.client("p")
    client.subscribe("a", qos=1)
    publisher.send_bytes(stream(3, qos=1))
    client.lose()
    again = bench.client("s", version=4, clean_start=False)
    assert again.take() == [Publish("a", b"%05d" % n, 1, dup=True, packet_id=n) for n in (1, 2, 3)]
