"""The small decider: from rows to decisions; windows, late and repeated rows, clocks that differ."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy")

from monitoring.counts.features import Site, sites_of, windows
from monitoring.counts.synthetic import MONDAY, City, city, rows, traffic
from monitoring.counts.synthetic import windows as true_windows
from monitoring.decisions.decider import Clock, Decider
from monitoring.settings import Rules
from saps.statistics import Row

LENGTH = Rules().pace.window


@pytest.fixture(scope="module")
def place() -> City:
    return city(topics=40, clusters=4, brokers=2, seed=3)


def test_rows_of_all_brokers_make_the_windows_that_happened(place: City) -> None:
    for number in (0, 100, 230):
        seen = traffic(place, number)
        assert windows(rows(place, seen), LENGTH) == sorted(true_windows(place, seen), key=lambda w: (w.start, w.topic))


@given(st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_order_and_repetition_of_rows_change_nothing(rng: random.Random) -> None:
    seen = list(
        rows(city(topics=12, clusters=3, brokers=2, seed=4), traffic(city(topics=12, seed=4, clusters=3, brokers=2), 8))
    )
    mixed = seen + rng.sample(seen, len(seen) // 2)
    rng.shuffle(mixed)
    assert windows(mixed, LENGTH) == windows(seen, LENGTH)


def test_sites_are_read_as_they_were_written(place: City) -> None:
    window = true_windows(place, traffic(place, 0))[0]
    sites = sites_of(window.sites)
    assert sum(site.members for site in sites) == window.members
    assert sites_of("c1:2:0|c2:0:1") == [Site("c1", 2, 0), Site("c2", 0, 1)]
    assert sites_of("") == []


def row(topic: str, start: int, messages: int, broker: str, cluster: str, subscribers: int = 0) -> Row:
    counts = [0] * 13
    return Row(broker, 1, cluster, start, LENGTH / 1000, topic, messages, messages * 200, 0 if messages else 9, 0,
               1, subscribers, 3 if messages else 0, 0, messages * 3, 0, 0, 0, 0, counts)  # fmt: skip


def busy(topic: str, start: int, messages: int) -> list[Row]:
    """A publisher in a, subscribers in b, c and d."""
    members = [row(topic, start, 0, f"{c}1", c, 1) for c in "bcd"]
    return [row(topic, start, messages, "a1", "a"), *members]


def test_copies_that_nobody_is_known_to_want_are_no_waste() -> None:
    """They were sent at the end of the window and received in the next one."""
    (alone,) = windows([row("a/b", MONDAY, 5, "a1", "a")], LENGTH)
    assert (alone.messages, alone.far, alone.copies) == (5, 0, 0)
    (wanted,) = windows(busy("a/b", MONDAY, 5), LENGTH)
    assert (wanted.far, wanted.copies) == (15, 15)


def run(decider: Decider, number: int, topics: dict[str, int]) -> dict[str, str]:
    """One window more; what was decided."""
    start = MONDAY + number * LENGTH
    decider.feed([r for topic, messages in topics.items() for r in busy(topic, start, messages)])
    table = decider.decide()
    return {} if table is None else {d.topic: d.action for d in table.decisions}


def test_a_topic_that_becomes_busy_gets_a_tree_within_two_intervals_and_loses_it_when_it_ends() -> None:
    decider = Decider(Rules(lateness=0))
    seen = [run(decider, number, {"base": 1000, "rush": 6000 if 3 <= number < 9 else 0}) for number in range(20)]
    built = next(number for number, actions in enumerate(seen) if actions.get("rush") == "build")
    assert 3 <= built <= 5
    assert all(actions.get("rush") == "keep" for actions in seen[built + 1 : 9])
    dropped = [number for number, actions in enumerate(seen) if actions.get("rush") == "drop"]
    assert len(dropped) == 1
    assert dropped[0] >= 9
    assert [actions.get("base") for actions in seen].count("build") == 1


def test_rows_of_closed_windows_are_late_and_change_nothing() -> None:
    decider = Decider(Rules(lateness=0))
    for number in range(3):
        run(decider, number, {"t": 1000})
    before = {topic: model.messages for topic, model in decider.models.items()}
    assert decider.feed(busy("t", MONDAY, 5000)).late == 4
    assert decider.decide() is None
    assert {topic: model.messages for topic, model in decider.models.items()} == before


def test_rows_that_are_late_but_not_too_late_count() -> None:
    decider = Decider(Rules(lateness=LENGTH))
    run(decider, 0, {"t": 1000})
    run(decider, 1, {"u": 1000})
    decider.feed(busy("t", MONDAY + LENGTH, 500))
    run(decider, 2, {"u": 1000})
    run(decider, 3, {"u": 1000})
    assert decider.models["t"].last == MONDAY + 2 * LENGTH


NOW = MONDAY + 10 * LENGTH
DAY = 86_400_000


def test_a_broker_ahead_of_the_others_closes_nothing_and_is_named() -> None:
    rules, clock = Rules(), Clock()
    ends = {f"b{number}": NOW + number * 1000 for number in range(5)}
    assert clock.seen(ends.items(), rules, NOW + DAY) == ({}, {})
    closed = clock.closed
    assert closed == (NOW + 2000 - rules.lateness) // LENGTH * LENGTH
    skew = clock.seen({**ends, "mad": NOW + DAY}.items(), rules, NOW + DAY + 1)
    assert skew == ({}, {"mad": DAY - 2000})
    assert clock.closed == closed


def test_a_fast_clock_alone_in_a_batch_is_not_its_own_median() -> None:
    rules, clock = Rules(), Clock()
    clock.seen([(f"b{number}", NOW) for number in range(3)], rules, NOW)
    closed = clock.closed
    for later in range(1, 20):  # long after the others were heard of
        skew = clock.seen([("mad", NOW + DAY + later * 60_000)], rules, NOW + later * 60_000)
        assert skew == ({"mad": DAY}, {})
        assert clock.closed == closed
    past = Clock()  # what happened long ago is replayed: this machine's clock bounds nothing
    past.seen([(f"b{number}", NOW) for number in range(3)], rules, NOW + 90 * DAY)
    assert past.seen([("mad", NOW + DAY)], rules, NOW + 90 * DAY + 1) == ({}, {"mad": DAY})
    assert past.closed == closed


def test_windows_close_no_earlier_than_this_machines_clock_says() -> None:
    rules = Rules()
    for ahead in (0, rules.lateness, rules.lateness + 1, DAY):
        clock = Clock()
        refused = clock.seen([("b", NOW + ahead)], rules, NOW).refused
        assert clock.closed <= NOW
        assert bool(refused) == (ahead > rules.lateness)


def test_who_has_not_been_heard_of_for_a_while_holds_nobody_back() -> None:
    rules, clock = Rules(), Clock()
    clock.seen([("dead", NOW), ("b", NOW)], rules, NOW)
    for minute in range(30):
        clock.seen([("b", NOW + minute * 60_000)], rules, NOW + minute * 60_000)
    assert list(clock.heard) == ["b"]
    assert clock.closed == (NOW + 29 * 60_000 - rules.lateness) // LENGTH * LENGTH


def test_rows_of_a_fast_clock_are_refused_and_the_brokers_others_count() -> None:
    decider = Decider(Rules())
    sane, mad = busy("t", NOW, 10), busy("t", NOW + DAY, 10)
    found = decider.feed(sane + mad, NOW + LENGTH)
    assert found.skew.refused == dict.fromkeys(("a1", "b1", "c1", "d1"), DAY)
    assert sorted({at for _, _, at, _ in decider.waiting}) == [NOW]


@given(
    st.lists(
        st.tuples(st.dictionaries(st.sampled_from("abcde"), st.integers(0, 10**7)), st.integers(0, 10**7)), max_size=20
    )
)
def test_the_clock_never_goes_back_and_never_beyond_this_machines(steps: list[tuple[dict[str, int], int]]) -> None:
    clock, before, latest = Clock(), 0, 0
    for ends, now in steps:
        clock.seen(ends.items(), Rules(), now)
        latest = max(latest, now)
        assert before <= clock.closed <= latest
        before = clock.closed
