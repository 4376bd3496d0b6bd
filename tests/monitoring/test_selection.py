"""Selection: near the optimum, never beyond a budget, and calm."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring.counts.features import Site, sites_of
from monitoring.decisions.store import Store
from monitoring.decisions.table import ALM, BUILD, DROP, KEEP, LEAVE, OFM, Judged, Table, decide
from monitoring.selection.knapsack import GAP, NODES, Items, _greedy, _orders, _prices, solve, worth
from monitoring.selection.network import CORE, Network, Room
from monitoring.selection.selection import Calm, Candidate, Held, select
from saps.ofm.controller.addresses import OfmAddress
from saps.ofm.flows.plan import Loopback, Ofm, plan
from saps.ofm.network.topology import BrokerAddress, Port, Topology
from saps.ofm.trees.tree import SharedTree

pytestmark = pytest.mark.slow


def instance(rng: random.Random, count: int) -> Items:
    """Zipf-like values; each item needs entries and buckets of one to four switches, and of the core."""
    needs = []
    for _ in range(count):
        switches = rng.sample(range(4), rng.randint(1, 4))
        need = [(2 * s + kind, rng.randint(1, 5)) for s in switches for kind in (0, 1)]
        core = [(8, len(switches)), (9, len(switches))] if len(switches) > 1 else []
        needs.append(tuple(need + core))
    room = rng.randint(6, 20)
    return Items([min(rng.paretovariate(1.2), 1e9) for _ in range(count)], needs, [room] * 10)


def optimum(items: Items) -> float:
    """By trying everything, but what cannot become the best any more."""
    order = sorted(range(len(items.values)), key=lambda index: -items.values[index])
    best = 0.0

    def descend(place: int, value: float, left: list[int]) -> None:
        nonlocal best
        best = max(best, value)
        if place == len(order) or value + sum(items.values[index] for index in order[place:]) <= best:
            return
        need = items.needs[order[place]]
        if all(left[resource] >= amount for resource, amount in need):
            less = list(left)
            for resource, amount in need:
                less[resource] -= amount
            descend(place + 1, value + items.values[order[place]], less)
        descend(place + 1, value, left)

    descend(0, 0.0, list(items.room))
    return best


def drawn(rng: random.Random, count: int, kind: str) -> Items:
    """A case of `count` topics, with room for a part of them. Values by Zipf's law, all about the same, or in
    proportion to the room needed."""
    needs = instance(rng, count).needs
    sizes = [sum(amount for _, amount in need) for need in needs]
    values = {
        "zipf": [rng.paretovariate(1.2) for _ in needs],
        "flat": [rng.uniform(9, 10) for _ in needs],
        "room": [size * rng.uniform(0.98, 1.02) for size in sizes],
    }[kind]
    return Items(values, needs, [rng.randint(count // 2, 2 * count)] * 10)


def test_small_cases_reach_the_optimum_and_its_bound_holds() -> None:
    rng = random.Random(7)
    for count in (4, 9, 14, 18):
        for _ in range(12):
            items, best = (one := instance(rng, count)), optimum(one)
            found = solve(items)
            assert worth(items, found.chosen) >= (1 - GAP) * best - 1e-9
            assert found.bound >= best * (1 - 1e-9)


@pytest.mark.simulation
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["zipf", "flat", "room"])
@pytest.mark.parametrize("cases", [3, pytest.param(100, marks=pytest.mark.soak)])
def test_60_to_300_topics_reach_995_permille_of_the_optimum(
    kind: str, cases: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each against a bound that no selection exceeds: HiGHS's own, of a longer search where it takes one."""
    rng = random.Random(kind)
    for _ in range(cases):
        items = drawn(rng, rng.randint(60, 300), kind)
        found = solve(items)
        assert fits(items, found.chosen)
        if found.gap(items) > 0.005:
            with monkeypatch.context() as patch:
                patch.setattr("monitoring.selection.knapsack.NODES", 10 * NODES)
                found = found._replace(bound=min(found.bound, solve(items).bound))
        assert found.gap(items) <= 0.005


def test_a_tree_is_built_by_what_is_certain_and_kept_by_what_is_expected() -> None:
    network = Network(Room(100, 100))
    doubtful = Candidate("t", 900.0, 100.0, {"c0": Room(1, 1)}, 90.0)
    sure = doubtful._replace(sure=110.0)
    calm = Calm(0.25, 0)
    assert select([doubtful], network, {}, 0, calm).chosen == set()
    assert select([sure], network, {}, 0, calm).chosen == {"t"}
    assert select([doubtful], network, {"t": Held(True, 0)}, 1, calm).chosen == {"t"}


