"""A publication that is all that came is written through to its subscribers: they see what the long way would give."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import cycle
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from saps.frontend.mqtt.encode import encode
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.packets import V5, V311, Pingreq, Pingresp, Publish, Unsubscribe
from saps.frontend.mqtt.properties import Property, PropertyMap
from saps.frontend.mqtt.publisher import FEW_ALONE
from saps.hub import MAX_LONE
from tests.frontend.mqtt.bench import Bench, Client, puback
from tests.frontend.mqtt.strategies import versions


@dataclass(frozen=True)
class Subscriber:
    """A subscriber of topic "a" and what may stand between it and a message."""

    version: int
    qos: int
    window: int
    next_id: int
    state: str


def _groups(versions: st.SearchStrategy[int], granted: list[int]) -> st.SearchStrategy[list[Subscriber]]:
    each = st.builds(
        Subscriber,
        versions,
        st.sampled_from(granted),
        st.sampled_from([2, 100]),
        st.sampled_from([1, 7, 0xFFFE]),
        st.sampled_from(["there", "there", "there", "away", "slow"]),
    )
    return st.lists(each, max_size=3)


scenes = versions.flatmap(
    lambda version: st.tuples(st.just(version), _groups(st.just(version), [1, 2]) | _groups(versions, [0, 1, 2]))
)
"""The publisher's version, and subscribers: often such that packets can be passed on as they come."""
publications = st.lists(
    st.tuples(st.sampled_from([0, 1, 1]), st.sampled_from([b"", b"x" * 20, b"y" * 200])), min_size=1, max_size=6
)


def _seen(version: int, group: list[Subscriber], reads: list[bytes]) -> list[object]:
    """What everyone has received, and what the broker has counted, if this is what a publisher's reads bring."""
    bench = Bench(Limits(maximum_queued=3))
    publisher = bench.client("p", version=version)
    clients: list[Client] = []
    for number, each in enumerate(group):
        properties: PropertyMap = {Property.SESSION_EXPIRY: 60, Property.RECEIVE_MAXIMUM: each.window}
        fields = {"properties": properties} if each.version == V5 else {"clean_start": False}
        client = bench.client(f"s{number}", version=each.version, **fields)
        client.subscribe("a", qos=each.qos)
        bench.frontend.sessions[f"s{number}"].next_id = each.next_id
        if each.state == "away":
            client.lose()
        elif each.state == "slow":
            client.connection.pause_writing()
        clients.append(client)
    publisher.publish("a", b"first")
    for read in reads:
        publisher.send_bytes(read)
    answers = [packet for packet in publisher.take() if not isinstance(packet, Pingresp)]
    sessions = bench.frontend.sessions.values()
    return [
        answers,
        publisher.reading,
        [client.raw for client in clients],
        [(s.delivered, s.dropped, s.next_id, list(s.inflight), len(s.queue or ())) for s in sessions],
        [s.publisher.published for s in sessions],
        bench.hub.describe(),
    ]


def _packets(version: int, sent: list[tuple[int, bytes]], topics: str = "a") -> list[bytes]:
    return [
        encode(Publish(topic, payload, qos, packet_id=number if qos else None), version)
        for number, ((qos, payload), topic) in enumerate(zip(sent, cycle(topics), strict=False), 1)
    ]


def _long_way() -> AbstractContextManager[object]:
    """Nothing is published as if it had come by itself."""
    return mock.patch.dict(FEW_ALONE, dict.fromkeys(FEW_ALONE, 0))


@given(scenes, publications)
def test_alone_or_not_makes_no_difference(scene: tuple[int, list[Subscriber]], sent: list[tuple[int, bytes]]) -> None:
    version, group = scene
    alone = _packets(version, sent)
    with _long_way():
        expected = _seen(version, group, [packet + encode(Pingreq(), version) for packet in alone])
    assert _seen(version, group, alone) == expected


@settings(max_examples=300)
@given(scenes, publications, st.sampled_from(["a", "ab"]), st.integers(0, 30))
def test_a_few_by_themselves_or_together_makes_no_difference(
    scene: tuple[int, list[Subscriber]], sent: list[tuple[int, bytes]], topics: str, cut: int
) -> None:
    version, group = scene
    data = b"".join(_packets(version, sent, topics))
    reads = [data[: len(data) - cut], data[len(data) - cut :]]
    with _long_way():
        together = _seen(version, group, reads)
    assert _seen(version, group, reads) == together


@dataclass(frozen=True)
class Publication:
    """What a publisher sends by itself."""

    version: int
    qos: int
    topic: str
    payload: bytes
    named: bool
    """With a property, if the version has any."""
    packet_id: int

    def encoded(self) -> bytes:
        properties: PropertyMap = {Property.TOPIC_ALIAS: 1} if self.named and self.version == V5 else {}
        packet_id = self.packet_id if self.qos else None
        return encode(
            Publish(self.topic, self.payload, self.qos, packet_id=packet_id, properties=properties), self.version
        )


