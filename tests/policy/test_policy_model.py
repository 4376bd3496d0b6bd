"""What a policy forbids: the sum over a topic and all above it, in every file."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saps.policy.model import FREE, Policy, StaleError, UnknownSwitchesError, Verdict, merged

TOPICS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join)
CLUSTERS = st.sampled_from(["x", "x/1", "x/1/r", "y", "y/2", "xx"])
NAMES = st.sampled_from(["b1", "b2", "b3"])
VERDICTS = st.builds(Verdict, st.frozensets(CLUSTERS, max_size=2), st.frozensets(NAMES, max_size=2))
POLICIES = st.builds(Policy, st.integers(1, 9), st.dictionaries(TOPICS, VERDICTS, max_size=5))


class At(NamedTuple):
    name: str
    cluster: str


BROKERS = st.builds(At, NAMES, CLUSTERS)


@settings(max_examples=50)
@given(POLICIES, TOPICS, BROKERS)
def test_a_topic_is_forbidden_what_any_topic_above_it_is(policy: Policy, topic: str, broker: At) -> None:
    levels = topic.split("/")
    above = ["/".join(levels[:i]) for i in range(1, len(levels) + 1)]
    said = [policy.topics.get(each, FREE) for each in above]
    place = broker.cluster.split("/")
    inside = {"/".join(place[:i]) for i in range(1, len(place) + 1)}
    verdict = policy.verdict(topic)
    assert verdict.carries(broker.cluster) == (not any(each.clusters & inside for each in said))
    assert verdict.receives(broker) == (
        verdict.carries(broker.cluster) and not any(broker.name in each.brokers for each in said)
    )
    assert policy.free(topic) == all(each == FREE for each in said)


@settings(max_examples=50)
@given(st.lists(POLICIES, min_size=1, max_size=3), TOPICS, BROKERS)
def test_merged_files_forbid_what_any_of_them_does(policies: list[Policy], topic: str, broker: At) -> None:
    together = merged(policies)
    assert together.verdict(topic).receives(broker) == all(each.verdict(topic).receives(broker) for each in policies)
    assert together.verdict(topic).carries(broker.cluster) == all(
        each.verdict(topic).carries(broker.cluster) for each in policies
    )
    assert merged(policies[::-1]) == together


@settings(max_examples=50)
@given(POLICIES, TOPICS, BROKERS, st.lists(BROKERS, max_size=5))
def test_who_receives_what_a_broker_publishes(policy: Policy, topic: str, publisher: At, brokers: list[At]) -> None:
    verdict = policy.verdict(topic)
    wanted = [each for each in brokers if verdict.receives(each)] if verdict.carries(publisher.cluster) else []
    assert verdict.receivers(publisher, brokers) == wanted


def test_a_change_needs_a_higher_version() -> None:
    old = Policy(2, {"a": Verdict(frozenset({"x"}))})
    new = Policy(2, {"a": Verdict(frozenset({"y"}))})
    assert old.after(old) is old
    with pytest.raises(StaleError, match="version 2 is not above 2: raise the version"):
        new.after(old)
    assert Policy(3).after(old) == Policy(3)


def test_the_switches_of_a_cluster_are_all_inside_it() -> None:
    policy = Policy(1, {}, {"x/1": frozenset({1, 2}), "x/2": frozenset({3}), "y": frozenset({4}), "z": frozenset()})
    assert policy.barred(Verdict(frozenset({"x", "z"}))) == {1, 2, 3}
    with pytest.raises(UnknownSwitchesError, match="no policy file names the switches of cluster w"):
        policy.barred(Verdict(frozenset({"x", "w"})))