def test_no_clock_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine's selection is that of an idle one."""
    from scipy import optimize

    asked: list[dict[str, float]] = []
    milp = optimize.milp

    def watched(*args: Any, **rest: Any) -> Any:
        asked.append(dict(rest["options"]))  # which it empties
        return milp(*args, **rest)

    monkeypatch.setattr(optimize, "milp", watched)
    items = drawn(random.Random(1), 80, "flat")
    assert solve(items) == solve(items)
    assert asked == 2 * [{"mip_rel_gap": GAP, "node_limit": NODES}]


@pytest.mark.parametrize("kind", ["zipf", "flat", "room"])
def test_beyond_what_highs_is_asked_the_gap_is_that_to_the_relaxation(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(11)
    for count in (80, 200):
        items = drawn(rng, count, kind)
        exact = solve(items)
        with monkeypatch.context() as patch:
            patch.setattr("monitoring.selection.knapsack.EXACT", 50)
            greedy = solve(items)
        assert fits(items, greedy.chosen)
        assert worth(items, greedy.chosen) <= exact.bound <= greedy.bound * (1 + 1e-9)
        assert 0 < greedy.gap(items) < 0.1


def test_without_scipy_the_gap_is_that_to_the_lagrangian_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(12)
    cases = [drawn(rng, 100, kind) for kind in ("zipf", "flat", "room")]
    exact = [solve(items) for items in cases]
    monkeypatch.setattr("monitoring.selection.knapsack.find_spec", lambda name: None)
    for items, best in zip(cases, exact, strict=True):
        greedy = solve(items)
        assert fits(items, greedy.chosen)
        assert worth(items, best.chosen) <= greedy.bound
        assert worth(items, greedy.chosen) >= 0.9 * worth(items, best.chosen)


def test_the_greedy_orders_alone_reach_95_percent_on_the_mean() -> None:
    """Large cases have only these."""
    rng, shares = random.Random(8), []
    for _ in range(40):
        items = instance(rng, 14)
        best = max(worth(items, _greedy(items, order)) for order in _orders(items, _prices(items)))
        shares.append(best / optimum(items))
    assert mean(shares) >= 0.95


def fits(items: Items, chosen: list[int]) -> bool:
    """Each at most once, and no resource used beyond its room."""
    used = [0] * len(items.room)
    for index in chosen:
        for resource, amount in items.needs[index]:
            used[resource] += amount
    return chosen == sorted(set(chosen)) and all(total <= room for total, room in zip(used, items.room, strict=True))


@given(st.randoms(use_true_random=False), st.integers(0, 60))
@settings(max_examples=30)
def test_no_budget_is_exceeded(rng: random.Random, count: int) -> None:
    items = instance(rng, count)
    assert fits(items, solve(items).chosen)


NEEDS = {"a": Room(2, 2)}
ONE = Network(Room(2, 2))


def candidate(topic: str, saving: float, cost: float = 0.0) -> Candidate:
    return Candidate(topic, saving, cost, NEEDS)


def test_what_is_there_stays_unless_another_is_worth_clearly_more() -> None:
    held = {"old": Held(True, 0)}
    near = select([candidate("old", 10), candidate("new", 14)], ONE, held, 10**9, Calm(0.25, 0))
    far = select([candidate("old", 10), candidate("new", 17)], ONE, held, 10**9, Calm(0.25, 0))
    assert (near.chosen, far.chosen) == ({"old"}, {"new"})


def test_what_was_built_of_late_stays_and_what_was_dropped_of_late_stays_out() -> None:
    held = {"old": Held(True, 900), "gone": Held(False, 900)}
    candidates = [candidate("old", 1), candidate("gone", 100), candidate("new", 50)]
    early = select(candidates, ONE, held, 1000, Calm(0.0, 500))
    late = select(candidates, ONE, held, 2000, Calm(0.0, 500))
    assert (early.chosen, early.locked, early.barred) == ({"old"}, {"old"}, {"gone"})
    assert late.chosen == {"gone"}


def test_a_tree_that_is_locked_gives_way_where_a_budget_has_shrunk() -> None:
    held = {"x": Held(True, 900), "y": Held(True, 900)}
    assert len(select([candidate("x", 5), candidate("y", 9)], ONE, held, 1000, Calm(0.0, 500)).chosen) == 1


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=30))
def test_the_order_of_the_candidates_does_not_matter(values: list[tuple[float, float]]) -> None:
    candidates = [candidate(str(number), *value) for number, value in enumerate(values)]
    network = Network(Room(20, 20))
    first = select(candidates, network, {}, 0)
    assert first == select(list(reversed(candidates)), network, {}, 0)
    assert all(candidates[int(topic)].saving > candidates[int(topic)].cost for topic in first.chosen)


# ---- the needs of a tree, as `saps.ofm.flows.plan` makes them


def test_a_tree_needs_an_entry_for_each_link_and_broker_and_a_bucket_for_each_that_receives() -> None:
    needs = Network().needs([Site("a", 3, 1), Site("b", 2, 0)])
    assert needs == {"a": Room(5, 4), "b": Room(3, 3), CORE: Room(2, 2)}
    assert Network().needs([Site("a", 3, 1)]) == {"a": Room(4, 3)}
    shared = Network(switches={"a": "west", "b": "west"})
    assert shared.needs([Site("a", 3, 1), Site("b", 2, 0)]) == {"west": Room(6, 5)}


