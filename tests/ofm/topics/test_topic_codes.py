"""Our codes: a subtree is one prefix, exactly; padding makes no two topics one; and what each alone promises."""

from __future__ import annotations

import random
from collections.abc import Callable
from ipaddress import IPv6Address
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.weighted_codes import WeightedCode, huffman, recoded
from saps.ofm.topics.address import RANGE, EventType, address, identifier, match, network
from saps.ofm.topics.coding import WORD_BITS, CodeTooLongError, TopicCode
from saps.ofm.topics.delimited import DelimitedCode, delta, numbers
from saps.ofm.topics.tree import TopicTree, father_of
from tests.ofm.topics.topic_trees import OURS, TOPICS, tree_of, weighted

CodeOf = Callable[[TopicTree], TopicCode]


@pytest.mark.parametrize("code_of", OURS)
@given(topics=TOPICS)
def test_a_subtree_is_exactly_one_prefix(code_of: CodeOf, topics: list[str]) -> None:
    tree = tree_of(topics)
    code = code_of(tree)
    words = {topic: code.word(topic) for topic in tree}
    assert len(set(words.values())) == len(tree), "two topics with one address"
    for topic in tree:
        prefix = code.subtree(topic)
        assert {other for other in tree if words[other].startswith(prefix)} == set(tree.below(topic))


@pytest.mark.parametrize("code_of", OURS)
@given(topics=TOPICS)
def test_father_and_cover_are_those_of_the_tree(code_of: CodeOf, topics: list[str]) -> None:
    tree = tree_of(topics)
    code = code_of(tree)
    for topic in tree:
        father = father_of(topic)
        assert code.father(code.code(topic)) == ("" if father is None else code.code(father))
        below = set(tree.below(topic)) - {topic}
        assert {other for other in tree if code.covers(code.code(topic), code.code(other))} == below


@given(topics=TOPICS, more=TOPICS, gone=st.integers(0))
def test_topics_that_come_or_go_change_no_delimited_code(topics: list[str], more: list[str], gone: int) -> None:
    tree = tree_of(topics)
    code = DelimitedCode(tree)
    before = {topic: code.code(topic) for topic in tree}
    for topic in more:
        tree.add(topic)
    assert before.items() <= {topic: code.code(topic) for topic in tree}.items()
    everyone = list(tree)
    tree.remove(everyone[gone % len(everyone)])
    assert all(code.code(topic) == before[topic] for topic in tree if topic in before)


@given(st.lists(st.integers(1, 10**6), max_size=12), st.integers(0, 40))
def test_a_delimited_code_is_read_back_whatever_zeros_follow(path: list[int], zeros: int) -> None:
    bits = "".join(map(delta, path))
    assert [number for number, _ in numbers(bits + "0" * zeros)] == path


@given(st.text("01", max_size=WORD_BITS))
def test_any_bits_are_a_path_or_refused(bits: str) -> None:
    try:
        path = [number for number, _ in numbers(bits)]
    except ValueError:
        return
    assert "".join(map(delta, path)) == bits[: len("".join(map(delta, path)))]
    assert "1" not in bits[len("".join(map(delta, path))) :]


@pytest.mark.parametrize("code_of", OURS)
def test_ten_thousand_siblings_in_27_bits(code_of: CodeOf) -> None:
    tree = tree_of(f"s{i}" for i in range(10_000))
    code = code_of(tree)
    assert max(len(code.code(topic)) for topic in tree) <= 20


def test_the_longest_words_of_a_skewed_use_stay_short() -> None:
    tree = tree_of(f"s{i}" for i in range(2_000))
    code = WeightedCode(tree, {topic: 2.0**-i for i, topic in enumerate(tree)})
    assert max(len(code.code(topic)) for topic in tree) <= 20


def test_what_does_not_fit_has_no_address() -> None:
    tree = tree_of(["/".join("a" * 101), "/".join("a" * 100 + "b")])
    tree.add("/".join("a" * 102))
    code = DelimitedCode(tree)
    assert code.word("/".join("a" * 101)) == "1" * 101
    with pytest.raises(CodeTooLongError, match=r"needs 102 code bits, there are 101"):
        code.word("/".join("a" * 102))


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=40))
def test_huffman_words_are_a_bit_from_the_entropy_at_most(weights: list[int]) -> None:
    words, total = huffman(list(map(float, weights))), sum(weights)
    assert sum(2.0 ** -len(word) for word in words) == 1
    assert not any(one.startswith(other) for one in words for other in words if one is not other)
    entropy = -sum(weight / total * log2(weight / total) for weight in weights)
    mean = sum(weight * len(word) for weight, word in zip(weights, words, strict=True)) / total
    assert entropy - 1e-9 <= mean < entropy + 1


def test_what_is_used_more_has_a_shorter_code() -> None:
    tree = tree_of(f"s{i}" for i in range(1000))
    use = {topic: 1 / (i + 1) for i, topic in enumerate(reversed(list(tree)))}
    by_use, fixed = WeightedCode(tree, use), DelimitedCode(tree)

    def mean(code: TopicCode) -> float:
        return sum(weight * len(code.code(topic)) for topic, weight in use.items()) / sum(use.values())

    assert mean(by_use) < 9 < 13 < mean(fixed)


def test_a_change_recodes_the_weighted_code_and_not_the_delimited_one() -> None:
    tree = tree_of([f"a/{i}" for i in range(5)])
    delimited = {topic: DelimitedCode(tree).word(topic) for topic in tree}
    by_use = {topic: weighted(tree).word(topic) for topic in tree}
    tree.add("a/5")
    assert recoded(delimited, DelimitedCode(tree)) == []
    assert recoded(by_use, weighted(tree))


@given(st.sampled_from(EventType), st.text("01", min_size=WORD_BITS, max_size=WORD_BITS), st.integers(0, WORD_BITS))
def test_addresses(event: EventType, word: str, length: int) -> None:
    of = address(event, word)
    assert of.is_multicast
    assert of in RANGE
    assert identifier(of) == (event, word)
    masked = match(event, word[:length])
    assert int(of) & masked.mask == masked.value & masked.mask
    assert of in network(word[:length], event)
    if length:
        other = word[: length - 1] + ("1" if word[length - 1] == "0" else "0")
        elsewhere = address(event, other.ljust(WORD_BITS, random.Random(length).choice("01")))
        assert int(elsewhere) & masked.mask != masked.value & masked.mask


def test_other_addresses_are_none_of_ours() -> None:
    with pytest.raises(ValueError, match="is not in ff18::/25"):
        identifier(IPv6Address("ff05::1"))
    with pytest.raises(ValueError, match="a word has 101 bits"):
        address(EventType.PUBLISH, "01")
