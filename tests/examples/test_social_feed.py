"""The social feed example: who follows whom, and the whole command with OpenFlow decisions."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from examples.smart_city.scene import plan_brokers
from examples.social_feed.feed import CELEBRITIES, CLASSES, FOLLOWS, KNOWN, READERS, class_of, feed
from examples.social_feed.result import Outcome, draw
from saps.topics import filter_fault, matches, topic_fault
from tests.examples.commands import run_example

needs_ofm = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("pyarrow", "os_ken")),
    reason="brokers count with pyarrow, the controller speaks by os-ken",
)


@pytest.mark.parametrize("seed", range(5))
def test_followers_are_by_popularity_and_nobody_subscribes_twice(seed: int) -> None:
    plan = feed(plan_brokers(6, 3), 60, seed)
    followers = [len(author.followers) for author in plan.authors]
    assert sum(followers) == 6 * READERS * FOLLOWS
    assert min(followers[:1]) > 6 * READERS / 2, "the first author is followed by most"
    assert sum(followers[:CELEBRITIES]) / CELEBRITIES > 3 * sum(followers[10:]) / len(followers[10:])
    topics = {topic for publisher in plan.scene.publishers for topic in publisher.topics}
    assert {class_of(topic) for topic in topics} == set(CLASSES)
    assert all(topic_fault(topic) is None for topic in topics)
    for device in plan.scene.subscribers:
        assert all(filter_fault(wanted) is None for wanted in device.filters)
        assert all(sum(matches(wanted, topic) for wanted in device.filters) <= 1 for topic in topics)


def test_clusters_are_those_that_must_be_sent_to() -> None:
    plan = feed(plan_brokers(6, 3), 60, 1)
    assert all(plan.clusters_of(author.posts) == 2 for author in plan.authors[:KNOWN]), "screens are everywhere"
    assert all(plan.clusters_of(author.posts) == 0 for author in plan.authors[KNOWN:]), "friends live nearby"
    assert all(plan.clusters_of(author.likes) <= 1 for author in plan.authors), "only the author wants them"


@pytest.mark.network
@needs_ofm
def test_the_known_get_trees_and_nothing_is_lost(tmp_path: Path) -> None:
    done, result = run_example("social_feed", Outcome, tmp_path, "--seconds", "4", "--brokers", "3", "--authors", "24")
    assert done.returncode == 0, done.stdout + done.stderr
    assert result.problems == []
    assert result.ofm
    assert (result.total.lost, result.total.duplicated, result.total.out_of_order) == (0, 0, 0)
    assert result.classes["celebrities"].delivered > result.classes["friends"].delivered
    trees = {topic.rank for topic in result.topics if topic.decided is not None}
    assert trees
    assert trees <= set(range(1, KNOWN + 1))
    assert not result.other_trees
    assert (tmp_path / "picture.svg").read_text() == draw(result).svg()
