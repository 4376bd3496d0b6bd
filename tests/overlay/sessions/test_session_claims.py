"""Claims that go straight to the holders that are known: while holders come and go, no claim misses another one."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.codec.reasons import Reason
from saps.overlay.frames.calls import SessionLease
from saps.overlay.frames.sessions import TakeOver
from saps.overlay.sessions.claiming import Claiming
from saps.overlay.sessions.directory import HOLDERS, PARTITIONS, partition_of
from saps.overlay.timeouts import SharedTimeout
from saps.simulator import Network, SimBroker
from tests import marks
from tests.drawn import schedules
from tests.overlay.roams import Nomad, Roams

pytestmark = pytest.mark.simulation

SEEDS = st.integers(0, 2**32 - 1)
SCHEDULES = schedules(2)
FULL = [name for name in (f"c{n}" for n in range(40 * PARTITIONS)) if partition_of(name) == 3]
"""Clients of one bucket."""


def holders(mesh: Roams, partition: int = 3) -> list[SimBroker]:
    return [broker for broker in mesh.alive() if partition in broker.node.sessions.directory.partitions]


def straight(mesh: Roams) -> int:
    """Claims that needed no search."""
    return sum(broker.node.sessions.notices.straight for broker in mesh.brokers.values())


@SCHEDULES
@given(SEEDS)
def test_while_holders_come_and_go_each_client_has_one_session(seed: int) -> None:
    """Two of each name connect almost at the same time, at brokers that know an earlier set of holders, or a later one;
    brokers begin to hold the bucket, join, and leave. Nobody crashes: one of the two stays, and the other is told."""
    rng = random.Random(seed)
    mesh = Roams(seed, network=Network(latency=(0.001, rng.choice([0.005, 0.03, 0.1]))), check=False)
    mesh.build(6, 2)
    names = iter(FULL)
    for broker in mesh.alive():  # all find out who holds the bucket
        Nomad(mesh, next(names)).arrive(broker)
    pairs: list[tuple[Nomad, Nomad]] = []
    for _ in range(12):
        for _ in range(rng.choice([0, 1, 1, 3])):
            change(mesh, rng)
            mesh.run(rng.choice([0, 0, 0.01, 0.05, 0.2]))
        there = [broker for broker in mesh.alive() if broker.joined and not broker.node.leaving.begun]
        name = next(names)
        pair = Nomad(mesh, name), Nomad(mesh, name)
        pairs.append(pair)
        for nomad, broker in zip(pair, rng.sample(there, 2), strict=True):
            nomad.connect(broker)
            mesh.run(rng.choice([0, 0, 0.005, 0.05]))
        mesh.run(rng.choice([0, 0.02, 0.3]))
    mesh.run(15)
    assert straight(mesh)
    for pair in pairs:
        judge(mesh, pair)


def change(mesh: Roams, rng: random.Random) -> None:
    """Another set of brokers holds the bucket soon."""
    there = [broker for broker in mesh.alive() if broker.joined and not broker.node.leaving.begun]
    dice = rng.random()
    if dice < 0.7:  # one more: of too many some give it up
        broker = rng.choice(there)
        broker.act(lambda: broker.node.sessions.directory.join(3))
    elif dice < 0.9 or len(there) < 5:
        mesh.add(f"new{len(mesh.brokers)}", "c1", rng.choice(there).name)
    else:
        idle = [broker for broker in there if not mesh.benches[broker].frontend.connections]
        if idle:
            rng.choice(idle).leave()


def judge(mesh: Roams, pair: tuple[Nomad, Nomad]) -> None:
    for nomad in pair:
        nomad.hear()
    where = f"{pair[0].name} (seed {mesh.seed})"
    stayed = [nomad for nomad in pair if nomad.alive]
    assert len(stayed) == 1, f"{len(stayed)} are connected: {where}"
    assert stayed[0].broker is not None
    assert mesh.sessions(pair[0].name) == [stayed[0].broker.name], where
    assert all(nomad.greeted and not nomad.refused for nomad in pair), where
    assert [nomad.ended for nomad in pair if nomad is not stayed[0]] == [[Reason.SESSION_TAKEN_OVER]], where


def settled(mesh: Roams, names: Iterator[str]) -> list[SimBroker]:
    """All brokers know the holders; who these are."""
    for _ in range(3):
        for broker in mesh.alive():
            Nomad(mesh, next(names)).arrive(broker)
        mesh.run(3)
    assert len(holders(mesh)) == HOLDERS
    return holders(mesh)


def test_a_claim_takes_one_frame_to_each_holder_and_one_back() -> None:
    mesh = Roams(1, check=False)
    brokers, names = mesh.build(8, 2), iter(FULL)
    held = settled(mesh, names)
    claimant = next(broker for broker in brokers if broker not in held)
    before = dict(mesh.counters.by_kind), straight(mesh)
    Nomad(mesh, next(names)).arrive(claimant)
    sent = {kind: mesh.counters.by_kind[kind] - before[0].get(kind, 0) for kind in ("Broadcast", "Gathered")}
    assert sent == {"Broadcast": HOLDERS, "Gathered": HOLDERS}
    assert straight(mesh) == before[1] + 1


@pytest.mark.parametrize("silent", [False, True])
def test_a_holder_that_has_crashed_is_not_waited_for_when_it_is_known_to_be_dead(silent: bool) -> None:
    """Whether its links break at once, or it is cut off. The claims then go to the other one, until there are two
    again."""
    mesh = Roams(2, check=False)
    mesh.build(6, 2)
    names = iter(FULL)
    victim = settled(mesh, names)[0]
    if silent:
        mesh.partition([victim.name])
    else:
        mesh.crash(victim.name)
    there = [broker for broker in mesh.alive() if broker is not victim]
    waiting = [Nomad(mesh, next(names)) for _ in there]
    for nomad, broker in zip(waiting, there, strict=True):
        nomad.connect(broker)
    mesh.run(2.5)
    for nomad in waiting:
        nomad.hear()
        assert nomad.greeted
    before = straight(mesh)
    for broker in there:
        Nomad(mesh, next(names)).arrive(broker)
    assert straight(mesh) == before + len(there)


class Wait:
    def __init__(self, over: bool) -> None:
        self.over = over


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=30))
def test_who_is_not_over_in_time_is_late_once_and_at_that_time(added: list[tuple[float, bool]]) -> None:
    mesh = Roams(4, check=False)
    broker = mesh.add("b0")
    late: dict[Wait, float] = {}
    owed: dict[Wait, float] = {}
    timeout: SharedTimeout[Wait] = SharedTimeout(broker.node.port, 2.0, lambda wait: late.__setitem__(wait, mesh.now))
    for pause, over in added:
        mesh.run(pause)
        wait = Wait(over)
        broker.act(lambda wait=wait: timeout.add(wait))  # type: ignore[misc]
        if not over:
            owed[wait] = mesh.now + 2.0
    mesh.run(10)
    assert late == pytest.approx(owed)


def silent(mesh: Roams, broker: SimBroker) -> None:
    """Have a broker live, and never say what became of a session."""
    broker.node.port.handlers[TakeOver] = lambda sender, frame: None


def tries(nomad: Nomad, broker: SimBroker, seconds: float, clean: bool = False) -> float:
    """Connect until the broker lets the client in. Return after how many seconds it has."""
    begin = nomad.mesh.now
    nomad.connect(broker, clean)
    while not nomad.greeted and nomad.mesh.now < begin + seconds:
        said = len(nomad.refused)
        nomad.mesh.run(0.1)
        nomad.hear()
        if len(nomad.refused) > said:
            nomad.connect(broker, clean)
    return nomad.mesh.now - begin


@marks.expect("a client is to try again, as its session was not found")
def test_a_client_of_a_silent_broker_is_refused_for_a_while_and_then_served_without() -> None:
    """It was served at once, and its session ended there. Later it was refused for ever: an attempt that ended for
    another reason counted as the first one."""
    mesh = Roams(1)
    one, two, *_ = mesh.build(4)
    nomad = Nomad.at(one, mesh)
    nomad.lose()
    mesh.run(1)
    silent(mesh, one)
    assert 15 < tries(nomad, two, 60) < 22
    assert [*map(Reason, nomad.refused)] == [Reason.SERVER_BUSY] * 2
    assert nomad.present[1:] == [False]


def test_a_clean_start_ends_the_session_at_a_broker_that_was_silent() -> None:
    """The client got it back when it came without Clean Start."""
    mesh = Roams(1)
    one, two, *_ = mesh.build(4)
    nomad = Nomad.at(one, mesh)
    nomad.lose()
    mesh.run(1)
    heard = one.node.port.handlers[TakeOver]
    silent(mesh, one)
    assert tries(nomad, two, 60, clean=True) < 7
    mesh.run(7)
    one.node.port.handlers[TakeOver] = heard
    mesh.run(5)
    assert mesh.sessions("c") == [two.name]


def test_a_silent_broker_hides_no_other_that_answers() -> None:
    mesh = Roams(1)
    one, two, three, _ = mesh.build(4)
    nomad = Nomad.at(one, mesh)
    nomad.lose()
    mesh.run(1)
    silent(mesh, three)
    claiming = two.node.sessions
    resolve = claiming._resolve

    def also(claim: Claiming, others: list[SessionLease]) -> None:
        later = SessionLease("c", three.ref, 1 + max((lease.stamp for lease in others), default=0))
        resolve(claim, [later, *others])

    claiming._resolve = also  # type: ignore[assignment]
    assert tries(nomad, two, 60) < 7
    assert nomad.present[1:] == [True]
