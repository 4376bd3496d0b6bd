"""Sealed datagrams: opened once by who has the key, refused in every other case; no nonce comes twice."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from saps.ofm.keys.epochs import Keyring, Opened
from saps.ofm.keys.hierarchy import Hierarchy
from saps.ofm.keys.sealing import HEADER, OVERHEAD, Epoch, Refusal, first_count
from saps.ofm.keys.window import SIZE, Window
from saps.overlay.frames.delivery import GroupKeys
from saps.overlay.ring.keys import BrokerRef

TOPIC = "a/b"


def ref(name: str, incarnation: int = 7) -> BrokerRef:
    return BrokerRef(name, incarnation, f"{name}:1", "c")


class Group:
    """A key server without network: what it says is taken at once."""

    def __init__(self, seed: int = 1, topic: str = TOPIC, name: bytes = b"group001") -> None:
        self.topic, self.name = topic, name
        self.hierarchy: Hierarchy[BrokerRef] = Hierarchy(name, Random(seed).randbytes)
        self.rings: dict[BrokerRef, Keyring] = {}

    def change(self, joined: list[BrokerRef], gone: list[BrokerRef], now: float = 0.0, overlap: float = 6.0) -> None:
        wraps = self.hierarchy.change(joined, gone)
        root = self.hierarchy.root
        assert root is not None
        for member in sorted(self.hierarchy.members, key=lambda ref: ref.name):
            ring = self.rings.setdefault(member, Keyring(member))
            keys = GroupKeys(self.topic, self.name, root.id, [*wraps], overlap)
            assert ring.take(self.welcome(member, overlap) if member in joined else keys, now)

    def welcome(self, member: BrokerRef, overlap: float = 6.0) -> GroupKeys:
        """What the server tells a new member."""
        root = self.hierarchy.root
        assert root is not None
        path, leaf = self.hierarchy.path(member), self.hierarchy.leaf(member)
        return GroupKeys(self.topic, self.name, root.id, [*path], overlap, leaf)

    @property
    def end(self) -> GroupKeys:
        """What the server tells its former members."""
        return GroupKeys(self.topic, self.name, 0, [], 6.0)


def pair() -> tuple[Keyring, Keyring]:
    group = Group()
    group.change([ref("a"), ref("b")], [])
    return group.rings[ref("a")], group.rings[ref("b")]


def sealed(ring: Keyring, plain: bytes = b"hello", now: float = 0.0) -> bytes:
    raw = ring.seal(TOPIC, plain, now)
    assert raw is not None
    return raw


@given(plain=st.binary(max_size=1500), count=st.integers(1, 5))
def test_what_is_sealed_is_opened_once_by_each_member(plain: bytes, count: int) -> None:
    a, b = pair()
    for _ in range(count):
        raw = sealed(a, plain)
        assert len(raw) == len(plain) + OVERHEAD
        for ring in (a, b):
            opened = ring.open(raw, 0.0)
            assert isinstance(opened, Opened)
            assert opened.plain == plain
            assert ring.open(raw, 0.0) is Refusal.REPLAY


@given(plain=st.binary(max_size=200), at=st.integers(0), bit=st.integers(0, 7), cut=st.integers(0))
def test_a_turned_bit_or_a_cut_is_refused_and_the_true_one_still_opened(
    plain: bytes, at: int, bit: int, cut: int
) -> None:
    a, b = pair()
    raw = sealed(a, plain)
    turned = bytearray(raw)
    turned[at % len(raw)] ^= 1 << bit
    assert isinstance(b.open(bytes(turned), 0.0), Refusal)
    assert isinstance(b.open(raw[: cut % len(raw)], 0.0), Refusal)
    assert isinstance(b.open(raw + b"\0", 0.0), Refusal)
    assert isinstance(b.open(raw, 0.0), Opened)


@given(raw=st.binary(max_size=80), count=st.integers(0, 2**64 - 1), sender=st.integers(0, 2**32 - 1))
def test_a_forger_who_knows_the_header_opens_nothing_and_is_not_remembered(raw: bytes, count: int, sender: int) -> None:
    a, b = pair()
    label = sealed(a)[1:9]
    forged = HEADER.pack(0xA2, label, sender, count) + raw
    assert b.open(forged, 0.0) in (Refusal.FORGED, Refusal.FORM)
    assert isinstance(b.open(sealed(a), 0.0), Opened)


def test_an_outsider_and_one_who_has_left_read_and_write_nothing() -> None:
    group = Group()
    a, b, c = ref("a"), ref("b"), ref("c")
    group.change([a, b, c], [])
    left = group.rings.pop(c)
    group.change([], [c])
    other = Group(2)
    other.change([c, ref("d")], [])
    group.rings[a].use(TOPIC, sealed(group.rings[b], now=3.0)[1:9])
    for stranger in (left, other.rings[c]):
        assert stranger.open(sealed(group.rings[a]), 0.0) is Refusal.KEY
    assert group.rings[a].open(sealed(other.rings[c]), 0.0) is Refusal.KEY
    # What it wrote with the old key counts for as long as others may still use that, and no longer.
    late, later = sealed(left), sealed(left)
    assert isinstance(group.rings[a].open(late, 5.9), Opened)
    assert group.rings[a].open(later, 6.0) is Refusal.KEY


@given(
    lives=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6), st.booleans()), min_size=2, max_size=8),
    seed=st.integers(0, 2**32),
)
def test_no_nonce_is_used_twice_under_a_key_over_restarts(lives: list[tuple[int, int, bool]], seed: int) -> None:
    """Each life of a broker seals some datagrams and ends; the next one gets keys anew, or, were the server mistaken,
    just the ones of the life before. Header = key, sender and count: the same header twice is the same nonce twice."""
    group, used = Group(seed), set()
    group.change([ref("z")], [])
    now, former = 0, None
    for pause, count, mistaken in lives:
        now += pause
        life = ref("a", 1_763_700_000_000 + now)
        if mistaken and former is not None:
            root, leaf = group.hierarchy.root, group.hierarchy.leaf(former)
            assert root is not None
            ring = Keyring(life)
            ring.take(GroupKeys(TOPIC, group.name, root.id, [*group.hierarchy.path(former)], 6.0, leaf), 0.0)
        else:
            group.change([life], [former] if former is not None else [])
            ring, former = group.rings[life], life
        for _ in range(count):
            header = sealed(ring)[: HEADER.size]
            assert header not in used
            used.add(header)


def test_a_life_counts_from_where_no_earlier_one_can_have_come() -> None:
    millisecond = first_count(1_763_700_000_001) - first_count(1_763_700_000_000)
    assert millisecond == 1 << 22  # more than a network interface sends
    assert first_count(2**42 - 1) + 2**22 == 2**64  # until the year 2109


@given(numbers=st.lists(st.integers(1, 3 * SIZE), max_size=60))
def test_the_window_takes_each_number_once_and_refuses_none_that_is_near(numbers: list[int]) -> None:
    window, seen = Window(), set[int]()
    assert not window.fresh(0)
    for number in numbers:
        top = max(seen, default=0)
        fresh = window.fresh(number)
        assert not (fresh and number in seen)
        assert fresh or number in seen or top - number >= SIZE
        if fresh:
            window.note(number)
            seen.add(number)


def test_a_sender_goes_on_with_the_old_key_until_it_is_told_or_half_of_the_overlap_is_over() -> None:
    group = Group()
    a, b, c = ref("a"), ref("b"), ref("c")
    group.change([a, b], [])
    old = sealed(group.rings[a])[1:9]
    group.change([c], [], now=10.0)
    new = group.rings[c].seal(TOPIC, b"", 10.0)
    assert new is not None
    assert sealed(group.rings[a], now=10.0)[1:9] == old
    assert sealed(group.rings[b], now=12.9)[1:9] == old
    group.rings[a].use(TOPIC, b"no label")
    group.rings[a].use("other", new[1:9])
    assert sealed(group.rings[a], now=10.0)[1:9] == old
    group.rings[a].use(TOPIC, new[1:9])
    assert sealed(group.rings[a], now=10.0)[1:9] == new[1:9] != old
    assert sealed(group.rings[b], now=13.0)[1:9] == new[1:9]


@given(
    steps=st.lists(st.sampled_from(["join", "leave", "renew", "send", "wait", "told"]), max_size=40),
    seed=st.integers(0, 2**32),
)
def test_members_read_each_other_whatever_changes(steps: list[str], seed: int) -> None:
    rng, group = Random(seed), Group(seed)
    members = [ref("m0"), ref("m1")]
    group.change(members, [])
    now, number = 0.0, 2
    for step in steps:
        if step == "join":
            members.append(ref(f"m{number}"))
            number += 1
            group.change([members[-1]], [], now)
        elif step == "leave" and len(members) > 2:
            gone = members.pop(rng.randrange(len(members)))
            group.change([], [gone], now)
            del group.rings[gone]
        elif step == "renew":
            group.change([], [], now)
        elif step == "wait":
            now += rng.choice([0.1, 2.0, 3.5])
        elif step == "told":
            for member in members:
                group.rings[member].use(TOPIC, sealed(group.rings[members[-1]], now=now)[1:9])
        holders = [m for m in members if group.rings[m].seal(TOPIC, b"", now)]
        assert holders == members
        # Those who were there when the key was given can read; a newcomer those that were told of it since.
        sender = rng.choice(members)
        raw = sealed(group.rings[sender], b"x", now)
        readers = [m for m in members if isinstance(group.rings[m].open(raw, now), Opened)]
        assert set(readers) >= {m for m in members if int(m.name[1:]) <= int(sender.name[1:])}


def test_keys_come_in_any_order_twice_and_from_several_servers() -> None:
    first, second = Group(1), Group(2, name=b"group002")
    a, b = ref("a"), ref("b")
    first.change([a, b], [])
    ring = first.rings[a]
    second.rings[a] = ring
    second.change([a, b], [], now=1.0)
    ring.use(TOPIC, sealed(second.rings[b], now=1.0)[1:9])
    assert isinstance(ring.open(sealed(first.rings[b], now=1.0), 1.0), Opened)
    assert isinstance(second.rings[b].open(sealed(ring, now=1.0), 1.0), Opened)
    root = first.hierarchy.root
    assert root is not None
    again = GroupKeys(TOPIC, first.name, root.id, [], 6.0)
    assert ring.take(again, 2.0)  # held already
    assert not ring.take(GroupKeys(TOPIC, first.name, root.id + 1, [], 6.0), 2.0)
    assert not ring.take(GroupKeys(TOPIC, b"unknown", 1, [], 6.0), 2.0)
    assert not ring.take(GroupKeys("unknown", first.name, root.id, [], 6.0), 2.0)
    assert ring._topics.keys() == {TOPIC}


def successive() -> tuple[Group, Group, Keyring, Keyring]:
    """Two groups of the topic one after the other, and the keyrings of both members."""
    first, second = Group(1), Group(2, name=b"group002")
    a, b = ref("a"), ref("b")
    first.change([a, b], [])
    second.rings = first.rings
    second.change([a, b], [], now=10.0)
    return first, second, first.rings[a], first.rings[b]


def test_the_end_of_a_former_group_ends_its_keys_alone() -> None:
    """Although the news of it comes after the next group's keys."""
    first, _, a, b = successive()
    old = sealed(a, now=10.0)
    assert b.take(first.end, 10.1)
    assert isinstance(b.open(old, 10.2), Opened)
    for now in (12.0, 16.5, 100.0):
        assert isinstance(b.open(sealed(a, now=now), now), Opened)
    assert b.open(sealed(a, now=10.0), 16.1) is Refusal.KEY


