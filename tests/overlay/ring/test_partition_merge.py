"""What it costs to be one ring again, and that the levels come to rest."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from saps.overlay.ring.keys import Key, Ref, common_prefix, membership
from saps.simulator import SimBroker, Simulation

pytestmark = pytest.mark.simulation

BROKERS, TOPICS = 24, 12


@pytest.fixture
def mesh() -> Simulation:
    """Brokers with many keys each, half of which are put apart from the others for some time."""
    simulation = Simulation(7, check=False)
    brokers = simulation.build(BROKERS, clusters=3)
    confirmed: list[str] = []
    for number in range(TOPICS):
        for broker in brokers[number::3]:
            broker.subscribe(f"city/{number}", lambda name=broker.name: confirmed.append(name))  # type: ignore[misc]
        brokers[number].publish(f"city/{number}")
    owed = sum(len(brokers[number::3]) for number in range(TOPICS))
    simulation.run_until(lambda: len(confirmed) == owed)
    simulation.run(5.0)
    simulation.partition([broker.name for broker in brokers[::2]])
    simulation.run(15.0)
    simulation.counters.by_kind.clear()
    simulation.heal()
    simulation.run(8.0)
    return simulation


def keys(simulation: Simulation) -> dict[Key, SimBroker]:
    return {key: broker for broker in simulation.alive() for key in broker.node.graph.nodes}


def test_a_merge_costs_each_key_log_n_insertions(mesh: Simulation) -> None:
    """Each broker hears again of every one that it had given up: once, each of these meetings had all keys inserted."""
    mesh.check_ring()
    count = len(keys(mesh))
    assert mesh.counters.by_kind["Insert"] < 2 * math.log2(count) * count
    assert mesh.counters.by_kind["Heal"] < 20 * BROKERS


def test_after_a_merge_nobody_who_lives_is_taken_for_dead(mesh: Simulation) -> None:
    for broker in mesh.alive():
        assert [other.name for other in mesh.alive() if broker.node.port.lost(other.ref)] == []
        assert broker.node.rejoin.ring_probe.calm()


def test_after_a_merge_every_publication_reaches_both_sides(mesh: Simulation) -> None:
    brokers = [mesh.brokers[f"b{number}"] for number in range(BROKERS)]
    for broker in brokers:
        broker.delivered.clear()
    for number in range(TOPICS):
        brokers[number].publish(f"city/{number}", b"after")
    mesh.run(2.0)
    for number in range(TOPICS):
        expected = {broker.name for broker in brokers[number::3]} - {brokers[number].name}
        got = [
            broker.name for broker in brokers for _, message in broker.delivered if message.topic == f"city/{number}"
        ]
        assert sorted(got) == sorted(expected)


def test_the_levels_come_to_rest_and_are_right(mesh: Simulation) -> None:
    """An end of a list is no gap: nobody looks for ever for a neighbour that is not there. What is there is found."""
    mesh.run(240.0)
    before = dict(mesh.counters.by_kind)
    mesh.run(30.0)
    seeks = mesh.counters.by_kind["Seek"] - before["Seek"]
    assert seeks < 40 * BROKERS, f"{seeks}: each broker looks anew for the neighbours of one key in half a minute"
    for rightward in (True, False):
        order = sorted(rows_ends(mesh), reverse=not rightward)
        for level in range(1, 4):
            lists: dict[int, list[Key]] = {}
            for key in order:
                lists.setdefault(membership(key) >> (64 - level), []).append(key)
            for members in lists.values():
                for key, neighbour in pairwise(members):
                    if is_before_next(mesh, key, neighbour, rightward):
                        assert linked(mesh, key, level, rightward) == neighbour


def rows_ends(simulation: Simulation) -> list[Key]:
    """Of each row of keys of one broker the last: from there searches leave it."""
    return [key for broker in simulation.alive() for key in broker.node.graph.ends]


def is_before_next(simulation: Simulation, key: Key, neighbour: Key, rightward: bool) -> bool:
    """Is the neighbour nearer than the next key of the same broker? Beyond that no search looks for it from here."""
    own = keys(simulation)[key].node.graph.order
    following = own.after(key) if rightward else own.before(key)
    return following is None or (neighbour < following) == rightward


def linked(simulation: Simulation, key: Key, level: int, rightward: bool) -> Key | None:
    """The neighbour a node believes to have."""
    links: list[Ref | None] = keys(simulation)[key].node.graph.nodes[key].links(rightward)
    ref = links[level] if level < len(links) else None
    assert ref is None or common_prefix(membership(ref.key), membership(key)) >= level
    return None if ref is None else ref.key
