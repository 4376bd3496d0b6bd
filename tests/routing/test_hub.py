from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.agents.user import SubscriberAgent
from saps.messages import REFUSED, Message, Properties, Reached, Subscription
from saps.routing.batch import Batch
from saps.routing.hub import NOT_PUBLISHED, Hub
from saps.routing.routes import LONGEST_KEPT, MAX_ROUTES
from saps.routing.subscriptions import Target
from saps.topics import matches
from tests.batches import batch_of
from tests.routing.meshes import DelayingMesh


def subscriber(hub: Hub, name: str = "s") -> tuple[SubscriberAgent, list[Message]]:
    got: list[Message] = []
    return SubscriberAgent(hub, name, got.append), got


def publish(hub: Hub, message: Message, matched: list[int]) -> None:
    """Publish, and note how many subscribers are reached, once that is known."""
    hub.publish(Batch.of(message), done=lambda reached: matched.append(reached[0].subscribers))


def test_publication_reaches_each_matching_local_subscriber_once() -> None:
    hub = Hub()
    one, first = subscriber(hub, "one")
    two, second = subscriber(hub, "two")
    one.subscribe(Subscription("a/+"))
    one.subscribe(Subscription("a/b"))
    two.subscribe(Subscription("x"))
    matched: list[int] = []
    publish(hub, Message("a/b", b"1"), matched)
    assert [m.payload for m in first] == [b"1"]
    assert second == []
    assert matched == [1]
    assert (hub.published, hub.delivered) == (1, 1)


def test_subscription_is_done_only_when_the_mesh_says_so() -> None:
    mesh = DelayingMesh()
    hub = Hub(mesh)
    agent, got = subscriber(hub)
    done: list[str] = []
    agent.subscribe(Subscription("a"), lambda: done.append("a"))
    assert done == []
    hub.publish(Batch.of(Message("a", b"early")))
    assert len(got) == 1, "local messages need not wait for the mesh"
    mesh.complete_subscriptions()
    assert done == ["a"]


def test_a_subscription_that_goes_on_does_not_wait_for_retained_messages() -> None:
    """An adoption waited for them, from brokers that had just died, while its clients waited for it."""
    mesh = DelayingMesh()
    hub = Hub(mesh)
    agent, _ = subscriber(hub)
    done: list[str] = []
    agent.resubscribe(Subscription("a"), lambda: done.append("a"))
    mesh.complete_subscriptions()
    assert (done, mesh.recalled) == (["a"], [])
    agent.subscribe(Subscription("b"))
    mesh.complete_subscriptions()
    assert mesh.recalled == ["b"]


def test_mesh_hears_of_every_subscription_but_only_of_the_last_unsubscription() -> None:
    mesh = DelayingMesh()
    hub = Hub(mesh)
    one, _ = subscriber(hub, "one")
    two, _ = subscriber(hub, "two")
    one.subscribe(Subscription("a"))
    two.subscribe(Subscription("a"))
    assert mesh.subscribed == ["a", "a"]
    assert one.unsubscribe("a")
    assert mesh.unsubscribed == []
    assert not one.unsubscribe("a")
    assert two.unsubscribe("a")
    assert mesh.unsubscribed == ["a"]


def test_done_waits_for_the_mesh_and_counts_both_sides() -> None:
    mesh = DelayingMesh()
    hub = Hub(mesh)
    agent, _ = subscriber(hub)
    agent.subscribe(Subscription("a"))
    matched: list[int] = []
    publish(hub, Message("a", b"", qos=1), matched)
    assert matched == []
    mesh.complete_publications(Reached(2, 5))
    assert matched == [6]


def test_mesh_is_not_asked_when_it_knows_that_nobody_is_there() -> None:
    mesh = DelayingMesh(remote=False)
    hub = Hub(mesh)
    matched: list[int] = []
    publish(hub, Message("a", b"", qos=1), matched)
    assert mesh.published == []
    assert matched == [0]
    assert mesh.routes["a"].used
    mesh.routes["a"].remote = True
    hub.publish(Batch.of(Message("a", b"now")))
    assert [m.payload for m in mesh.published] == [b"now"]


def test_message_from_the_mesh_is_delivered_but_not_sent_back_nor_retained() -> None:
    mesh = DelayingMesh()
    hub = Hub(mesh)
    agent, got = subscriber(hub)
    agent.subscribe(Subscription("a/#"))
    assert hub.deliver(Batch.of(Message("a/b", b"1", retain=True))) == [1]
    assert hub.deliver(Batch.of(Message("b", b"2"))) == [0]
    assert [m.payload for m in got] == [b"1"]
    assert mesh.published == []
    assert hub.retained_for("#") == []


def test_no_local_keeps_a_publisher_from_its_own_messages_only() -> None:
    hub = Hub()
    one, first = subscriber(hub, "one")
    two, second = subscriber(hub, "two")
    for agent in (one, two):
        agent.subscribe(Subscription("a", no_local=True))
    hub.publish(Batch.of(Message("a", b"")), one)
    assert (len(first), len(second)) == (0, 1)


