"""The logical key hierarchy: after any history just the members have the secret, and a leave costs O(log n) wraps."""

from __future__ import annotations

from math import log2
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from saps.ofm.keys.hierarchy import Chain, Hierarchy, Key, Wrap

GROUP = b"group001"
HISTORIES = st.lists(st.tuples(st.sets(st.integers(0, 40), max_size=12), st.booleans()), max_size=25)
"""At each step these members change sides: who is out joins, who is in leaves; True: afterwards only they are in."""


class Member:
    """Reads everything that is ever sent, in any order, with all it has ever known."""

    def __init__(self, hierarchy: Hierarchy[int], number: int) -> None:
        self.chain = Chain(GROUP, hierarchy.leaf(number))
        self.chain.take(hierarchy.path(number))


class Hoarder:
    """Keeps all secrets it has ever had, and tries each on each wrap that is sent later."""

    def __init__(self) -> None:
        self.known: dict[int, bytes] = {}

    def learn(self, wraps: list[Wrap], leaf: Key | None = None) -> None:
        if leaf is not None:
            self.known[leaf.id] = leaf.secret
        for wrap in wraps:
            if wrap.under in self.known:
                chain = Chain(GROUP, Key(wrap.under, self.known[wrap.under]))
                chain.take([wrap])
                secret = chain.secret(wrap.id)
                assert secret is not None
                self.known[wrap.id] = secret


def root(hierarchy: Hierarchy[int]) -> Key:
    found = hierarchy.root
    assert found is not None
    return found


@given(history=HISTORIES, seed=st.integers(0, 2**32))
def test_after_any_history_just_the_members_have_the_secret(history: list[tuple[set[int], bool]], seed: int) -> None:
    """Who has left, with everything it has ever known and everything that is sent; and nobody learns a secret from
    before its time."""
    hierarchy: Hierarchy[int] = Hierarchy(GROUP, Random(seed).randbytes)
    members: dict[int, Member] = {}
    hoarders: dict[int, Hoarder] = {}
    former: list[Key] = []
    for moving, alone in history:
        gone = {number for number in members if number in moving or alone}
        joined = moving - members.keys()
        wraps = hierarchy.change(sorted(joined), sorted(gone))
        for number in gone:
            del members[number]
        for member in members.values():
            member.chain.take(wraps)
        for hoarder in hoarders.values():
            hoarder.learn(wraps)
        for number in joined:
            members[number] = Member(hierarchy, number)
            hoarder = hoarders.setdefault(number, Hoarder())
            before = set(hoarder.known)
            hoarder.learn(hierarchy.path(number), hierarchy.leaf(number))
            assert not {key.id for key in former} & (hoarder.known.keys() - before)
        assert hierarchy.members == members.keys()
        if not members:
            assert hierarchy.root is None
            continue
        key = root(hierarchy)
        assert all(member.chain.secret(key.id) == key.secret for member in members.values())
        readers = {number for number, hoarder in hoarders.items() if key.id in hoarder.known}
        assert readers == members.keys()
        former.append(key)


@settings(max_examples=30)
@given(size=st.integers(2, 600), seed=st.integers(0, 2**32))
def test_a_leave_costs_two_wraps_a_level(size: int, seed: int) -> None:
    """At most 2 log2(n) + 3 wraps, n members being left; but with those that make a sparse tree smaller. With these it
    is two more for each leave, on average."""
    rng = Random(seed)
    hierarchy: Hierarchy[int] = Hierarchy(GROUP, rng.randbytes)
    hierarchy.change(range(size))
    members = list(range(size))
    rng.shuffle(members)
    wraps, bound = 0, 0.0
    while len(members) > 1:
        height = hierarchy._height
        cost = len(hierarchy.change((), [members.pop()]))
        limit = 2 * log2(len(members)) + 3
        if hierarchy._height == height:
            assert cost <= limit
        wraps += cost
        bound += limit + 2
    assert wraps <= bound


@given(size=st.integers(1, 200), more=st.integers(1, 20), seed=st.integers(0, 2**32))
def test_a_join_costs_two_wraps_a_level_for_each(size: int, more: int, seed: int) -> None:
    hierarchy: Hierarchy[int] = Hierarchy(GROUP, Random(seed).randbytes)
    hierarchy.change(range(size))
    wraps = hierarchy.change(range(size, size + more))
    assert len(wraps) <= 2 * more * (log2(size + more) + 2)


@given(
    wraps=st.lists(st.tuples(st.integers(-1, 2**70), st.integers(-1, 9), st.binary(max_size=60))),
    seed=st.integers(0, 2**32),
    at=st.integers(0),
    bit=st.integers(0, 7),
)
def test_no_wrap_whatever_harms_a_member(wraps: list[tuple[int, int, bytes]], seed: int, at: int, bit: int) -> None:
    """Nor does a true one with a bit turned, or one for another group."""
    hierarchy: Hierarchy[int] = Hierarchy(GROUP, Random(seed).randbytes)
    hierarchy.change(range(5))
    member = Member(hierarchy, 3)
    before = root(hierarchy)
    member.chain.take(wraps)
    after = hierarchy.change((), [4])
    turned = []
    for wrap in after:
        sealed = bytearray(wrap.sealed)
        sealed[at % len(sealed)] ^= 1 << bit
        turned.append(wrap._replace(sealed=bytes(sealed)))
    member.chain.take(turned)
    foreign: Hierarchy[int] = Hierarchy(b"group002", Random(seed).randbytes)
    foreign.change(range(5))
    member.chain.take(foreign.change((), [4]))
    assert member.chain.secret(before.id) == before.secret
    member.chain.take(after)
    member.chain.take(after)
    assert member.chain.secret(root(hierarchy).id) == root(hierarchy).secret
