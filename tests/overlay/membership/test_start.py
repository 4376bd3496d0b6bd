"""Brokers that start agree on one mesh, in whatever order and after whatever delays
(`saps.overlay.membership.start`)."""

from __future__ import annotations

import random

import pytest

from saps.overlay.membership.start import Stage
from tests.drawn import seeds
from tests.overlay.starts import Process, Site

pytestmark = pytest.mark.simulation

WITHIN = 15.0
"""Seconds from the last start until all are one mesh."""


def everyone_else(names: list[str], name: str) -> dict[str, str]:
    return {f"{other}:1": "" for other in names if other != name}


def one_mesh(site: Site, within: float = WITHIN) -> float:
    """Run until all that live are one mesh; the seconds that took."""
    began = site.now
    site.run_until(site.whole, within)
    return site.now - began


def beginners(site: Site) -> int:
    """Brokers that have begun a mesh."""
    return sum(p.broker is not None and p.broker.node.graph.contact is None for p in site.processes.values())


def test_alone_without_addresses_it_begins_at_once() -> None:
    site = Site(1)
    alone = site.process("b1", {})
    site.run(0.001)
    assert alone.joined


def test_the_smallest_begins_when_all_are_there() -> None:
    site = Site(1)
    names = ["b3", "b1", "b2"]
    for name in names:
        site.process(name, everyone_else(names, name))
    assert one_mesh(site) < 1.0
    assert beginners(site) == 1
    begun = site.processes["b1"].broker
    assert begun is not None
    assert begun.node.graph.contact is None


def test_those_that_are_missing_are_waited_for_once() -> None:
    """A smaller name that comes late does not wait anew."""
    site = Site(1)
    names = ["b1", "b2", "b3", "b4"]
    for name in ("b3", "b2"):
        site.process(name, everyone_else(names, name))
    site.run(4.5)
    assert not any(process.joined for process in site.processes.values())
    site.process("b1", everyone_else(names, "b1"))
    assert one_mesh(site) < 1.5
    assert beginners(site) == 1


@seeds(30)
def test_all_killed_at_once_and_started_in_any_order_are_one_mesh(seed: int) -> None:
    """Any subset, with delays of up to two minutes, slow stores, and files that name all others, some, or nobody. Some
    crash again while they start."""
    rng = random.Random(seed)
    site = Site(seed)
    names = [f"b{n}" for n in range(rng.randrange(2, 7))]
    first = names[0]
    complete = rng.random() < 0.5
    for life in range(2):
        places = {name: everyone_else(names, name) for name in names}
        if not complete:  # the others name the first one, or some of them all; it names nobody
            places = {name: {f"{first}:1": ""} if rng.random() < 0.5 else places[name] for name in names}
            places[first] = {}
        broadcast = rng.choice([0.0, 0.3, 3.0, 20.0, 120.0])
        chosen = names if life == 0 or rng.random() < 0.5 else rng.sample(names, rng.randrange(1, len(names) + 1))
        if not complete and first not in chosen:
            chosen = [*chosen, first]  # without it nobody knows of anybody
        last = site.now
        for name in chosen:
            when = site.now + rng.uniform(0, broadcast)
            last = max(last, when)
            loading = rng.choice([0.0, 0.0, 0.5, 3.0])
            site.at(when, lambda n=name, p=places[name], d=loading: site.process(n, p, d))  # type: ignore[misc, arg-type]
            if rng.random() < 0.2:
                again = when + rng.uniform(0, 6)
                last = max(last, again)
                site.at(again, lambda n=name, p=places[name], d=loading: restart(site, n, p, d))  # type: ignore[misc]
        site.run(last - site.now + 0.001)
        one_mesh(site)
        site.run(rng.uniform(0, 10))
        for process in site.processes.values():
            if process.alive:
                process.kill()
        site.processes.clear()


def restart(site: Site, name: str, places: dict[str, str], loading: float) -> None:
    site.processes[name].kill()
    site.process(name, places, loading)


@seeds(30)
def test_two_groups_that_began_apart_become_one(seed: int) -> None:
    """A cut while they start; each side begins a mesh of its own."""
    rng = random.Random(seed)
    site = Site(seed)
    names = [f"b{n}" for n in range(rng.randrange(2, 9))]
    left = set(rng.sample(names, rng.randrange(1, len(names))))
    site.partition(left, set(names) - left)
    for name in names:
        site.process(name, everyone_else(names, name))
    site.run(rng.uniform(6, 30))
    assert all(process.joined for process in site.processes.values())
    assert beginners(site) == 2
    site.heal()
    one_mesh(site)


@pytest.mark.parametrize("seed", range(100))
def test_what_gets_one_way_only_stops_nobody(seed: int) -> None:
    """Of two, one cannot reach the other; a third reaches both."""
    rng = random.Random(seed)
    site = Site(seed)
    names = ["b1", "b2", "b3"]
    site.blocked.add(tuple(rng.sample(names, 2)))  # type: ignore[arg-type]
    for name in rng.sample(names, 3):
        site.at(rng.uniform(0, 2), lambda n=name: site.process(n, everyone_else(names, n)))  # type: ignore[misc, arg-type]
    site.run(2)
    one_mesh(site)


def test_one_that_is_there_and_never_begins_does_not_keep_the_others_waiting_for_ever() -> None:
    site = Site(1)
    names = ["b1", "b2", "b3"]
    site.process("b1", everyone_else(names, "b1")).start._look = lambda: None  # type: ignore[method-assign]
    for name in names[1:]:
        site.process(name, everyone_else(names, name))
    site.run(19)
    assert not any(site.processes[name].joined for name in names[1:])
    site.run(3)
    assert all(site.processes[name].joined for name in names[1:])
    site.run(WITHIN)
    site.check_ring()


def test_in_one_mesh_nobody_probes_any_more() -> None:
    """Though addresses, its own among them, are written in another way than brokers say them."""
    site = Site(1)
    names = ["b1", "b2", "b3"]
    for name in names:
        site.process(name, {f"{other}:alias": "" for other in names})
    one_mesh(site)
    site.run(10)
    assert beginners(site) == 1
    probes = site.probes
    site.run(60)
    assert site.probes == probes


def test_who_has_knocked_and_is_gone_is_forgotten() -> None:
    site = Site(1)
    site.process("b1", {})
    site.process("b2", {"b1:1": ""})
    one_mesh(site)
    site.processes["b2"].kill()
    site.run(30)
    probes = site.probes
    site.run(60)
    assert site.probes == probes


def test_remembered_members_count_only_by_their_names() -> None:
    """Somebody else is now where a member was."""
    site = Site(1)
    site.process("stranger", {})
    alone = site.process("b1", {"stranger:1": "b2"})
    site.run(10)
    assert alone.joined
    assert beginners(site) == 2


def test_a_second_broker_of_a_name_is_refused() -> None:
    site = Site(1)
    site.process("b1", {})
    twin = Process(site, site.reference("b1", "c1"), {"b1:1": ""}, 0.0)
    site.run(6)
    assert twin.is_refused
    assert "there is a broker with the same name, 'b1'" in twin.start.faults()["b1:1"]
    assert twin.start.stage is Stage.STARTING
