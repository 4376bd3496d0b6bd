"""Registration: a burst of topics is refused with a reason, and a refused topic leaves nothing behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.ofm.topics.delimited import DelimitedCode
from saps.ofm.topics.registry import Quota, Registry, TopicRefusedError
from saps.ofm.topics.tree import TopicTree
from tests.ofm.topics.topic_trees import LEVELS

QUOTAS = [Quota(topics=12), Quota("a", children=3, levels=2, open=True), Quota("a/b", topics=2, open=True)]


def held(tree: TopicTree) -> bool:
    """Is every quota kept?"""
    below = [topic for topic in tree if topic.startswith("a/")]
    return (
        len(tree) <= 12
        and all(tree.count(topic) <= 3 for topic in ["a", *below] if topic in tree)
        and all(topic.count("/") <= 2 for topic in below)
        and sum(topic.startswith("a/b/") for topic in tree) <= 2
    )


@given(st.lists(st.tuples(st.sampled_from(["register", "admit", "remove"]), LEVELS.map("/".join)), max_size=40))
def test_quotas_are_kept_and_a_refusal_changes_nothing(steps: list[tuple[str, str]]) -> None:
    registry = Registry(QUOTAS)
    for step, topic in steps:
        before = list(registry.tree)
        try:
            getattr(registry, step)(topic)
        except (TopicRefusedError, KeyError):
            assert list(registry.tree) == before
        assert held(registry.tree)
        if step == "admit" and topic in registry.tree and topic not in before:
            assert topic.startswith("a/"), "registered by use, though no open prefix has it"


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("x/y", "'x/y' is not registered"),
        ("a/b/c/d", "'a/b/c/d': 2 levels are allowed below 'a'"),
        ("a/e", "'a/e': 3 children of a topic are allowed below 'a'"),
        ("a/b/3", "'a/b/3': 2 topics are allowed below 'a/b'"),
        ("a/+", "a topic name must not contain the wildcards + or #"),
    ],
)
def test_a_refusal_says_why(topic: str, reason: str) -> None:
    registry = Registry(QUOTAS)
    for known in ("a/b/1", "a/b/2", "a/c", "a/d"):
        registry.admit(known)
    with pytest.raises(TopicRefusedError) as refused:
        registry.admit(topic)
    assert str(refused.value) == reason


def test_a_topic_without_address_is_refused() -> None:
    registry = Registry()
    registry.codes.append(DelimitedCode(registry.tree))
    registry.register("/".join("a" * 101))
    size = len(registry.tree)
    with pytest.raises(TopicRefusedError, match="needs 104 code bits"):
        registry.register("/".join("b" + "a" * 100))
    assert len(registry.tree) == size


def test_a_topic_of_very_many_levels_is_refused_before_any_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    registry.codes.append(DelimitedCode(registry.tree))
    monkeypatch.setattr(registry, "_new", lambda topic: pytest.fail("the names of all levels take gigabytes"))
    with pytest.raises(TopicRefusedError, match="32768 levels"):
        registry.register("/".join("a" * 32768))