def test_with_the_latest_group_all_keys_of_the_topic_end() -> None:
    """The server of the former group is another one, and tells nothing any more."""
    _, second, a, _ = successive()
    assert a.take(second.end, 20.0)
    assert a.seal(TOPIC, b"", 20.0) is None
    assert a._topics == {}
    assert a._labels == {}


@given(
    steps=st.lists(st.tuples(st.sampled_from(["welcome", "end", "change", "send"]), st.integers(0, 1)), max_size=40),
    seed=st.integers(0, 2**32),
)
@example(steps=[("welcome", 0), ("send", 0), ("end", 0), ("welcome", 0), ("send", 0)], seed=1)
@example(steps=[("welcome", 0), ("send", 0), ("welcome", 1), ("end", 0), ("welcome", 0), *[("send", 1)] * 3], seed=1)
def test_no_nonce_is_used_twice_under_a_key_that_comes_again(steps: list[tuple[str, int]], seed: int) -> None:
    """Each of two groups ends for the broker and begins again, with the same secret or another one. The counts go no
    further than the datagrams sent."""
    me, now, used = ref("a"), 0.0, set[bytes]()
    groups = [Group(seed + number, name=b"group00%d" % number) for number in range(2)]
    for group in groups:
        group.hierarchy.change([me, ref("b")])
    ring = Keyring(me)
    for step, number in steps:
        group = groups[number]
        if step == "change":
            group.hierarchy.change()
        elif step == "send":
            raw, now = ring.seal(TOPIC, b"x", now), now + 2.0 * number
            if raw is not None:
                assert raw[: HEADER.size] not in used
                used.add(raw[: HEADER.size])
                assert HEADER.unpack_from(raw)[3] <= first_count(me.incarnation) + len(used)
        else:
            ring.take(group.welcome(me) if step == "welcome" else group.end, now)
        assert len(ring._labels) == sum(len(topic.epochs) for topic in ring._topics.values())


