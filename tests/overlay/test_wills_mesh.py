"""Wills of clients whose broker dies, on the simulator: published once, by another broker."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.agents.user import SubscriberAgent
from saps.messages import Message
from saps.overlay.wills import LEFT, PART
from saps.simulator import Network, SimBroker
from tests.drawn import schedules
from tests.overlay.hubs import Client, Hubs, Weighed

pytestmark = pytest.mark.simulation

SEEDS = st.integers(0, 2**32 - 1)
SCHEDULES = schedules(3)


def guard_will(mesh: Hubs, broker: SimBroker, client: str, delay: float = 0.0) -> None:
    """A client with a will connects."""
    hub = mesh.hubs[broker]

    def act() -> None:
        SubscriberAgent(hub, client)
        hub.guard_will(client, Message("wills", client.encode(), 1), delay)

    broker.act(act)


def watch(mesh: Hubs) -> list[tuple[SimBroker, Client]]:
    """A watcher at each broker, ready."""
    watchers = [(broker, mesh.client(broker, "wills")) for broker in mesh.there()]
    mesh.run_until(lambda: all(client.ready for _, client in watchers))
    return watchers


def heard(watchers: list[tuple[SimBroker, Client]]) -> list[str]:
    """The wills that were published; all watchers that are there have heard the same."""
    lists = [sorted(got.payload.decode() for got in client.got) for broker, client in watchers if broker.alive]
    assert all(names == lists[0] for names in lists), lists
    return lists[0]


@SCHEDULES
@given(SEEDS)
def test_each_will_of_a_dead_broker_is_published_once(seed: int) -> None:
    """Up to two brokers die at once or one after the other, their guardians too; links break; some clients have come
    back elsewhere, some wills are void, some were entrusted just before."""
    rng = random.Random(seed)
    mesh = Hubs(seed, network=Network(latency=(0.001, rng.choice([0.002, 0.03]))))
    mesh.build(6, 2)
    watchers = watch(mesh)
    homes = {f"d{number}": rng.choice(mesh.alive()) for number in range(20)}
    for name, broker in homes.items():
        guard_will(mesh, broker, name, rng.choice([0.0, 0.0, 2.0]))
        mesh.run(rng.choice([0, 0.05]))
        if rng.random() < 0.1:
            mesh.reset_link(*(b.name for b in rng.sample(mesh.alive(), 2)))
    void = set(rng.sample(sorted(homes), 4))
    for name in void:
        homes[name].act(lambda name=name: mesh.hubs[homes[name]].guard_will(name, None))  # type: ignore[misc]
    mesh.run(1)
    victims = rng.sample(mesh.alive(), 2)
    for victim in victims:
        mesh.crash(victim.name)
        mesh.run(rng.choice([0, 0.5, 4]))
    lost = [name for name in sorted(homes) if homes[name] in victims]
    back = set(rng.sample(lost, len(lost) // 3))
    published = set(heard(watchers))
    for name in back:
        SubscriberAgent(mesh.hubs[rng.choice(mesh.alive())], name)
    mesh.run(20)
    names = heard(watchers)
    assert len(names) == len(set(names)), f"twice: {names} (seed {seed})"
    assert set(names) - published == set(lost) - void - back - published, f"seed {seed}"
    assert published <= set(lost) - void


def test_no_will_for_a_client_that_came_back_within_its_delay() -> None:
    mesh = Hubs(1)
    mesh.build(4, 2)
    watchers = watch(mesh)
    victim = mesh.alive()[1]
    guard_will(mesh, victim, "patient", 10.0)
    guard_will(mesh, victim, "late", 10.0)
    mesh.run(1)
    mesh.crash(victim.name)
    mesh.run(8)
    assert heard(watchers) == []
    SubscriberAgent(mesh.hubs[mesh.alive()[0]], "patient")
    mesh.run(12)
    assert heard(watchers) == ["late"]


def test_a_broker_that_leaves_gives_its_clients_time_to_go_elsewhere() -> None:
    mesh = Hubs(2)
    mesh.build(4, 2)
    watchers = watch(mesh)
    leaver = mesh.alive()[2]
    for name in ("moved", "gone"):
        guard_will(mesh, leaver, name)
    mesh.run(1)
    mesh.leave(leaver)
    mesh.run(LEFT / 2)
    assert heard(watchers) == []
    SubscriberAgent(mesh.hubs[mesh.alive()[0]], "moved")
    mesh.run(LEFT)
    assert heard(watchers) == ["gone"]


def test_a_broker_taken_for_dead_wrongly_keeps_its_clients_alive() -> None:
    """Cut off from one side for a while: where it cannot be asked its clients count as lost, but only there and once;
    later it can die in earnest."""
    mesh = Hubs(3)
    mesh.build(5, 2)
    watchers = watch(mesh)
    cut = mesh.alive()[1]
    guard_will(mesh, cut, "d")
    mesh.run(1)
    guardians = [broker for broker in mesh.alive() if cut.ref in broker.node.wills.watched().values()]
    assert len(guardians) == 2
    mesh.reset_link(guardians[0].name, cut.name)
    mesh.run(5)
    assert heard(watchers) == []
    mesh.crash(cut.name)
    mesh.run(10)
    assert heard(watchers) == ["d"]


def test_a_replaced_guardian_has_no_wills_any_more() -> None:
    """It stood still for so long that another broker took its place."""
    mesh = Hubs(3)
    mesh.build(6, 2)
    watchers = watch(mesh)
    home = mesh.alive()[1]
    guard_will(mesh, home, "d")
    guard_will(mesh, home, "left in order")
    mesh.run(1)
    replaced = next(broker for broker in mesh.alive() if home.ref in broker.node.wills.watched().values())
    mesh.pause(replaced.name, 4.0)
    mesh.run(20)
    home.act(lambda: mesh.hubs[home].guard_will("left in order", None))
    mesh.run(1)
    assert heard(watchers) == []
    mesh.crash(home.name)
    mesh.run(20)
    assert heard(watchers) == ["d"]


def test_no_will_for_a_client_that_left_in_order_while_a_guardian_was_cut_off() -> None:
    """The will was the last of its broker, which so looks for no other guardian."""
    mesh = Hubs(3)
    mesh.build(6, 2)
    watchers = watch(mesh)
    home = mesh.alive()[1]
    guard_will(mesh, home, "d", 60.0)
    mesh.run(1)
    guardian = next(broker for broker in mesh.alive() if home.ref in broker.node.wills.watched().values())
    mesh.partition([guardian.name])
    hub = mesh.hubs[home]
    home.act(lambda: hub.guard_will("d", None))
    home.act(hub.agents["d/sub"].close)
    mesh.run(10)
    mesh.heal()
    mesh.run(90)
    assert heard(watchers) == []


def test_many_large_wills_are_sent_again_in_parts() -> None:
    """The second link breaks while they are sent; some clients leave in order and others come meanwhile."""
    mesh = Weighed(3)
    mesh.build(4, 2)
    watchers = watch(mesh)
    home = mesh.alive()[1]
    hub, payload = mesh.hubs[home], bytes(60_000)
    for number in range(200):
        home.act(lambda number=number: hub.guard_will(f"d{number}", Message("w", payload, 1), 0.0))  # type: ignore[misc]
        mesh.run(0.01)
    guardians = [broker for broker in mesh.alive() if home.ref in broker.node.wills.watched().values()]
    for guardian in guardians:
        mesh.reset_link(home.name, guardian.name)
    mesh.run(0.25)
    for number in range(0, 200, 2):
        home.act(lambda number=number: hub.guard_will(f"d{number}", None, 0.0))  # type: ignore[misc]
    mesh.reset_link(home.name, guardians[0].name)
    for number in range(100):
        home.act(lambda number=number: hub.guard_will(f"d{2 * number}", Message("wills", b"%d" % number), 0.0))  # type: ignore[misc]
        mesh.run(0.001)
    mesh.run(10)
    assert mesh.most < 2 * PART
    for guardian in guardians:
        assert sorted(guardian.node.wills._wards[home.ref].wills) == sorted(f"d{number}" for number in range(200))
    mesh.crash(home.name)
    mesh.run(10)
    assert heard(watchers) == sorted(map(str, range(100)))


def test_brokers_without_wills_send_nothing_for_them() -> None:
    mesh = Hubs(4)
    mesh.build(4, 2)
    mesh.run(30)
    assert not {"Guard", "Unguard", "Mourned", "Enlist", "GroupDelivery"} & mesh.counters.by_kind.keys()
