"""Publications to several topics that one read brings give what they would give one by one."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from saps.frontend.mqtt.encode import encode
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.packets import V5, V311, Ack, Publish, Subscribe, SubscribeEntry
from saps.frontend.mqtt.properties import Property
from saps.frontend.mqtt.reasons import Reason
from saps.mesh import Alone
from saps.messages import Reached
from saps.plain import plain_stretch
from saps.statistics import publishers
from tests.frontend.mqtt.bench import Bench, Client, Subscriber, puback, subscribed
from tests.frontend.mqtt.strategies import LIMIT, is_plain, publications_to, versions
from tests.hub.meshes import DelayingMesh

TOPICS = ["a", "b", "c/d", "$x"]
FILTERS = ["#", "+", "a", "b", "$x", "+/d", "$share/g/+", "$share/g/a"]


class Outcome(NamedTuple):
    """What the publications have led to."""

    delivered: list[list[tuple[str, bytes, int, object]]]
    answers: list[tuple[int, int]]
    mesh: dict[str, list[tuple[bytes, int]]]
    """What it was given, by topic: only that has an order there."""
    counts: tuple[int, int, int]
    topics: dict[str, tuple[int, int]]


sent_lists = st.lists(
    st.tuples(
        st.sampled_from(TOPICS),
        st.sampled_from([b"", b"1", b"22", b"3" * 130]),
        st.sampled_from([0, 0, 0, 1, 1, 1, 2]),
        st.sampled_from([False] * 9 + [True]),
    ),
    max_size=30,
)
subscriber_lists = st.lists(
    st.builds(Subscriber, versions, st.sampled_from(FILTERS), st.integers(0, 2), st.integers(0, 1)), max_size=4
)


def _play(
    version: int, sent: list[tuple[str, bytes, int, bool]], subscribers: list[Subscriber], remote: bool, at_once: bool
) -> Outcome:
    mesh = DelayingMesh() if remote else None
    bench = Bench(mesh=mesh if mesh is not None else Alone())
    bench.hub.count(100)
    publisher = bench.client("p", version=version)
    publisher.send(Subscribe(1, [SubscribeEntry("+", 1, no_local=version == V5)]))
    clients = subscribed(bench, subscribers)
    if mesh is not None:
        mesh.complete_subscriptions()
    for topic in TOPICS[1:]:  # the first is not at hand yet
        publisher.publish(topic, b"first")
    bench.flush()
    for client in (publisher, *clients):
        client.take()
    packets = [
        encode(Publish(topic, payload, qos, retain, packet_id=number if qos else None), version)
        for number, (topic, payload, qos, retain) in enumerate(sent, 1)
    ]
    for data in [b"".join(packets)] if at_once else packets:
        publisher.send_bytes(data)
    if mesh is not None:
        mesh.complete_publications(Reached(1, 1))
    bench.flush()
    given: defaultdict[str, list[tuple[bytes, int]]] = defaultdict(list)
    for message in mesh.published if mesh is not None else ():
        given[message.topic].append((message.payload, message.qos))
    hub, statistics = bench.hub, bench.hub.statistics
    assert statistics is not None
    return Outcome(
        [_messages(client) for client in (publisher, *clients)],
        [(packet.packet_id, packet.reason) for packet in publisher.take() if isinstance(packet, Ack)],
        dict(given),
        (hub.published, hub.delivered, bench.frontend.sessions["p"].publisher.published),
        {topic: (count.messages, publishers(count.publishers)) for topic, count in statistics.topics.items()},
    )


def _messages(client: Client) -> list[tuple[str, bytes, int, object]]:
    """The publications among what came; the rest stays."""
    found = [packet for packet in client.packets if isinstance(packet, Publish)]
    client.packets = [packet for packet in client.packets if not isinstance(packet, Publish)]
    return [
        (packet.topic, packet.payload, packet.qos, packet.properties.get(Property.SUBSCRIPTION_IDENTIFIER))
        for packet in found
    ]


@given(versions, sent_lists, subscriber_lists, st.booleans())
@example(V5, [("b", b"1", 1, False), ("c/d", b"1", 1, False)], [], False)
def test_one_read_gives_what_its_packets_one_by_one_give(
    version: int, sent: list[tuple[str, bytes, int, bool]], subscribers: list[Subscriber], remote: bool
) -> None:
    together = _play(version, sent, subscribers, remote, at_once=True)
    apart = _play(version, sent, subscribers, remote, at_once=False)
    if remote:  # the answers come by topic
        together, apart = (each._replace(answers=sorted(each.answers)) for each in (together, apart))
    assert together == apart


def test_what_follows_on_other_topics_for_the_same_subscribers_is_one_piece() -> None:
    """And for others, another one."""
    bench = Bench()
    every, some, publisher = bench.client("s"), bench.client("t"), bench.client("p")
    every.subscribe("+/x")
    some.subscribe("z/x")
    topics = ["a/x", "b/x", "c/x", "z/x"]
    for topic in topics:
        publisher.publish(topic, b"first")
    parts: list[list[bytes]] = []
    every.flush = lambda: parts.append(list(every.connection.out))  # type: ignore[method-assign]
    publisher.send(*[Publish(topic, b"second") for topic in [*topics, *topics]])
    assert [len(part) // len(encode(Publish("a/x", b"second"), V5)) for part in parts[0]] == [3, 1, 3, 1]
    assert some.payloads() == [b"first", b"second", b"second"]


@pytest.mark.parametrize("too_many", [0, 1])
def test_the_receive_maximum_holds_for_a_stretch(too_many: int) -> None:
    mesh = DelayingMesh()
    bench = Bench(Limits(receive_maximum=10), mesh)
    publisher = bench.client("p")
    for topic in ("a", "b"):
        publisher.publish(topic)
    publisher.send(*[Publish("ab"[n % 2], b"x", 1, packet_id=n + 1) for n in range(10 + too_many)])
    assert publisher.closed == bool(too_many)
    assert len(mesh.published) == 2 + 10


@given(versions, st.lists(publications_to("a", "a", "b", "ab", "unknown"), min_size=1, max_size=20), st.integers(0, 40))
def test_a_stretch_ends_where_a_packet_is_not_plain_or_its_topic_not_known(
    version: int, sent: list[Publish], cut: int
) -> None:
    for number, packet in enumerate(sent, 1):
        packet.packet_id = number if packet.qos else None
    encoded = [encode(packet, version) for packet in sent]
    data = b"".join(encoded)
    data = data[: len(data) - cut]
    expected: list[tuple[str, bytes]] = []
    end = 0
    for packet, raw in zip(sent, encoded, strict=True):
        end += len(raw)
        if (
            not is_plain(packet, version)
            or packet.qos != sent[0].qos
            or packet.topic == "unknown"
            or len(raw) > LIMIT
            or end > len(data)
        ):
            break
        expected.append((packet.topic, packet.payload))
    if data[:1] in (b"\x30", b"\x32"):
        look_up = {topic.encode(): topic for topic in ("a", "b", "ab")}.get
        known, payloads, ends = plain_stretch(data, 0, version, LIMIT, look_up)
        assert list(zip(known, [data[a:b] for a, b in zip(payloads, ends, strict=True)], strict=True)) == expected


def test_a_packet_identifier_of_0_ends_a_stretch() -> None:
    data = (
        b"".join(encode(Publish(topic, b"1", 1, packet_id=1), V311) for topic in "ab") + b"\x32\x06\x00\x01a\x00\x001"
    )
    assert plain_stretch(data, 0, V311, LIMIT, bytes.decode).ends == [8, 16]


def test_an_unmatched_publication_of_a_stretch_is_answered_so() -> None:
    bench = Bench()
    client, publisher = bench.client("s"), bench.client("p")
    client.subscribe("a")
    for topic in ("a", "b"):
        publisher.publish(topic)
    publisher.send(*[Publish("ab"[n % 2], b"x", 1, packet_id=n + 1) for n in range(4)])
    none = Reason.NO_MATCHING_SUBSCRIBERS
    assert publisher.take() == [puback(1), puback(2, none), puback(3), puback(4, none)]
