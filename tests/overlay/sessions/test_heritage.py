"""The former brokers of sessions: what brokers beyond a cut are told of them, and when these owe nothing any more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from saps.messages import Message, Properties
from saps.overlay.frames.copies import LONG_AGO, Heirloom
from saps.routing.batch import Batch
from saps.simulator import Network
from tests import marks
from tests.overlay.replicated import Replicated
from tests.overlay.roams import Nomad

pytestmark = pytest.mark.simulation


def test_a_restarted_broker_is_where_its_sessions_were_before() -> None:
    """What is published while it is down has missed them there, and its next incarnation says so."""
    mesh = Replicated(1, disks=True, copies=1)
    one, two, *_ = mesh.build(4)
    nomad = Nomad.at(two, mesh)
    mesh.run(2)
    nomad.lose()
    mesh.crash(two.name)
    mesh.run(3)
    again = mesh.restart(two.name, one.name)
    assert [each.owner for each in again.node.sessions.migrations.heritage.of("c")] == [two.ref, again.ref]


def test_a_session_is_at_both_brokers_while_it_moves() -> None:
    """Else what is published meanwhile is at none of them, and comes again after a restart (`make chaos`)."""
    mesh = Replicated(1)
    one, two, _ = mesh.build(3)
    nomad = Nomad.at(one, mesh)
    mesh.run(1)
    nomad.arrive(two)
    before, here = two.node.sessions.migrations.heritage.of("c")
    assert before.owner == one.ref
    assert before.age < here.came


@pytest.mark.parametrize("leaves", [True, False], ids=["left", "killed"])
def test_an_heir_says_how_old_its_copy_was(leaves: bool) -> None:
    """What its owner got later, cut off from the heir only, the session has not had."""
    mesh = Replicated(1)
    one, *_ = mesh.build(3)
    nomad = Nomad.at(one, mesh)
    nomad.lose()
    mesh.run(30)
    if leaves:
        one.leave()
    else:
        mesh.crash(one.name)
    mesh.run_until(lambda: mesh.sessions("c") in (["b1"], ["b2"]), 10.0)
    (heir,) = mesh.sessions("c")
    before, _ = mesh.brokers[heir].node.sessions.migrations.heritage.of("c")
    assert before.owner == one.ref
    assert (before.age - LONG_AGO > 30) is not leaves


@pytest.mark.parametrize("jump", [0.0, 3600.0, -4.0])
def test_an_heir_says_how_old_its_copy_was_after_a_loss_of_power(jump: float) -> None:
    """All that had gone to the owner since the session came to it was taken for missed, and came again
    (`make jepsen`)."""
    mesh = Replicated(1, disks=True)
    one, two, three = mesh.build(3)
    nomad = Nomad.at(one, mesh)
    for number in range(100):
        mesh.tell(one, number, 2)
        nomad.attend(0.1)
    crashed = mesh.now
    for broker in (one, two, three):
        mesh.crash(broker.name)
    mesh.run(3)
    mesh.jump = jump
    two, three = (mesh.restart(name, contact) for name, contact in ((two.name, None), (three.name, two.name)))
    mesh.run_until(lambda: bool(mesh.sessions("c")), 30.0)
    (heir,) = mesh.sessions("c")
    before, _ = mesh.brokers[heir].node.sessions.migrations.heritage.of("c")
    assert before.owner == one.ref
    assert mesh.now - crashed <= before.age - LONG_AGO <= mesh.now - crashed + 2


def test_of_the_brokers_long_left_the_last_one_is_remembered() -> None:
    """What was published before the session came to the next one went there; it came again (`make chaos`)."""
    mesh = Replicated(1)
    one, two, three = mesh.build(3)
    Nomad.at(one, mesh)
    heritage = one.node.sessions.migrations.heritage
    stays = [Heirloom(two.ref, 40.0), Heirloom(three.ref, 18.0, came=40.0), Heirloom(two.ref, 10.0, came=18.0)]
    heritage.add("c", stays[:2])
    assert [each.owner for each in heritage.of("c")] == [one.ref]
    heritage.add("c", stays)
    assert [each.owner for each in heritage.of("c")] == [three.ref, two.ref, one.ref]
    assert [legacy.owed for legacy in heritage.legacies(three.ref)] == [[False, True, False]]


def test_a_session_that_moves_is_owed_nothing_by_those_of_which_its_broker_had_all() -> None:
    """For as long as any broker was lost each later move offered again what was published during an earlier one, also
    when the session had long forgotten that it had it (`make chaos`)."""
    mesh = Replicated(1)
    one, two, three, four = mesh.build(4)
    nomad = Nomad.at(one, mesh)
    mesh.crash(four.name)
    mesh.run(3)
    mesh.tell(three, 1, 2)
    assert nomad.arrive(two)
    heritage = two.node.sessions.migrations.heritage
    assert not [*heritage.legacies(three.ref)]
    assert [legacy.owed for legacy in heritage.legacies(four.ref)] == [[True, False]]


def test_a_broker_that_has_caught_up_owes_the_sessions_there_nothing() -> None:
    """At each later move it offered again what it had sent, also when the session had long forgotten that it had it
    (`make chaos`)."""
    mesh = Replicated(1)
    one, two, three, four = mesh.build(4)
    nomad = Nomad.at(one, mesh)
    mesh.run(1)
    mesh.partition([three.name, four.name])
    mesh.run(5)
    mesh.tell(three, 1, 2)
    assert nomad.arrive(two)
    heritage = two.node.sessions.migrations.heritage
    owed = [legacy.owed for legacy in heritage.legacies(three.ref)]
    assert owed == [[True, False]]
    mesh.heal()
    nomad.until(lambda: bool(nomad.got[2]))
    mesh.run(2)
    mesh.crash(four.name)
    mesh.run(3)
    assert nomad.arrive(one)
    heritage = one.node.sessions.migrations.heritage
    owed = [legacy.owed for legacy in heritage.legacies(four.ref)]
    assert owed == [[False, True, False]]
    assert not [*heritage.legacies(three.ref)]


def test_where_a_session_was_stays_right_over_many_moves() -> None:
    """Each move made it later by the time that a frame is under way; after 26 a message published 0.4 s after the
    session had come counted as published before (`make chaos`)."""
    mesh = Replicated(1, network=Network(latency=(0.08, 0.12)))
    one, two, three = mesh.build(3)
    nomad = Nomad.at(one, mesh)
    mesh.run(2)
    mesh.partition([three.name])
    mesh.run(5)
    moved = []
    for number in range(20):
        home = (two, one)[number % 2]
        moved.append(mesh.now)
        assert nomad.arrive(home)
    former = home.node.sessions.migrations.heritage.of("c")
    assert all(moved[number] < mesh.now - each.came < moved[number] + 1.5 for number, each in enumerate(former[1:]))
    drift = mesh.now - former[1].came - moved[0], mesh.now - former[-1].came - moved[-1]
    assert abs(drift[0] - drift[1]) < 0.3


def jumped(wall: Callable[[], float], seconds: float) -> float:
    return wall() + seconds


@pytest.mark.parametrize("jump", [-30.0, 30.0])
def test_a_clock_that_jumps_at_a_holder_does_not_age_a_copy(jump: float) -> None:
    mesh = Replicated(1)
    one, two, *_ = mesh.build(3)
    nomad = Nomad.at(one, mesh)
    mesh.run(1)
    assert nomad.arrive(two)
    nomad.lose()
    mesh.run(20)
    for broker in mesh.brokers.values():
        broker.node.replicas._wall = partial(jumped, broker.node.replicas._wall, jump)
    came = mesh.now - two.node.sessions.migrations.heritage.of("c")[-1].came
    mesh.crash(two.name)
    mesh.run_until(lambda: mesh.sessions("c") in (["b0"], ["b2"]), 10.0)
    (heir,) = mesh.sessions("c")
    _, before, _ = mesh.brokers[heir].node.sessions.migrations.heritage.of("c")
    assert before.came == pytest.approx(mesh.now - came, abs=0.5)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("seconds", [0.2, 2.0])
def test_what_was_acknowledged_to_a_broker_that_had_come_back_does_not_come_again(seconds: float, seed: int) -> None:
    """It stood still, and was adopted; it dies before it has fetched the heir's branches of its sessions. Its holders
    knew it by its old stamp and let its copy go, if none of them was that heir."""
    mesh = Replicated(seed, disks=True)
    one, owner, other, _ = mesh.build(4)
    nomad, sent = Nomad.at(owner, mesh), 0

    def go_on(seconds: float) -> None:
        nonlocal sent
        end = mesh.now + seconds
        while mesh.now < end:
            mesh.tell(one, sent, 2)
            sent += 1
            nomad.attend(0.05)

    go_on(2.0)
    mesh.pause(owner.name, 5.0)
    owner.node.sessions.migrations.target._settle = lambda transfer, then: None  # type: ignore[method-assign]
    go_on(5.0 + seconds)
    mesh.crash(owner.name)
    go_on(3.0)
    nomad.arrive(other)
    nomad.until(lambda: len(set(nomad.got[2])) == sent)
    assert len(nomad.got[2]) == sent


@marks.expect("restored copy of an owner that went on")
def test_a_broker_that_has_started_again_holds_copies_for_an_owner_that_went_on() -> None:
    """It took the owner's log for one whose sessions have another owner, and refused it."""
    mesh = Replicated(1, disks=True)
    one, owner, *_ = mesh.build(4)
    Nomad.at(owner, mesh).lose()
    mesh.run(5)
    source = owner.node.replicas.source
    log, again, left = source._log, *source._holders
    mesh.crash(again)
    mesh.run(5)
    mesh.restart(again, one.name if again != one.name else owner.name)
    mesh.run(20)
    assert again not in source._holders
    mesh.crash(left)
    mesh.run(5)
    assert again in source._holders
    assert source._log == log