def needs_by_plan(sites: list[Site]) -> dict[str, Room]:
    """What the tables hold that are planned for these brokers in a star of switches."""
    topology = Topology()
    members: list[BrokerAddress] = []
    silent: list[BrokerAddress] = []
    topology.switch_up(99, range(1, len(sites) + 1))
    for number, site in enumerate(sites, start=1):
        topology.switch_up(number, range(1, 50))
        topology.link_up(Port(number, 1), Port(99, number))
        for broker in range(site.members + site.senders):
            element = BrokerAddress(f"10.0.{number}.{broker + 1}", f"02:00:00:00:{number:02x}:{broker:02x}", 7000)
            topology.attach(element, number, broker + 2)
            (members if broker < site.members else silent).append(element)
    ofm = Ofm(OfmAddress("239.77.0.1", 5000), 1, Loopback("10.0.255.254", "02:00:00:00:ff:ff"))
    made = plan(ofm, SharedTree().plan(topology, [*members, *silent]), silent)
    names = {99: CORE, **{number: site.cluster for number, site in enumerate(sites, start=1)}}
    return {names[dpid]: Room(tables.entries, tables.buckets) for dpid, tables in made.tables.items()}


def test_the_needs_are_those_of_the_plans() -> None:
    for sites in ([Site("a", 3, 1), Site("b", 2, 0)], [Site("a", 1, 0), Site("b", 1, 2), Site("c", 4, 0)]):
        assert Network().needs(sites) == needs_by_plan(sites)


# ---- the table


def judged(topic: str, saving: float, cost: float = 1.0, sites: str = "a:2:0|b:1:1") -> Judged:
    return Judged(topic, saving, cost, saving, saving / 100, sites)


def decided(table: Table) -> dict[str, tuple[str, str]]:
    return {decision.topic: (decision.mode, decision.action) for decision in table.decisions}


def test_a_topic_is_built_kept_dropped_and_explained() -> None:
    calm = Calm(0.0, 0)
    first = decide([judged("t", 900), judged("dull", 0.5)], {}, Network(), 1000, calm)
    assert decided(first) == {"t": (OFM, BUILD)}
    held = first.held({}, calm)
    second = decide([judged("t", 900)], held, Network(), 2000, calm)
    assert decided(second) == {"t": (OFM, KEEP)}
    assert second.decisions[0].since == 1000
    third = decide([], second.held(held, calm), Network(), 3000, calm)
    assert decided(third) == {"t": (ALM, DROP)}
    assert third.decisions[0].reason == "no traffic any more"
    assert "3 brokers in 2 clusters want them: a tree saves 900 B/s and costs 1 B/s" in first.decisions[0].reason


def test_who_finds_no_room_is_told_where() -> None:
    network = Network(budgets={"b": Room(2, 2)})
    assert network.needs(sites_of("a:2:0|b:1:1"))["b"] == Room(3, 2)
    table = decide([judged("t", 900)], {}, network, 1000)
    assert decided(table) == {"t": (ALM, LEAVE)}
    assert table.decisions[0].reason.endswith("no room on the switch of b")


def test_the_same_table_has_the_same_digest_and_another_has_another() -> None:
    tables = [decide([judged("t", saving)], {}, Network(), 1000) for saving in (900, 900, 901)]
    assert tables[0].digest == tables[1].digest != tables[2].digest


def test_the_table_says_how_far_its_selection_is_from_the_best_at_most(tmp_path: Path) -> None:
    rng = random.Random(5)
    rows = [judged(f"t{n}", rng.uniform(900, 1000), sites=f"a:{rng.randint(1, 6)}:0|b:2:1") for n in range(90)]
    table = decide(rows, {}, Network(Room(60, 60)), 1000)
    assert 0 <= table.gap <= 0.005
    store = Store(tmp_path)
    store.keep(table._replace(gap=0.0123))
    assert store.table(1000) == table._replace(gap=0.0123)


def test_a_tree_must_save_more_than_the_least_beyond_its_cost() -> None:
    """Whatever a topic's rate: a quiet one with large messages may have a tree, a busy one of small ones not."""
    known = [candidate("much", 1500), candidate("little", 900)]
    assert select(known, ONE, {}, 10**9, Calm(0.0, 0)).chosen == {"much"}
    calm = Calm(0.0, 0, least=1000.0)
    assert select([candidate("little", 900)], ONE, {}, 10**9, Calm(0.0, 0)).chosen == {"little"}
    assert select([candidate("little", 900)], ONE, {}, 10**9, calm).chosen == set()
    assert select(known, ONE, {"little": Held(True, 0)}, 10**9, calm).chosen == {"much"}
