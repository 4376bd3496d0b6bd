from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.agents.user import SubscriberAgent
from saps.messages import Message, Properties, Subscription
from saps.routing.batch import Batch
from saps.routing.hub import Hub
from saps.routing.retained import RetainedStore
from saps.routing.retained_messages import RetainedMessages
from saps.routing.subscriptions import FilterNode, SubscriptionIndex
from saps.topics import filter_fault, matches
from tests.routing.meshes import DelayingMesh

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


def test_removing_leaves_no_nodes() -> None:
    store: RetainedStore[bytes] = RetainedStore()
    store.put("a/b/c", b"x")
    store.remove("a/b/c")
    assert not store._root.children


def test_what_has_expired_makes_room_for_a_new_message() -> None:
    now = 0.0
    retained = RetainedMessages(lambda: now, SubscriptionIndex())
    retained._store.capacity = 2

    def publish(topic: str) -> None:
        batch = Batch.of(Message(topic, b"x", 0, True, Properties(message_expiry=1)))
        batch.set_deadlines(now)
        retained.published(batch)

    for topic in ("a", "b", "c"):
        publish(topic)
    assert not retained.matching("c", None)
    now = 1.0
    publish("c")
    assert [batch.topic for batch in retained.matching("c", None)] == ["c"]
    assert len(retained) == 1


def from_elsewhere(hub: Hub, topic: str) -> None:
    hub.deliver(Batch.of(Message(topic, b"x", 1, True, Properties(stamp=1 << 20))))


def test_the_end_of_a_filter_looks_at_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a client's filters searched all messages, and for each message all filters, in one turn."""
    hub = Hub(DelayingMesh())
    other, agent = SubscriberAgent(hub, "other"), SubscriberAgent(hub, "agent")
    other.subscribe(Subscription("a/#"))
    for levels in product("a+", repeat=4):
        agent.subscribe(Subscription("/".join((*levels, "#"))))
    for number in range(50):
        from_elsewhere(hub, f"a/a/a/a/{number}")
    looked: list[str] = []

    def look(place: object, name: str) -> list[object]:
        looked.append(name)
        return []

    monkeypatch.setattr(RetainedStore, "matching", look)
    monkeypatch.setattr(FilterNode, "match", look)
    agent.close()
    assert not looked


def test_messages_from_before_a_filter_are_not_used_and_make_room() -> None:
    """The mesh has reported no change of them since the last filter ended."""
    hub = Hub(mesh := DelayingMesh())
    agent, other = SubscriberAgent(hub, "agent"), SubscriberAgent(hub, "other")
    agent.subscribe(Subscription("#"))
    other.subscribe(Subscription("kept/+"))
    for number in range(50):
        from_elsewhere(hub, f"a/{number}")
    from_elsewhere(hub, "kept/1")
    agent.unsubscribe("#")
    agent.subscribe(Subscription("+/1"))
    mesh.complete_subscriptions()
    assert [single.topic for single in hub.retained_for("+/1", agent)] == ["kept/1"]
    for number in range(20):
        from_elsewhere(hub, f"kept/{number}")
    assert len(hub.retained) == 20


def test_a_message_published_here_stays_until_the_mesh_holds_it() -> None:
    """The end of a filter that matched it dropped it, and nobody else had it yet."""
    hub = Hub(mesh := DelayingMesh())
    agent = SubscriberAgent(hub, "agent")
    message = Message("a/1", b"x", 1, True, Properties(stamp=1 << 20))

    def found(topic_filter: str) -> int:
        agent.subscribe(Subscription(topic_filter))
        mesh.complete_subscriptions()
        count = len(hub.retained_for(topic_filter, agent))
        agent.unsubscribe(topic_filter)
        return count

    hub.publish(Batch.of(message))
    assert [found("#"), found("a/+")] == [1, 1]
    hub.kept(message)
    assert found("a/+") == 0
