from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from saps.hub import Publication
from saps.messages import Message
from saps.retained import RetainedStore
from saps.topics import filter_fault, matches

topics = st.lists(st.sampled_from(["a", "b", "", "$SYS"]), min_size=1, max_size=4).map("/".join).filter(bool)
filters = (
    st.lists(st.sampled_from(["a", "b", "", "$SYS", "+", "#"]), min_size=1, max_size=4)
    .map("/".join)
    .filter(lambda f: filter_fault(f) is None)
)


def retained(topic: str, payload: bytes = b"x", expires: float | None = None) -> Publication:
    return Publication(Message(topic, payload, retain=True), expires, retained=True)


@given(st.lists(st.tuples(topics, st.sampled_from([b"", b"1", b"2"])), max_size=30), filters)
def test_store_agrees_with_a_dictionary(puts: list[tuple[str, bytes]], topic_filter: str) -> None:
    store = RetainedStore()
    model: dict[str, bytes] = {}
    for topic, payload in puts:
        store.put(retained(topic, payload))
        model[topic] = payload
        if not payload:
            del model[topic]
    found = {p.message.topic: p.message.payload for p in store.matching(topic_filter, 0.0)}
    assert found == {t: p for t, p in model.items() if matches(topic_filter, t)}
    assert len(store) == len(model)


def test_expired_messages_are_not_found_and_leave_the_store() -> None:
    store = RetainedStore()
    store.put(retained("a", expires=10.0))
    assert len(store.matching("a", 9.9)) == 1
    assert store.matching("#", 10.0) == []
    assert len(store) == 0


def test_full_store_refuses_new_topics_but_replaces_known_ones() -> None:
    store = RetainedStore(capacity=1)
    store.put(retained("a"))
    store.put(retained("b"))
    store.put(retained("a", b"new"))
    assert [p.message.payload for p in store.matching("#", 0.0)] == [b"new"]
    assert store.refused == 1


def test_removing_leaves_no_nodes() -> None:
    store = RetainedStore()
    store.put(retained("a/b/c"))
    store.put(retained("a/b/c", b""))
    assert not store._root.children