@dataclass(frozen=True)
class Change:
    """Of the subscriptions of the subscriber with this version."""

    version: int
    filter: str
    qos: int | None
    """None: it ends."""


topics = st.sampled_from(["a", "ab"])
lone_publications = st.builds(
    Publication,
    versions,
    st.sampled_from([0, 0, 1, 1]),
    topics,
    st.sampled_from([b"", b"\0", b"\0\0\0\0", b"x" * 127]),
    st.just(False),
    st.sampled_from([1, 0x6200]),
)
changes = st.builds(Change, versions, topics | st.just("+"), st.sampled_from([None, 0, 1, 1]))


def _outcome(filters: dict[int, list[str]], steps: list[Publication | Change], behind: bytes) -> list[object]:
    """What everyone has received, and what the broker has counted, if this comes behind each publication. By version:
    what its subscriber begins with."""
    bench = Bench()
    both = (V311, V5)
    subscribers = {version: bench.client(f"s{version}", version=version) for version in both}
    publishers = {version: bench.client(f"p{version}", version=version) for version in both}
    for version, client in subscribers.items():
        for each in filters[version]:
            client.subscribe(each, qos=1)
    for step in steps:
        publisher = publishers[step.version]
        if isinstance(step, Change):
            subscriber = subscribers[step.version]
            if step.qos is None:
                subscriber.send(Unsubscribe(1, [step.filter]))
            else:
                subscriber.subscribe(step.filter, qos=step.qos)
        elif not publisher.closed:
            publisher.send_bytes(step.encoded() + behind)
    answers = [[each for each in client.take() if not isinstance(each, Pingresp)] for client in publishers.values()]
    closed = [client.closed for client in publishers.values()]
    return [answers, closed, [client.raw for client in subscribers.values()], bench.hub.describe()]


@st.composite
def alike(draw: st.DrawFn) -> list[Publication | Change]:
    """Again and again the same few, now and then with a property or with a packet identifier of 0; and changes."""
    few = draw(st.lists(lone_publications, min_size=1, max_size=2))
    usual = st.sampled_from(few)
    unusual = st.builds(replace, usual, named=st.booleans(), packet_id=st.sampled_from([0, 1]))
    return draw(st.lists(usual | usual | unusual | changes, max_size=16))


TAKEN_FOR_THE_OTHER_VERSION = [
    *[Publication(V311, 0, "ab", bytes(4), named=False, packet_id=1)] * 3,
    *[Publication(V5, 0, "a", b"", named=False, packet_id=1)] * 3,
    Publication(V5, 0, "ab", b"", named=True, packet_id=1),
]
TAKEN_FOR_ONE_WITHOUT_PROPERTIES = [
    *[Publication(V5, 0, "a", bytes(3), named=False, packet_id=1)] * 3,
    Publication(V5, 0, "a", b"", named=True, packet_id=1),
]
"""In each the last is as long as the first, and the same up to where its topic field ends."""


@settings(max_examples=500)
@given(st.sampled_from([{V5: ["+"], V311: []}, {V5: [], V311: ["+"]}, {V5: ["a"], V311: ["ab"]}]), alike())
@example({V5: ["+"], V311: []}, TAKEN_FOR_THE_OTHER_VERSION)
@example({V5: ["+"], V311: []}, TAKEN_FOR_ONE_WITHOUT_PROPERTIES)
def test_what_begins_as_another_did_is_published_as_if_it_had_been_looked_at(
    filters: dict[int, list[str]], steps: list[Publication | Change]
) -> None:
    with _long_way():
        expected = _outcome(filters, steps, encode(Pingreq(), V5))
    assert _outcome(filters, steps, b"") == expected


def test_what_is_known_of_lone_publications_is_bounded_and_forgotten_with_their_routes() -> None:
    bench = Bench()
    publisher, client = bench.client("p"), bench.client("s")
    client.subscribe("#")
    for number in range(MAX_LONE + 10):
        for _ in range(2):
            publisher.publish(str(number), b"x")
    assert 0 < len(bench.hub.lone[V5]) <= MAX_LONE
    assert len(client.messages()) == 2 * (MAX_LONE + 10)
    client.subscribe("other")
    assert not bench.hub.lone[V5]


def test_a_few_go_no_further_than_to_a_slow_subscriber() -> None:
    bench = Bench(Limits(maximum_queued=3))
    publisher, client = bench.client("p"), bench.client("s")
    client.subscribe("a", qos=1)
    publisher.publish("a", b"first")
    client.connection.pause_writing()
    publisher.send_bytes(b"".join(_packets(V5, [(1, b"x")] * 6)))
    assert len(publisher.take()) == 1
    assert bench.frontend.sessions["s"].dropped == 0
    client.connection.resume_writing()
    bench.advance(1)
    assert len(client.take()) == 1 + 6


