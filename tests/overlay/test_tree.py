"""The multicast tree: everyone once, nobody else, logarithmic."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.overlay.keys import BrokerRef, KeyOrder
from saps.overlay.presence import by_place
from saps.overlay.tree import Branch, branches, divide


def brokers(count: int, clusters: int = 4) -> list[BrokerRef]:
    return [BrokerRef(f"b{i}", 1, "", f"c{i % clusters}") for i in range(count)]


def walk(first: list[Branch]) -> tuple[list[str], int, int]:
    """Receivers in order, depth, most branches at one broker."""
    reached, depth, widest = [], 0, len(first)
    level = first
    while level:
        depth += 1
        following: list[Branch] = []
        for branch in level:
            reached.append(branch.child.name)
            onward = divide(branch.child, branch.slice)
            widest = max(widest, len(onward))
            following.extend(onward)
        level = following
    return reached, depth, widest


@given(st.integers(0, 60), st.integers(0, 60), st.sampled_from(KeyOrder))
def test_every_member_gets_exactly_one_message(count: int, root: int, order: KeyOrder) -> None:
    everyone = brokers(count + 1)
    publisher = everyone.pop(root % len(everyone))
    reached, _, _ = walk(branches(publisher, by_place(everyone, order), order))
    assert sorted(reached) == sorted(broker.name for broker in everyone)


@pytest.mark.parametrize("count", [10, 100, 1000, 10000])
def test_depth_and_branches_are_logarithmic(count: int) -> None:
    everyone = brokers(count + 1)
    publisher = everyone.pop(count // 2)
    reached, depth, widest = walk(branches(publisher, by_place(everyone, KeyOrder.ALM_LA), KeyOrder.ALM_LA))
    assert len(reached) == count
    assert depth <= 3 * math.log2(count) + 3
    assert widest <= 3 * math.log2(count) + 6


def test_locality_crosses_clusters_less_often_than_hashing() -> None:
    everyone = brokers(101)
    publisher = everyone.pop(0)

    def crossings(order: KeyOrder) -> int:
        count = 0
        todo = [(publisher, branch) for branch in branches(publisher, by_place(everyone, order), order)]
        while todo:
            sender, branch = todo.pop()
            count += sender.cluster != branch.child.cluster
            todo.extend((branch.child, onward) for onward in divide(branch.child, branch.slice))
        return count

    assert crossings(KeyOrder.ALM_LA) < crossings(KeyOrder.ALM) / 2
