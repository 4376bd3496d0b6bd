"""Aggregated entries send every topic where its own entry would, and no fewer entries can."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from saps.ofm.topics.aggregate import Entry, aggregate, lookup, smallest
from saps.ofm.topics.coding import TopicCode
from saps.ofm.topics.delimited import DelimitedCode
from saps.ofm.topics.sibling import SiblingCode
from tests.ofm.topics.topic_trees import TOPICS, tree_of, weighted


@given(topics=TOPICS, chosen=st.lists(st.sampled_from([None, 1, 2, 3]), min_size=1), which=st.integers(0, 2))
def test_every_topic_goes_where_its_tree_leads(topics: list[str], chosen: list[int | None], which: int) -> None:
    tree = tree_of(topics)
    codes: list[TopicCode] = [DelimitedCode(tree), weighted(tree), SiblingCode(tree)]
    code = codes[which]
    trees = {topic: chosen[i % len(chosen)] for i, topic in enumerate(tree)}
    found = aggregate(code, trees)
    assert not found.too_long
    assert bool(found.clashing) <= (which == 2), "only the published code has topics with one address"
    for topic in set(tree) - set(found.clashing):
        assert lookup(found.entries, code.word(topic)) == trees[topic]
    if None not in chosen:
        assert len(found.entries) <= found.alone


WORDS = ["".join(bits) for bits in product("01", repeat=3)]


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from(WORDS), st.sampled_from([None, 1, 2])))
def test_no_solution_is_smaller(words: dict[str, int | None]) -> None:
    """Against all sets of fewer entries, over words of three bits."""
    found = smallest(words)
    assert {word: lookup(found, word) for word in words} == words
    prefixes = [word[:length] for length in range(4) for word in WORDS]
    choices = [Entry(prefix, tree) for prefix in dict.fromkeys(prefixes) for tree in (None, 1, 2)]
    for entries in combinations(choices, min(len(found) - 1, 2)) if found else ():
        if len({entry.prefix for entry in entries}) == len(entries):
            assert {word: lookup(entries, word) for word in words} != words


def test_a_subtree_with_one_tree_is_one_entry() -> None:
    tree = tree_of([f"tokyo/ward{i}/air" for i in range(50)] + ["osaka/air"])
    found = aggregate(DelimitedCode(tree), {topic: "t" for topic in tree if topic.startswith("tokyo")})
    assert (found.alone, len(found.entries)) == (101, 1)