@pytest.mark.parametrize("flag", ["retain", "dup"])
def test_one_among_a_few_that_is_not_plain_goes_the_long_way(flag: str) -> None:
    bench = Bench()
    publisher, client = bench.client("p"), bench.client("s")
    client.subscribe("a", qos=1)
    publisher.publish("a", b"first")
    client.take()
    other = Publish("a", b"2", 1, packet_id=2, retain=flag == "retain", dup=flag == "dup")
    publisher.send(Publish("a", b"1", 1, packet_id=1), other)
    assert [(message.payload, message.dup) for message in client.messages()] == [(b"1", False), (b"2", False)]
    assert len(bench.hub.retained_for("a")) == (flag == "retain")


@pytest.mark.parametrize(("qos", "count", "writes"), [(0, 3, 3), (0, 4, 1), (1, 8, 8), (1, 9, 1)])
def test_few_are_written_each_by_itself_and_many_together(qos: int, count: int, writes: int) -> None:
    bench, order = Bench(), list[str]()
    publisher, client = bench.client("p"), Watch(bench, "s", order)
    client.subscribe("a", qos=qos)
    publisher.publish("a", b"first")
    order.clear()
    publisher.send_bytes(b"".join(_packets(V5, [(qos, b"x")] * count)))
    assert len(client.take()) == 1 + count
    assert order == ["s"] * writes


class Watch(Client):
    """A client that notes in `order` when it is written to."""

    def __init__(self, bench: Bench, name: str, order: list[str]) -> None:
        self.name, self.order = name, order
        super().__init__(bench)
        self.connect(name)

    def write(self, data: bytes) -> None:
        self.order.append(self.name)
        super().write(data)


def test_subscribers_are_served_before_the_publisher_is_answered() -> None:
    bench, order = Bench(), list[str]()
    publisher, *clients = [Watch(bench, name, order) for name in ("p", "s1", "s2")]
    for client in clients:
        client.subscribe("a", qos=1)
    publisher.publish("a", b"first", qos=1)
    order.clear()
    publisher.publish("a", b"x", qos=1)
    assert order == ["s1", "s2", "p"]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_subscriber_with_output_waiting_gets_the_message_behind_it(qos: int) -> None:
    bench = Bench()
    publisher, client = bench.client("p"), bench.client("s")
    client.subscribe("a", qos=1)
    publisher.publish("a", b"first", qos=1)
    client.take()
    client.connection.receive(encode(Pingreq(), V5))  # its answer is not written yet
    publisher.publish("a", b"x", qos=qos)
    assert [type(packet) for packet in client.take()] == [Pingresp, Publish]


@pytest.mark.parametrize("before", [V311, V5])
@pytest.mark.parametrize("after", [V311, V5])
def test_what_was_written_through_is_repeated_in_the_form_of_the_new_connection(before: int, after: int) -> None:
    bench = Bench()
    stays: dict[int, dict[str, object]] = {
        V311: {"clean_start": False},
        V5: {"clean_start": False, "properties": {Property.SESSION_EXPIRY: 60}},
    }
    client, publisher = bench.client("s", version=before, **stays[before]), bench.client("p", version=before)
    client.subscribe("a", qos=1)
    publisher.publish("a", b"first")
    client.take()
    publisher.publish("a", b"payload", qos=1)
    assert client.payloads() == [b"payload"]
    client.lose()
    again = bench.client("s", version=after, **stays[after])
    assert again.take() == [Publish("a", b"payload", 1, dup=True, packet_id=1)]
    again.send(puback(1))
    assert not bench.frontend.sessions["s"].inflight


def test_no_more_are_written_through_than_the_client_wants_in_flight() -> None:
    bench = Bench()
    publisher, client = bench.client("p"), bench.client("s", properties={Property.RECEIVE_MAXIMUM: 2})
    client.subscribe("a", qos=1)
    publisher.publish("a", b"first")
    client.take()
    for payload in (b"1", b"2", b"3"):
        publisher.publish("a", payload, qos=1)
    assert client.payloads() == [b"1", b"2"]
    client.send(puback(1))
    assert client.payloads() == [b"3"]


def test_a_packet_identifier_in_flight_is_not_used_again() -> None:
    bench = Bench()
    publisher, client = bench.client("p"), bench.client("s")
    client.subscribe("a", qos=1)
    publisher.publish("a", b"first")
    client.take()
    publisher.publish("a", b"1", qos=1)
    bench.frontend.sessions["s"].next_id = 1
    publisher.publish("a", b"2", qos=1)
    assert [message.packet_id for message in client.messages()] == [1, 2]


@pytest.mark.parametrize(("sizes", "kept"), [((5, 5, 5), 1), ((5, 6, 5, 6), 0), ((5, 5, 6, 6), 2)])
def test_only_what_is_as_long_as_the_one_before_is_remembered(sizes: tuple[int, ...], kept: int) -> None:
    bench = Bench()
    publisher, client = bench.client("p"), bench.client("s")
    client.subscribe("#")
    publisher.publish("t", b"first")  # makes the topic known
    bench.client("q").subscribe("u")  # and what has been remembered forgotten
    for size in sizes:
        publisher.publish("t", bytes(100 + size))
    assert len(bench.hub.lone[V5]) == kept
