"""Bans: tables that hear of the same changes are equal, addresses and networks, CONNECT, and the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.codec.packets import V311, Connack, Connect
from saps.frontend.mqtt.codec.reasons import Reason
from saps.operations.bans import FUTURE, MOST, REMEMBERED, Ban, BanList, Bans, BansAgent, named
from saps.operations.bans_io import BanFileError, read_bans, write_bans
from tests.frontend.mqtt.bench import Bench, Client

NOW = 1000.0


def ban(kind: str, name: str, at: float = NOW, **more: object) -> Ban:
    return Ban(kind=kind, name=name, at=at, **{"broker": "b1", **more})  # type: ignore[arg-type]


class Clock:
    """A wall clock set by hand."""

    now = NOW

    def __call__(self) -> float:
        return self.now


changes = st.lists(
    st.builds(
        lambda name, at, lifted, until, broker: ban("user", name, at, lifted=lifted, until=until, broker=broker),
        st.sampled_from("abc"),
        st.integers(990, 1000).map(float),
        st.booleans(),
        st.sampled_from([None, 2000.0]),
        st.sampled_from(["b1", "b2"]),
    ),
    max_size=12,
)


@given(changes=changes, order=st.randoms(use_true_random=False))
def test_tables_that_heard_the_same_are_equal_in_whatever_order(changes: list[Ban], order: object) -> None:
    one, other = Bans(Clock()), Bans(Clock())
    unique = {(each.key, each.at, each.broker, each.lifted): each for each in changes}
    for each in unique.values():
        one.put(each)
    shuffled = [*unique.values(), *unique.values()]
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    for each in shuffled:
        other.put(each)
    assert one.all() == other.all()
    assert one.digest == other.digest
    third = Bans(Clock())
    agent = BansAgent("b3", third, lambda taken: 0)
    theirs = one.all()
    agent.take(theirs)
    assert agent.newer(theirs) == []
    assert third.digest == one.digest


@pytest.mark.parametrize(
    ("given_", "kept", "inside", "outside"),
    [
        ("192.0.2.7/24", "192.0.2.0/24", "192.0.2.200", "192.0.3.1"),
        ("192.0.2.7", "192.0.2.7", "::ffff:192.0.2.7", "192.0.2.8"),
        ("2001:DB8::/32", "2001:db8::/32", "2001:db8:1::5", "2001:db9::1"),
        ("0.0.0.0/0", "0.0.0.0/0", "10.1.1.1", "::1"),
    ],
)
def test_addresses_and_networks(given_: str, kept: str, inside: str, outside: str) -> None:
    bans = Bans(Clock())
    assert named("address", given_) == kept
    assert bans.put(ban("address", kept))
    assert bans.banned("c", None, inside) is not None
    assert bans.banned("c", None, outside) is None
    assert bans.banned("c", None, "?") is None
    if given_ != kept:
        with pytest.raises(ValueError, match="shortest form"):
            bans.put(ban("address", given_))


def test_a_ban_ends_by_itself_or_is_lifted_and_a_lifted_one_does_not_come_back() -> None:
    clock = Clock()
    bans = Bans(clock)
    bans.put(ban("client", "c", until=NOW + 10))
    bans.put(ban("user", "u"))
    assert not bans.put(ban("user", "u", NOW - 1, reason="older"))
    assert [each.name for each in bans.live()] == ["c", "u"]
    clock.now += 11
    assert bans.banned("c", None, "") is None
    assert bans.put(ban("user", "u", clock.now, lifted=True))
    assert not bans.put(ban("user", "u"))
    assert (bans.live(), len(bans)) == ([], 2)
    bans.forget()
    assert len(bans) == 1
    clock.now += REMEMBERED + 1
    bans.forget()
    assert len(bans) == 0
    with pytest.raises(ValueError, match="clock of b1 is ahead"):
        bans.put(ban("user", "u", clock.now + FUTURE + 1))


def test_there_is_an_end_to_bans() -> None:
    clock = Clock()
    bans = Bans(clock)
    bans._all = {("client", str(number)): ban("client", str(number), until=NOW + 1) for number in range(MOST)}
    with pytest.raises(ValueError, match="10,000 bans"):
        bans.put(ban("client", "one more"))
    clock.now += 2
    assert bans.put(ban("client", "one more"))
    assert len(bans) == 1


class Doorkeeper:
    """A `Bouncer` that asks a table."""

    def __init__(self, bans: Bans) -> None:
        self._bans = bans

    def banned(self, client: str, user: str | None, address: str) -> str | None:
        found = self._bans.banned(client, user, address)
        return None if found is None else found.words()


def test_who_is_banned_is_not_let_in() -> None:
    bench = Bench()
    bans = Bans(Clock())
    bench.frontend.orders.bouncer = Doorkeeper(bans)
    bench.client("c")
    bans.put(ban("client", "c", reason="floods"))
    assert Client(bench).connect("c").reason == Reason.BANNED
    assert Client(bench).connect("d").reason == Reason.SUCCESS
    old = Client(bench, V311)
    old.send(Connect("c", V311))
    assert old.expect(Connack).reason == 5
    assert old.closed
    assert "c" in bench.sessions  # its session stays


def test_the_file_keeps_them_and_a_damaged_one_is_told(tmp_path: Path) -> None:
    path = tmp_path / "bans"
    assert read_bans(path) == []
    kept = [ban("client", "c", until=5.5), ban("user", "u", lifted=True)]
    write_bans(path, BanList(at=NOW, bans=kept))
    assert read_bans(path) == kept
    path.write_text('{"at": 1, "bans": [{"kind": "host"}]}')
    with pytest.raises(BanFileError, match=r"bans: .*host"):
        read_bans(path)
