from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.agents.user import SubscriberAgent
from saps.hub import LONGEST_KEPT, MAX_ROUTES, Burst, Hub
from saps.messages import Message, MessageRun, Properties, Reached
from saps.subscriptions import Subscription, Target
from saps.topics import matches
from tests.hub.meshes import DelayingMesh


def subscriber(hub: Hub, name: str = "s") -> tuple[SubscriberAgent, list[Message]]:
    got: list[Message] = []
    return SubscriberAgent(hub, name, got.append), got


def test_publication_reaches_each_matching_local_subscriber_once() -> None:
    hub = Hub()
    one, first = subscriber(hub, "one")
    two, second = subscriber(hub, "two")
    one.subscribe(Subscription("a/+"))
    one.subscribe(Subscription("a/b"))
    two.subscribe(Subscription("x"))
    matched: list[int] = []
    hub.publish(Message("a/b", b"1"), done=matched.append)
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
    hub.publish(Message("a", b"early"))
    assert len(got) == 1, "local messages need not wait for the mesh"
    mesh.complete_subscriptions()
    assert done == ["a"]


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
    hub.publish(Message("a", b"", qos=1), done=matched.append)
    assert matched == []
    mesh.complete_publications(Reached(2, 5))
    assert matched == [6]


def test_mesh_is_not_asked_when_it_knows_that_nobody_is_there() -> None:
    mesh = DelayingMesh(remote=False)
    hub = Hub(mesh)
    matched: list[int] = []
    hub.publish(Message("a", b"", qos=1), done=matched.append)
    assert mesh.published == []
    assert matched == [0]
    assert mesh.routes["a"].used
    mesh.routes["a"].remote = True
    hub.publish(Message("a", b"now"))
    assert [m.payload for m in mesh.published] == [b"now"]


def test_message_from_the_mesh_is_delivered_but_not_sent_back_nor_retained() -> None:
    mesh = DelayingMesh()
    hub = Hub(mesh)
    agent, got = subscriber(hub)
    agent.subscribe(Subscription("a/#"))
    assert hub.deliver(Message("a/b", b"1", retain=True)) == 1
    assert hub.deliver(Message("b", b"2")) == 0
    assert [m.payload for m in got] == [b"1"]
    assert mesh.published == []
    assert hub.retained_for("#") == []


def test_no_local_keeps_a_publisher_from_its_own_messages_only() -> None:
    hub = Hub()
    one, first = subscriber(hub, "one")
    two, second = subscriber(hub, "two")
    for agent in (one, two):
        agent.subscribe(Subscription("a", no_local=True))
    hub.publish(Message("a", b""), sender=one)
    assert (len(first), len(second)) == (0, 1)


def test_retained_messages_expire_by_the_clock() -> None:
    now = 0.0
    hub = Hub(clock=lambda: now)
    hub.publish(Message("a", b"x", retain=True, properties=Properties(message_expiry=5)))
    assert [p.message.payload for p in hub.retained_for("+")] == [b"x"]
    now = 5.0
    assert hub.retained_for("+") == []


@given(st.lists(st.tuples(st.sampled_from(["a/1", "a/2", "b/1", "c"]), st.integers(0, 1)), max_size=12))
def test_what_other_brokers_send_in_one_read_reaches_each_subscriber_in_its_order(sent: list[tuple[str, int]]) -> None:
    hub = Hub()
    filters = {"one": ["a/+"], "two": ["a/+"], "three": ["a/1", "b/#"], "all": ["#"]}
    got: dict[str, list[Message]] = {}
    for name, wanted in filters.items():
        agent, got[name] = subscriber(hub, name)
        for topic_filter in wanted:
            agent.subscribe(Subscription(topic_filter, qos=1))
    messages = [Message(topic, bytes([number]), qos) for number, (topic, qos) in enumerate(sent)]
    hub.gather()
    for message in messages:
        hub.deliver(message)
    hub.gathered()
    for name, wanted in filters.items():
        assert got[name] == [m for m in messages if any(matches(each, m.topic) for each in wanted)]


def test_bursts_hold_what_has_the_same_subscribers() -> None:
    hub = Hub()
    bursts: list[list[str]] = []

    class Counting(SubscriberAgent):
        def deliver_burst(self, burst: Burst, target: Target) -> None:
            bursts.append([publication.message.topic for publication in burst.publications])

    Counting(hub, "c").subscribe(Subscription("a/+"))
    hub.gather()
    for topic in ("a/1", "a/2", "a/2", "b", "a/3", "a/4"):
        hub.deliver(Message(topic, b""))
    hub.gathered()
    assert bursts == [["a/1", "a/2", "a/2"], ["a/3", "a/4"]]


