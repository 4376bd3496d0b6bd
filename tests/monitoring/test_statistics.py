"""Counting: exact sums in a bounded table, the busiest topics in it, and the hub's counts on all its ways."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.agents.user import SubscriberAgent
from saps.frontend.mqtt.codec.publish_cut import Cutter
from saps.messages import Message, Subscription
from saps.routing.batch import Batch
from saps.routing.hub import Hub
from saps.statistics import LATENCY_BOUNDS, REST, Statistics, TopicCount, publishers
from tests.batches import batch_of

COUNTED = ("messages", "bytes", "received", "received_bytes", "copies", "by_tree", "joins", "leaves")


def drained(statistics: Statistics) -> dict[str, TopicCount]:
    return {past.topic: past for piece in statistics.drain(3) for _, past in piece}


@given(st.lists(st.sampled_from("abcdefghij"), max_size=300), st.integers(1, 12))
def test_sums_are_exact_and_the_busiest_topics_are_in_the_table(stream: list[str], capacity: int) -> None:
    statistics = Statistics(capacity)
    for topic in stream:
        count = statistics.of(topic)
        count.messages += 1
        count.bytes += 10
        assert len(statistics.topics) <= capacity
    seen, true = drained(statistics), Counter(stream)
    assert sum(count.messages for count in seen.values()) == len(stream)
    assert sum(count.bytes for count in seen.values()) == 10 * len(stream)
    for topic, messages in true.items():
        if messages > len(stream) / capacity:
            assert topic in seen
    for topic, count in seen.items():
        if topic != REST:
            assert count.messages <= true[topic] <= count.messages + count.missed


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=200), st.integers(1, 4))
def test_nothing_is_counted_twice_or_lost_over_intervals(events: list[tuple[str, bool]], capacity: int) -> None:
    statistics = Statistics(capacity)
    total = 0
    for topic, end in events:
        statistics.of(topic).messages += 1
        if end:
            total += sum(count.messages for count in drained(statistics).values())
    total += sum(count.messages for count in drained(statistics).values())
    assert total == len(events)
    assert drained(statistics) == {}


class Client(NamedTuple):
    name: str


@given(st.lists(st.integers(0, 30), max_size=100))
def test_a_publisher_counts_once_however_often_it_publishes(clients: list[int]) -> None:
    often, once = TopicCount("t"), TopicCount("t")
    for number in clients:
        often.by(Client(f"client-{number}"))
    for number in set(clients):
        once.by(Client(f"client-{number}"))
    assert often.publishers == once.publishers
    assert often.publishers.bit_count() <= len(set(clients))


def test_publishers_are_estimated_by_the_bits_that_are_not_set() -> None:
    assert [publishers((1 << bits) - 1) for bits in (0, 1, 32, 63, 64)] == [0, 1, 44, 266, 266]


def test_latency_falls_into_the_bucket_of_its_bound() -> None:
    count = TopicCount("t")
    for bound in LATENCY_BOUNDS:
        count.took(bound)
    count.took(1e9)
    assert count.latency == [1] * (len(LATENCY_BOUNDS) + 1)


@pytest.fixture
def hub() -> Hub:
    hub = Hub()
    hub.count(100)
    return hub


def test_the_hub_counts_messages_of_every_way_once(hub: Hub) -> None:
    agent = SubscriberAgent(hub, "s", lambda message: None)
    agent.subscribe(Subscription("a/#"))
    publisher = SubscriberAgent(hub, "p", lambda message: None)
    hub.publish(Batch.of(Message("a/b", b"12345")), publisher)
    hub.publish(batch_of([Message("a/b", b"12")] * 3), publisher)
    assert hub.deliver(Batch.of(Message("a/b", b"1234567"))) == [1]
    assert hub.statistics is not None
    count = hub.statistics.of("a/b")
    assert (count.messages, count.bytes) == (4, 5 + 6)
    assert (count.received, count.received_bytes) == (1, 7)
    assert (count.subscribers, publishers(count.publishers)) == (1, 1)


def test_what_is_passed_through_counts_its_payload(hub: Hub) -> None:
    cut = Cutter(4, 1000, 0, 10, {}).cut(b"\x30\x07\x00\x03a/bxy" * 4 + b"\x30\x06\x00\x01c123", 0)
    assert cut is not None
    hub.publish(cut[0])
    assert hub.statistics is not None
    found = [hub.statistics.of(topic) for topic in ("a/b", "c")]
    assert [(count.messages, count.bytes) for count in found] == [(4, 8), (1, 3)]


@pytest.mark.parametrize("capacity", [1, 2, 5])
def test_publications_to_several_topics_count_for_each_however_small_the_table(capacity: int) -> None:
    hub = Hub()
    hub.count(capacity)
    publisher = SubscriberAgent(hub, "p", lambda message: None)
    batch = batch_of([Message(topic, b"x" * size) for size, topic in enumerate("abacdb")])
    for _ in range(3):
        hub.publish(batch, publisher)
        hub.deliver(batch)
    assert hub.statistics is not None
    seen = drained(hub.statistics)
    assert [sum(getattr(count, name) for count in seen.values()) for name in ("messages", "bytes", "received")] == [
        18,
        45,
        18,
    ]
    if capacity == 5:
        assert {topic: (count.messages, count.bytes) for topic, count in seen.items()} == {
            "a": (6, 6),
            "b": (6, 18),
            "c": (3, 9),
            "d": (3, 12),
        }


@pytest.mark.parametrize("topic_filter", ["a/b", "a/+"])
def test_members_come_and_go_once(hub: Hub, topic_filter: str) -> None:
    first, second = SubscriberAgent(hub, "1", lambda m: None), SubscriberAgent(hub, "2", lambda m: None)
    hub.publish(Batch.of(Message("a/b", b"")))
    for step in (first.subscribe, second.subscribe):
        step(Subscription(topic_filter))
        hub.publish(Batch.of(Message("a/b", b"")))
    for agent in (first, second):
        agent.unsubscribe(topic_filter)
        hub.publish(Batch.of(Message("a/b", b"")))
    assert hub.statistics is not None
    count = hub.statistics.of("a/b")
    assert (count.joins, count.leaves, count.subscribers) == (1, 1, 0)


def test_a_topic_that_left_the_table_is_counted_again_when_it_comes_back() -> None:
    hub = Hub()
    statistics = hub.count(2)
    for topic in ("a", "b", "a", "c", "b", "a"):
        hub.publish(Batch.of(Message(topic, b"x")))
    seen = drained(statistics)
    assert sum(count.messages for count in seen.values()) == 6
    assert statistics.evicted


def test_the_table_has_room_for_one_topic_at_least() -> None:
    with pytest.raises(ValueError, match="one topic"):
        Statistics(0)


def test_every_counter_is_in_the_sums() -> None:
    statistics = Statistics(1)
    for topic in ("a", "b", "c"):
        count = statistics.of(topic)
        for name in COUNTED:
            setattr(count, name, getattr(count, name) + 1)
    seen = drained(statistics)
    assert {name: sum(getattr(count, name) for count in seen.values()) for name in COUNTED} == dict.fromkeys(COUNTED, 3)
