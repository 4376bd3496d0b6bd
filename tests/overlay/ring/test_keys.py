"""The order of keys: topics with their descendants, roles, places."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from saps.overlay.ring.keys import (
    MEMBERSHIP_BITS,
    BrokerRef,
    Key,
    KeyOrder,
    Role,
    between,
    common_prefix,
    filter_key,
    membership,
    publisher_key,
    publishers,
    subscribers,
    subtree,
    wildcards,
)
from saps.topics import is_wildcard, literal_prefix

LEVELS = st.text(st.characters(exclude_characters="/+#\0", exclude_categories=["Cs"]), max_size=4)
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.lists(st.one_of(LEVELS, st.just("+")), min_size=1, max_size=4).map("/".join).filter(bool)
BROKERS = st.builds(
    BrokerRef,
    st.sampled_from(["b1", "b2", "b30"]),
    st.just(1),
    st.just(""),
    st.sampled_from(["tokyo/w1", "tokyo/w2", "kyoto"]),
)
ORDERS = st.sampled_from(KeyOrder)


def below(topic: str, other: str) -> bool:
    return other == topic or other.startswith(topic + "/")


@given(TOPICS, TOPICS, BROKERS, ORDERS)
def test_a_topic_and_its_descendants_are_one_range(topic: str, other: str, broker: BrokerRef, order: KeyOrder) -> None:
    low, high = subtree(topic)
    for key in (publisher_key(other, broker, order), filter_key(other, broker, order)):
        assert (low <= key < high) == below(topic, other)


@given(FILTERS, BROKERS, ORDERS)
def test_a_filter_stands_under_its_literal_prefix_and_can_be_read_from_its_key(
    topic_filter: str, broker: BrokerRef, order: KeyOrder
) -> None:
    key = filter_key(topic_filter, broker, order)
    wanted = wildcards(literal_prefix(topic_filter)) if is_wildcard(topic_filter) else subscribers(topic_filter)
    assert wanted.low < key < wanted.high
    assert key.topic_filter == topic_filter


@given(TOPICS, BROKERS, BROKERS, ORDERS)
def test_publishers_stand_beside_the_subscribers(topic: str, a: BrokerRef, b: BrokerRef, order: KeyOrder) -> None:
    publisher, subscriber = publisher_key(topic, a, order), filter_key(topic, b, order)
    assert publisher < subscriber
    assert publishers(topic).high == subscribers(topic).low
    assert publisher.role == Role.PUBLISHER


def test_alm_la_keeps_a_cluster_together() -> None:
    brokers = [BrokerRef(f"b{i}", 1, "", f"c{i % 3}") for i in range(30)]
    keys = sorted((filter_key("t", broker, KeyOrder.ALM_LA), broker.cluster) for broker in brokers)
    clusters = [cluster for _, cluster in keys]
    assert clusters == sorted(clusters)
    blind = sorted((filter_key("t", broker, KeyOrder.ALM), broker.cluster) for broker in brokers)
    assert [cluster for _, cluster in blind] != clusters


@given(st.lists(st.integers(0, 9), min_size=3, max_size=3, unique=True))
def test_between_goes_right_around_the_ring(numbers: list[int]) -> None:
    a, b, c = (Key(bytes((n,))) for n in numbers)
    assert between(a, b, c) != between(a, c, b)
    assert between(a, b, a)
    assert not between(a, a, b)


def test_membership_vectors_are_spread_evenly_and_do_not_depend_on_the_place() -> None:
    vectors = [membership(Key(b"t", 1, b"", b"", f"b{i}")) for i in range(4000)]
    for bit in range(4):
        share = sum(vector >> (MEMBERSHIP_BITS - 1 - bit) & 1 for vector in vectors) / len(vectors)
        assert 0.45 < share < 0.55
    assert membership(Key(b"t", 1, b"", b"here", "b")) == membership(Key(b"t", 1, b"", b"there", "b"))
    assert common_prefix(vectors[0], vectors[0]) == MEMBERSHIP_BITS
    assert common_prefix(0, 1 << (MEMBERSHIP_BITS - 1)) == 0