def test_a_new_mesh_replaces_the_routes() -> None:
    hub = Hub()
    hub.publish(Message("a", b""))
    mesh = DelayingMesh()
    hub.mesh = mesh
    hub.publish(Message("a", b""))
    assert len(mesh.published) == 1


def test_route_cache_is_bounded() -> None:
    hub = Hub()
    for number in range(MAX_ROUTES + 10):
        hub.route(b"t/%d" % number)
    assert len(hub.routes) <= MAX_ROUTES


def test_long_topics_are_delivered_and_not_kept() -> None:
    hub, topic = Hub(), "t" * (LONGEST_KEPT + 1)
    agent, got = subscriber(hub)
    agent.subscribe(Subscription("#"))
    hub.publish(Message(topic, b"x"))
    assert [message.topic for message in got] == [topic]
    assert topic.encode() not in hub.routes


def test_reserved_topics_are_never_in_the_cache_clients_publish_from() -> None:
    hub = Hub()
    hub.publish(Message("$SYS/broker/uptime", b"1"))
    assert b"$SYS/broker/uptime" not in hub.routes


def test_burst_equals_its_messages_one_by_one() -> None:
    hub = Hub()
    one, first = subscriber(hub, "one")
    two, second = subscriber(hub, "two")
    one.subscribe(Subscription("a", no_local=True))
    two.subscribe(Subscription("#"))
    burst = Burst([MessageRun("a", 0, [b"0", b"1"]), MessageRun.of(Message("a", b"2"))])
    assert hub.spread_burst(hub.route(b"a"), burst, one) == 1
    assert first == []
    assert [m.payload for m in second] == [b"0", b"1", b"2"]
    assert (hub.published, hub.delivered) == (3, 3)


mixed = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.booleans(), st.booleans()), max_size=20)


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


@given(
    runs=st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 2), st.integers(1, 4)), max_size=12),
    gathering=st.booleans(),
)
def test_a_run_arrives_as_if_one_by_one(runs: list[tuple[str, int, int]], gathering: bool) -> None:
    hub = Hub()
    agent, got = subscriber(hub)
    agent.subscribe(Subscription("+"))
    sent = []
    if gathering:
        hub.gather()
    for number, (topic, qos, length) in enumerate(runs):
        payloads = [b"%d %d" % (number, i) for i in range(length)]
        sent += [Message(topic, payload, qos) for payload in payloads]
        if length == 1:
            assert hub.deliver(sent[-1]) == 1
        else:
            assert hub.deliver_run(topic, qos, payloads) == 1
    hub.gathered()
    assert got == sent
    assert hub.delivered == hub.received == len(sent)


@given(mixed)
def test_gathered_messages_arrive_as_if_one_by_one(sent: list[tuple[str, int, bool, bool]]) -> None:
    hub = Hub()
    agent, got = subscriber(hub)
    agent.subscribe(Subscription("#"))
    messages = [
        Message(topic, b"%d" % n, qos, retain, Properties(content_type="t") if described else None)
        for n, (topic, qos, retain, described) in enumerate(sent)
    ]
    hub.gather()
    assert [hub.deliver(message) for message in messages] == [1] * len(messages)
    hub.gathered()
    assert got == messages
    assert hub.delivered == hub.received == len(messages)


def test_gathered_messages_go_to_those_subscribed_when_they_came() -> None:
    hub = Hub()
    early, first = subscriber(hub, "early")
    late, second = subscriber(hub, "late")
    early.subscribe(Subscription("a"))
    hub.gather()
    hub.deliver(Message("a", b"1"))
    hub.deliver(Message("a", b"2"))
    late.subscribe(Subscription("a"))
    hub.deliver(Message("a", b"3"))
    hub.deliver(Message("a", b"4"))
    early.unsubscribe("a")
    hub.gathered()
    assert [m.payload for m in first] == [b"1", b"2", b"3", b"4"]
    assert [m.payload for m in second] == [b"3", b"4"]


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
            hub.publish(Message(topic, b""))
            for filters_now, (_, got) in zip(model, everyone, strict=True):
                assert len(got) == any(matches(f, topic) for f in filters_now)
