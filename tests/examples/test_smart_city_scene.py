"""The scene has in it what it is meant to show."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from examples.smart_city.readings import Payload, decode, encode, readings
from examples.smart_city.scene import GROUPS, Scene, group_of, plan_brokers, smart_city
from saps.topics import filter_fault, matches, topic_fault


def scene(count: int) -> Scene:
    return smart_city(plan_brokers(count), random.Random(1))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 12])
def test_names_are_unique_topics_valid_and_filters_disjoint(count: int) -> None:
    city = scene(count)
    names = [*(device.name for device in city.publishers), *(device.name for device in city.subscribers)]
    assert len(set(names)) == len(names)
    topics = [topic for device in city.publishers for topic in device.topics]
    assert len(set(topics)) == len(topics)
    assert all(topic_fault(topic) is None and group_of(topic) in GROUPS for topic in topics)
    for device in city.subscribers:
        assert all(filter_fault(topic_filter) is None for topic_filter in device.filters)
        assert any(matches(topic_filter, topic) for topic_filter in device.filters for topic in topics)
        for topic in topics:
            assert sum(matches(topic_filter, topic) for topic_filter in device.filters) <= 1


def test_four_brokers_are_in_two_clusters() -> None:
    brokers = plan_brokers(4)
    assert [broker.cluster for broker in brokers] == ["tokyo/ward1"] * 2 + ["tokyo/ward2"] * 2
    assert len({broker.name for broker in brokers}) == 4


@pytest.mark.parametrize("count", [2, 4, 8])
def test_every_group_crosses_clusters(count: int) -> None:
    city = scene(count)
    for group in GROUPS:
        assert any(
            publisher.broker.cluster != subscriber.broker.cluster
            for publisher in city.publishers
            for subscriber in city.subscribers
            for topic in publisher.topics
            if group_of(topic) == group and any(matches(wanted, topic) for wanted in subscriber.filters)
        )


def test_protocols_qos_wildcards_and_latecomers_are_mixed() -> None:
    city = scene(4)
    for devices in (city.publishers, city.subscribers):
        assert {device.protocol for device in devices} == {"3.1.1", "5.0"}
        assert {device.qos for device in devices} == {0, 1, 2}
    filters = [topic_filter for device in city.subscribers for topic_filter in device.filters]
    assert any("+" in f for f in filters)
    assert any("#" in f for f in filters)
    assert any("+" not in f and "#" not in f for f in filters)
    assert any(0 < device.joins_at < 1 for device in city.subscribers)
    assert {device.broker.name for device in city.publishers} == {"b1", "b2", "b3", "b4"}
    assert {device.broker.name for device in city.subscribers} == {"b1", "b2", "b3", "b4"}


def test_the_same_seed_gives_the_same_scene() -> None:
    assert scene(4) == scene(4)
    others = [smart_city(plan_brokers(4), random.Random(seed)) for seed in range(8)]
    assert any(a != b for a, b in combinations(others, 2))


@pytest.mark.parametrize("group", GROUPS)
def test_readings_go_through_a_payload_unaltered(group: str) -> None:
    source = readings(group, random.Random(2))
    for sequence in range(1, 20):
        payload = Payload("sensor", sequence, 123_456_789_012, next(source))
        assert decode(encode(payload)) == payload


@pytest.mark.parametrize("data", [b"", b"21.5", b"{}", b"\xff\x00", b'{"publisher": "a", "sequence": "1"}'])
def test_foreign_payloads_are_none(data: bytes) -> None:
    assert decode(data) is None
