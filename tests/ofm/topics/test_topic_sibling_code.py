"""The published code, as printed: what it says, where it is wrong, and how far it reaches (SDNPS 2016, 3.2)."""

from __future__ import annotations

import pytest
from hypothesis import given

from saps.ofm.topics.coding import WORD_BITS, CodeTooLongError
from saps.ofm.topics.sibling import SiblingCode, covers_mended, dlsuffix, dlzero
from saps.ofm.topics.tree import father_of
from tests.ofm.topics.topic_trees import TOPICS, tree_of


def test_left_child_and_right_sibling() -> None:
    tree = tree_of(["a", "b", "c", "a/x", "a/y", "b/z", "b/z/w"])
    code = SiblingCode(tree)
    assert {topic: code.code(topic) for topic in tree} == {
        "a": "0", "b": "01", "c": "011", "a/x": "00", "a/y": "001", "b/z": "010", "b/z/w": "0100",
    }  # fmt: skip
    assert (dlsuffix("01011"), dlzero("0100"), dlzero("01")) == ("010", "010", "01")


@given(TOPICS)
def test_the_father_is_that_of_the_tree(topics: list[str]) -> None:
    tree = tree_of(topics)
    code = SiblingCode(tree)
    for topic in tree:
        father = father_of(topic)
        assert code.father(code.code(topic)) == ("" if father is None else code.code(father))


@given(TOPICS)
def test_the_printed_rule_accepts_also_what_is_below_later_siblings(topics: list[str]) -> None:
    """Exactly that: no more, no less. The mended rule is the tree's."""
    tree = tree_of(topics)
    code = SiblingCode(tree)
    for topic in tree:
        below = set(tree.below(topic)) - {topic}
        siblings = tree.children(father_of(topic))
        later = siblings[siblings.index(topic) + 1 :]
        wrong = {other for sibling in later for other in tree.below(sibling)} - set(later)
        one = code.code(topic)
        assert {other for other in tree if code.covers(one, code.code(other))} == below | wrong
        assert {other for other in tree if covers_mended(one, code.code(other))} == below


@given(TOPICS)
def test_a_topic_shares_its_address_with_its_chain_of_first_children_and_nobody_else(topics: list[str]) -> None:
    tree = tree_of(topics)
    code = SiblingCode(tree)
    for topic in tree:
        chain, at = {topic}, topic
        while children := tree.children(at):
            at = children[0]
            chain.add(at)
        at = topic
        while (father := father_of(at)) is not None and tree.children(father)[0] == at:
            at = father
            chain.add(at)
        assert {other for other in tree if code.word(other) == code.word(topic)} == chain


@given(TOPICS)
def test_which_subtrees_a_mask_can_match(topics: list[str]) -> None:
    """The printed prefix also matches later siblings and all below them. For a first child no match of any kind is
    exact: its father has its address. The left branch is exact for the others, and only for them."""
    tree = tree_of(topics)
    code = SiblingCode(tree)
    words = {topic: code.word(topic) for topic in tree}
    for topic in tree:
        siblings = tree.children(father_of(topic))
        place = siblings.index(topic)
        subtree = set(tree.below(topic))
        printed = {other for other in tree if words[other].startswith(code.subtree(topic))}
        branch = {other for other in tree if words[other].startswith(code.code(topic) + "0")}
        assert printed >= subtree | set(siblings[place:])
        assert place == 0 or branch == subtree
        if place == 0 and (father := father_of(topic)) is not None:
            assert words[father] == words[topic]
            assert father in branch


def test_at_most_101_siblings_and_101_levels_fit() -> None:
    code = SiblingCode(tree_of([f"s{i}" for i in range(102)]))
    assert code.word("s100") == "0" + "1" * 100
    with pytest.raises(CodeTooLongError):
        code.word("s101")
    deep = SiblingCode(tree_of(["/".join("a" * 102)]))
    assert deep.word("/".join("a" * 101)) == "0" * WORD_BITS
    with pytest.raises(CodeTooLongError):
        deep.word("/".join("a" * 102))


def test_a_sibling_that_goes_recodes_the_later_ones() -> None:
    tree = tree_of("abc")
    code = SiblingCode(tree)
    assert code.code("c") == "011"
    tree.remove("b")
    assert code.code("c") == "01"