def test_retained_messages_expire_by_the_clock() -> None:
    now = 0.0
    hub = Hub(clock=lambda: now)
    hub.publish(Batch.of(Message("a", b"x", retain=True, properties=Properties(message_expiry=5))))
    assert [single.payload for single in hub.retained_for("+")] == [b"x"]
    now = 5.0
    assert hub.retained_for("+") == []


drawn = st.lists(
    st.tuples(st.sampled_from(["a/1", "a/2", "b/1", "c", "c/d"]), st.integers(0, 255)), min_size=1, max_size=12
)


@given(drawn, st.sampled_from([0, 1, 2]), st.booleans(), st.booleans())
def test_a_batch_arrives_as_if_its_messages_came_one_by_one(
    sent: list[tuple[str, int]], qos: int, retain: bool, from_the_mesh: bool
) -> None:
    """Each subscriber gets what its filters match, in its order, and the hub counts the same."""
    filters = {"one": ["a/+"], "two": ["a/+"], "three": ["a/1", "b/#"], "all": ["#"], "own": ["a/1", "+/1"]}
    messages = [Message(topic, bytes([number]), qos, retain) for topic, number in sent]
    outcomes = []
    for batches in ([batch_of(messages)], [Batch.of(message) for message in messages]):
        hub = Hub()
        agents = {}
        got: dict[str, list[Message]] = {}
        for name, wanted in filters.items():
            agents[name], got[name] = subscriber(hub, name)
            for topic_filter in wanted:
                agents[name].subscribe(Subscription(topic_filter, qos=1, no_local=topic_filter == "+/1"))
        for batch in batches:
            if from_the_mesh:
                hub.deliver(batch)
            else:
                hub.publish(batch, agents["own"])
        retained = {single.topic: single.payload for single in hub.retained_for("#")}
        outcomes.append((got, retained, hub.describe()))
    assert outcomes[0] == outcomes[1]
    for name, wanted in filters.items():
        if name != "own" or from_the_mesh:
            assert outcomes[0][0][name] == [m for m in messages if any(matches(each, m.topic) for each in wanted)]


@given(drawn, st.booleans())
def test_a_batch_counts_the_subscribers_of_each_topic(sent: list[tuple[str, int]], remote: bool) -> None:
    mesh = DelayingMesh(remote)
    hub = Hub(mesh)
    for name, topic_filter in (("one", "a/+"), ("two", "#"), ("three", "c/#")):
        subscriber(hub, name)[0].subscribe(Subscription(topic_filter))
    batch = batch_of([Message(topic, b"", 1) for topic, _ in sent])
    told: list[list[Reached]] = []
    matched = hub.publish(batch, done=lambda reached: told.append(list(reached)))
    expected = [sum(matches(f, topic) for f in ("a/+", "#", "c/#")) for topic in batch.topics]
    assert list(matched) == expected
    assert bool(told) is not remote
    mesh.complete_publications(Reached(2, 5))
    assert told == [[Reached(2 * remote, count + 5 * remote) for count in expected]]


def test_subscribers_of_the_same_topics_get_the_same_object() -> None:
    hub = Hub()
    taken: list[Batch] = []

    class Keeping(SubscriberAgent):
        def deliver(self, batch: Batch, target: Target) -> None:
            taken.append(batch)

    for name, topic_filter in (("one", "a/+"), ("two", "a/+"), ("all", "#"), ("every", "#")):
        Keeping(hub, name).subscribe(Subscription(topic_filter))
    batch = batch_of([Message(topic, b"") for topic in ("a/1", "b", "a/2", "b", "a/1")])
    hub.publish(batch)
    parts = {id(each): each for each in taken}
    assert len(taken) == 4
    assert parts.pop(id(batch)) is batch, "who gets all of it gets the batch itself"
    assert [(each.topics, list(each.which)) for each in parts.values()] == [(["a/1", "a/2"], [0, 1, 0])]


class Allowed:
    """Rights to some topics."""

    asker = None

    def __init__(self, *topics: str) -> None:
        self.publishable: set[str] = set()
        self._topics = topics

    def may_publish(self, topic: str) -> bool:
        return topic in self._topics

    def may_read(self, topic: str) -> bool:
        return topic in self._topics

    def may_subscribe(self, topic_filter: str) -> bool:
        return True


