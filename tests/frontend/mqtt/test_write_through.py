"""A publication that is all that came is written through to its subscribers: they see what the long way would give."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saps.frontend.mqtt.encode import encode
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.packets import V5, V311, Pingreq, Pingresp, Publish
from saps.frontend.mqtt.properties import Property, PropertyMap
from saps.frontend.mqtt.publisher import FEW_ALONE
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


@given(scenes, publications)
def test_alone_or_not_makes_no_difference(scene: tuple[int, list[Subscriber]], sent: list[tuple[int, bytes]]) -> None:
    version, group = scene
    alone = _packets(version, sent)
    assert _seen(version, group, alone) == _seen(
        version, group, [packet + encode(Pingreq(), version) for packet in alone]
    )


@settings(max_examples=300)
@given(scenes, publications, st.sampled_from(["a", "ab"]), st.integers(0, 30))
def test_a_few_by_themselves_or_together_makes_no_difference(
    scene: tuple[int, list[Subscriber]], sent: list[tuple[int, bytes]], topics: str, cut: int
) -> None:
    version, group = scene
    data = b"".join(_packets(version, sent, topics))
    reads = [data[: len(data) - cut], data[len(data) - cut :]]
    with mock.patch.dict(FEW_ALONE, dict.fromkeys(FEW_ALONE, 0)):
        together = _seen(version, group, reads)
    assert _seen(version, group, reads) == together


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
