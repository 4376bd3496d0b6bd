"""A stretch or a bundle from another broker gives subscribers what its messages one by one give."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from saps.frontend.mqtt.packets import V5, Publish
from saps.messages import Message
from tests.encoded import encoded_of
from tests.frontend.mqtt.bench import Bench, Subscriber, subscribed
from tests.frontend.mqtt.strategies import versions

TOPICS = ["a", "b", "c/d", "$x"]
FILTERS = ["#", "+", "a", "b", "+/d", "$share/g/+"]


def _play(
    version: int,
    sent: list[tuple[str, bytes]],
    qos: int,
    subscribers: list[Subscriber],
    slow: bool,
    counting: bool,
    whole: bool,
) -> tuple[object, ...]:
    bench = Bench()
    if counting:
        bench.hub.count(100)
    clients = subscribed(bench, subscribers)
    bench.flush()
    if slow and clients:
        clients[0].connection.pause_writing()
    bench.hub.gather()
    matched: dict[str, int] = {}
    if not whole:
        matched = {topic: bench.hub.deliver(Message(topic, payload, qos)) for topic, payload in sent}
    elif qos:
        topics = list(dict.fromkeys(topic for topic, _ in sent))
        which = [topics.index(topic) for topic, _ in sent]
        counts = bench.hub.deliver_several(topics, which, [payload for _, payload in sent])
        matched = dict(zip(topics, counts, strict=True))
    else:
        bench.hub.deliver_stretch(encoded_of(sent, version))
    bench.hub.gathered()
    if slow and clients:
        clients[0].connection.resume_writing()
    bench.flush()
    hub, statistics = bench.hub, bench.hub.statistics
    received = {} if statistics is None else {topic: count.received for topic, count in statistics.topics.items()}
    got = [
        [(each.topic, each.payload, each.qos, each.properties) for each in client.take() if isinstance(each, Publish)]
        for client in clients
    ]
    dropped = [session.dropped for session in bench.frontend.sessions.values()]
    return got, dropped, hub.received, hub.delivered, received, matched if qos else None


@given(
    versions,
    st.lists(st.tuples(st.sampled_from(TOPICS), st.sampled_from([b"", b"1", b"3" * 130])), min_size=1, max_size=20),
    st.integers(0, 1),
    st.lists(
        st.builds(Subscriber, versions, st.sampled_from(FILTERS), st.integers(0, 2), st.integers(0, 1)), max_size=4
    ),
    st.booleans(),
    st.booleans(),
)
@example(
    V5, [("a", b"1"), ("b", b"2"), ("a", b"3")], 0, [Subscriber(V5, "+", 0, 0), Subscriber(V5, "a", 1, 0)], True, True
)
@example(
    V5, [("a", b"1"), ("b", b"2"), ("a", b"3")], 1, [Subscriber(V5, "+", 1, 0), Subscriber(V5, "a", 1, 0)], True, True
)
def test_a_stretch_or_a_bundle_gives_what_its_messages_one_by_one_give(
    version: int, sent: list[tuple[str, bytes]], qos: int, subscribers: list[Subscriber], slow: bool, counting: bool
) -> None:
    whole = _play(version, sent, qos, subscribers, slow, counting, whole=True)
    assert whole == _play(version, sent, qos, subscribers, slow, counting, whole=False)


def test_payload_that_has_crossed_unopened_is_counted_but_for_its_headers() -> None:
    bench = Bench()
    statistics = bench.hub.count(100)
    bench.hub.deliver_stretch(encoded_of([("a", b"x" * 10), ("b", b"y" * 20), ("a", b"z" * 30)]))
    found = {topic: (count.received, count.received_bytes) for topic, count in statistics.topics.items()}
    assert found["a"][0] == 2
    assert found["b"][0] == 1
    assert 0 <= found["a"][1] - 40 <= 2 * 2
    assert 0 <= found["b"][1] - 20 <= 2