def test_a_batch_is_published_as_far_as_its_publisher_may() -> None:
    mesh = DelayingMesh()
    hub = Hub(mesh)
    everything, got = subscriber(hub, "all")
    everything.subscribe(Subscription("#"))
    sender, _ = subscriber(hub, "sender")
    sender.rights = Allowed("a", "c", "$SYS/mine")
    told: list[list[Reached]] = []
    batch = batch_of([Message(topic, b"%d" % n, 1) for n, topic in enumerate(["a", "b", "$SYS/mine", "a", "c", "b"])])
    assert list(hub.publish(batch, sender, lambda reached: told.append(list(reached)))) == [1, -1, -1, 1]
    mesh.complete_publications(Reached(1, 2))
    assert told == [[Reached(1, 3), REFUSED, REFUSED, Reached(1, 3)]]
    assert [message.payload for message in got] == [message.payload for message in mesh.published] == [b"0", b"3", b"4"]
    assert "b" not in hub.routes.known
    assert "b" not in mesh.routes, "it leaves nothing behind"
    assert list(hub.publish(Batch.of(Message("b", b"")), sender)) == [NOT_PUBLISHED]


def test_who_may_not_read_a_topic_gets_nothing_of_it() -> None:
    hub = Hub()
    hub.routes.restricted = True
    agent, got = subscriber(hub, "s")
    agent.rights = Allowed("a")
    agent.subscribe(Subscription("#"))
    hub.publish(batch_of([Message(topic, b"x", retain=True) for topic in "aba"]))
    hub.deliver(batch_of([Message(topic, b"") for topic in "ba"]))
    assert [message.topic for message in got] == ["a", "a", "a"]
    agent.subscribe(Subscription("+"))
    assert [single.topic for single in hub.retained_for("+", agent)] == ["a"]


def test_a_new_mesh_replaces_the_routes() -> None:
    hub = Hub()
    hub.publish(Batch.of(Message("a", b"")))
    mesh = DelayingMesh()
    hub.mesh = mesh
    hub.publish(Batch.of(Message("a", b"")))
    assert len(mesh.published) == 1


def test_route_cache_is_bounded() -> None:
    hub = Hub()
    for number in range(MAX_ROUTES + 10):
        hub.routes.find(f"t/{number}")
    assert len(hub.routes.known) <= MAX_ROUTES


def test_long_topics_are_delivered_and_not_kept() -> None:
    hub, topic = Hub(), "t" * (LONGEST_KEPT + 1)
    agent, got = subscriber(hub)
    agent.subscribe(Subscription("#"))
    hub.publish(Batch.of(Message(topic, b"x")))
    assert [message.topic for message in got] == [topic]
    assert topic not in hub.routes.known


def test_reserved_topics_are_never_in_the_cache_clients_publish_from() -> None:
    hub = Hub()
    hub.publish(Batch.of(Message("$SYS/broker/uptime", b"1")))
    assert "$SYS/broker/uptime" not in hub.routes.known


@pytest.mark.parametrize("topic_filter", ["$SYS/#", "$SYS/broker/+", "$SYS/broker/uptime", "$share/g/$SYS/#"])
def test_the_mesh_never_hears_of_what_each_broker_tells_about_itself(topic_filter: str) -> None:
    mesh = DelayingMesh()
    hub = Hub(mesh)
    agent, _ = subscriber(hub)
    done: list[str] = []
    agent.subscribe(Subscription(topic_filter), lambda: done.append(topic_filter))
    assert done == [topic_filter]
    assert topic_filter in hub.index
    agent.unsubscribe(topic_filter)
    assert mesh.subscribed == mesh.unsubscribed == []
    assert topic_filter not in hub.index


def test_agents_are_found_by_name_until_they_close() -> None:
    mesh = DelayingMesh()
    hub = Hub(mesh)
    agent, _ = subscriber(hub, "c1")
    agent.subscribe(Subscription("a"))
    assert hub.agents["c1/sub"] is agent
    agent.close()
    assert hub.agents == {}
    assert mesh.unsubscribed == ["a"]
    assert hub.describe()["filters"] == 0


filters = st.sampled_from(["a", "a/b", "#", "+", "a/+", "+/b", "a/#"])
actions = st.lists(
    st.tuples(st.sampled_from(["subscribe", "unsubscribe", "publish"]), st.integers(0, 2), filters), max_size=60
)


@given(actions)
def test_cached_routes_never_go_stale(ops: list[tuple[str, int, str]]) -> None:
    """Whatever happened before, a publication reaches those subscribed now, once each."""
    hub = Hub()
    everyone = [subscriber(hub, str(i)) for i in range(3)]
    model: list[set[str]] = [set(), set(), set()]
    for what, number, topic_filter in ops:
        agent, _ = everyone[number]
        if what == "subscribe":
            agent.subscribe(Subscription(topic_filter))
            model[number].add(topic_filter)
        elif what == "unsubscribe":
            assert agent.unsubscribe(topic_filter) is (topic_filter in model[number])
            model[number].discard(topic_filter)
        else:
            topic = topic_filter.replace("#", "c").replace("+", "b")
            for _, got in everyone:
                got.clear()
            hub.publish(Batch.of(Message(topic, b"")))
            for filters_now, (_, got) in zip(model, everyone, strict=True):
                assert len(got) == any(matches(f, topic) for f in filters_now)
