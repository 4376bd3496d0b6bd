from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from saps.agents.user import SubscriberAgent
from saps.messages import Subscription
from saps.routing.hub import Hub
from saps.routing.subscriptions import SubscriptionIndex, Target
from saps.topics import filter_fault, matches

levels = st.sampled_from(["a", "b", "", "$SYS", "+", "#"])
filters = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(lambda f: filter_fault(f) is None)
topics = st.lists(st.sampled_from(["a", "b", "", "$SYS"]), min_size=1, max_size=4).map("/".join).filter(bool)
operations = st.lists(st.tuples(st.booleans(), st.integers(0, 2), filters), max_size=40)


def agents(count: int) -> list[SubscriberAgent]:
    hub = Hub()
    return [SubscriberAgent(hub, f"c{i}") for i in range(count)]


@given(operations, topics)
def test_index_agrees_with_the_definition_of_matching(ops: list[tuple[bool, int, str]], topic: str) -> None:
    index = SubscriptionIndex()
    everyone = agents(3)
    model: dict[tuple[int, str], Subscription] = {}
    for add, number, topic_filter in ops:
        if add:
            model[number, topic_filter] = Subscription(topic_filter)
            index.add(everyone[number], Subscription(topic_filter))
        else:
            had = model.pop((number, topic_filter), None) is not None
            last = had and not any(f == topic_filter for _, f in model)
            assert index.remove(everyone[number], topic_filter) is last
    expected = {number for number, topic_filter in model if matches(topic_filter, topic)}
    found = index.targets(topic)
    assert len(found) == len(expected)
    assert index.subscribed(topic, 1) is bool(expected)
    assert {target.agent for target in found} == {everyone[number] for number in expected}
    assert set(index.filters) == {f for _, f in model}


@given(st.lists(filters, min_size=1, max_size=10, unique=True))
def test_nothing_remains_after_the_last_subscription(all_filters: list[str]) -> None:
    index = SubscriptionIndex()
    (agent,) = agents(1)
    for topic_filter in all_filters:
        index.add(agent, Subscription(topic_filter))
    for topic_filter in all_filters:
        assert topic_filter in index
        assert index.remove(agent, topic_filter)
    assert not len(index)
    assert not index._root.children


def test_overlapping_subscriptions_give_one_target_with_highest_qos_and_all_identifiers() -> None:
    index = SubscriptionIndex()
    (agent,) = agents(1)
    index.add(agent, Subscription("a/b", qos=1, identifier=7))
    index.add(agent, Subscription("a/#", qos=2, identifier=9))
    index.add(agent, Subscription("+/b", qos=0))
    (target,) = index.targets("a/b")
    assert target.qos == 2
    assert sorted(target.identifiers) == [7, 9]


def test_a_new_subscription_replaces_the_old_one() -> None:
    index = SubscriptionIndex()
    (agent,) = agents(1)
    index.add(agent, Subscription("a", qos=2))
    index.add(agent, Subscription("a", qos=0))
    assert index.targets("a")[0].qos == 0


def test_own_publications_come_only_by_subscriptions_that_are_not_no_local() -> None:
    (agent,) = agents(1)
    mixed = Target(agent, [Subscription("a", qos=2, no_local=True, identifier=1), Subscription("#", identifier=2)])
    assert mixed.own is not None
    assert (mixed.own.qos, mixed.own.identifiers) == (0, (2,))
    assert Target(agent, [Subscription("a", no_local=True)]).own is None
    plain = Target(agent, [Subscription("a")])
    assert plain.own is plain