@pytest.mark.parametrize("back", [True, False], ids=["owner back", "owner gone"])
def test_clocks_that_jump_while_the_power_is_off_end_nothing_early(back: bool) -> None:
    mesh = Replicated(1, disks=True)
    one, owner, other = mesh.build(3)
    nomad = Nomad.at(owner, mesh)
    nomad.lose()
    mesh.run(5)
    for broker in (one, owner, other):
        mesh.crash(broker.name)
    mesh.jump = 7200.0
    one = mesh.restart(one.name, None)
    for name in [owner.name] * back + [other.name]:
        mesh.restart(name, one.name)
    mesh.run(10)
    assert nomad.arrive(mesh.brokers[other.name])


def test_the_clock_of_a_dead_broker_ends_nothing_early() -> None:
    """Its sessions and their messages last as long as they should, though it was two hours behind the others."""
    mesh = Replicated(1)
    brokers = mesh.build(3)
    speaker, owner, other = brokers
    for broker in (speaker, other):
        broker.node.port.timers.epoch += 7200.0
        journal = mesh.benches[broker].frontend.storage.journal
        assert journal is not None
        journal.epoch += 7200.0
    nomad = Nomad.at(owner, mesh)
    nomad.lose()
    message = Message("t/1", b"x", 1, properties=Properties(message_expiry=600))
    speaker.act(partial(mesh.hubs[speaker].publish, Batch.of(message)))
    mesh.run(5)
    mesh.crash(owner.name)
    mesh.run(5)
    assert nomad.arrive(other)
    nomad.until(lambda: nomad.got[1] == [b"x"])