def test_who_is_told_that_there_are_no_keys_forgets_them() -> None:
    a, b = pair()
    raw = sealed(b)
    assert a.take(GroupKeys(TOPIC, b"group001", 0, [], 6.0), 0.0)
    assert a.seal(TOPIC, b"", 0.0) is None
    assert a.open(raw, 0.0) is Refusal.KEY
    assert a._topics == {}
    assert a._labels == {}


def test_many_changes_leave_no_more_than_a_few_keys() -> None:
    group = Group()
    group.change([ref("a"), ref("b")], [])
    for _ in range(50):
        group.change([], [])
    ring = group.rings[ref("a")]
    assert len(ring._labels) == len(ring._topics[TOPIC].epochs) <= 8
    assert len(ring._topics[TOPIC].chains[b"group001"]._secrets) == 2


@pytest.mark.parametrize("leaf", [(1, b""), (-1, bytes(32)), (1 << 40, bytes(32))])
def test_keys_that_make_no_sense_are_not_taken(leaf: tuple[int, bytes]) -> None:
    ring = Keyring(ref("a"))
    assert not ring.take(GroupKeys(TOPIC, b"group001", leaf[0], [], 6.0, leaf), 0.0)
    assert ring.seal(TOPIC, b"", 0.0) is None


def test_one_broker_does_not_speak_for_two() -> None:
    epoch = Epoch(TOPIC, b"group001", bytes(32), 1, 7)
    assert epoch.speaks_for(5, ("a", 1))
    assert epoch.speaks_for(5, ("a", 1))
    assert not epoch.speaks_for(5, ("b", 1))
    assert not epoch.speaks_for(5, ("a", 2))
