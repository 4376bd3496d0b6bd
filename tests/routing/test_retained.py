from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from saps.messages import Message, Properties
from saps.routing.batch import Batch
from saps.routing.retained import RetainedStore
from saps.routing.retained_messages import SWEEP, RetainedMessages
from saps.topics import filter_fault, matches

topics = st.lists(st.sampled_from(["a", "b", "", "$SYS"]), min_size=1, max_size=4).map("/".join).filter(bool)
filters = (
    st.lists(st.sampled_from(["a", "b", "", "$SYS", "+", "#"]), min_size=1, max_size=4)
    .map("/".join)
    .filter(lambda f: filter_fault(f) is None)
)


@given(st.lists(st.tuples(topics, st.sampled_from([None, b"1", b"2"])), max_size=30), filters)
def test_store_agrees_with_a_dictionary(changes: list[tuple[str, bytes | None]], topic_filter: str) -> None:
    store: RetainedStore[tuple[str, bytes]] = RetainedStore()
    model: dict[str, bytes] = {}
    for topic, value in changes:
        if value is None:
            store.remove(topic)
            model.pop(topic, None)
        else:
            store.put(topic, (topic, value))
            model[topic] = value
    assert dict(store.matching(topic_filter)) == {t: v for t, v in model.items() if matches(topic_filter, t)}
    assert dict(store.values()) == model
    assert len(store) == len(model)
    assert all(store.get(topic) == (topic, value) for topic, value in model.items())


def test_full_store_refuses_new_topics_but_replaces_known_ones() -> None:
    store: RetainedStore[bytes] = RetainedStore(capacity=1)
    assert store.put("a", b"x")
    assert not store.put("b", b"x")
    assert store.put("a", b"new")
    assert store.matching("#") == [b"new"]
    assert store.refused == 1


def test_removing_leaves_no_nodes() -> None:
    store: RetainedStore[bytes] = RetainedStore()
    store.put("a/b/c", b"x")
    store.remove("a/b/c")
    assert not store._root.children


def test_what_has_expired_makes_room_for_a_new_message() -> None:
    now = 0.0
    retained = RetainedMessages(lambda: now, lambda topic: True)
    retained._store.capacity = 2

    def publish(topic: str) -> None:
        batch = Batch.of(Message(topic, b"x", 0, True, Properties(message_expiry=1)))
        batch.set_deadlines(now)
        retained.published(batch)

    for topic in ("a", "b", "c"):
        publish(topic)
    assert not retained.matching("c", None)
    now = 1 + SWEEP
    publish("c")
    assert [batch.topic for batch in retained.matching("c", None)] == ["c"]
    assert len(retained) == 1
