"""The publications that a session remembers to have had, at its broker and at the holders of its copies."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.session.durable import DurableSession
from saps.frontend.mqtt.session.memory import Memory
from saps.routing.batch import Batch, Origin
from saps.storage.journal import Row, Table
from saps.storage.past import RECENT, TOGETHER, Asked, pack
from tests import marks
from tests.overlay.replicated import Replicated, stored
from tests.overlay.roams import Nomad

pytestmark = pytest.mark.simulation


def test_what_a_session_had_elsewhere_displaces_nothing_of_what_it_had_here() -> None:
    mesh = Replicated(1)
    one, *_ = mesh.build(3)
    Nomad(mesh, "c").arrive(one)
    session = stored(mesh, one)
    here, elsewhere = ([Origin(name, 1, number) for number in range(RECENT - 10)] for name in ("b1", "b2"))
    session._copies.here.extend(here)
    session.remember(pack(elsewhere))
    assert [*session.had] == [*elsewhere[-10:], *here]
    assert session.among(Asked([*elsewhere[:5], *here])) == {*elsewhere[:5], *here}


def test_what_waits_displaces_nothing_of_what_a_client_has_got() -> None:
    """It did, once as it came, and again as it was sent or merged with what a branch brought. So a second heir brought
    what the client had from its own broker (221 of QoS 2 in 28 minutes of `make chaos`)."""
    mesh = Replicated(1)
    mesh.limits = Limits(maximum_queued=1 << 16)
    one, two, three = mesh.build(3)
    nomad = Nomad.at(one, mesh)

    def tell(first: int, many: int) -> set[int]:
        before = {origin.seq for origin in stored(mesh, one).had}
        for number in range(first, first + many):
            mesh.tell(three, number, 2)
            mesh.run(0.002)
        mesh.run(1)
        return {origin.seq for origin in stored(mesh, one).had} - before

    def remembered(copy: DurableSession) -> tuple[set[int], bool]:
        inflight = [each for each in copy.window.inflight.values() if each is not None]
        count = len(copy.over) + len(inflight) + len(copy.queue.copies or ())
        return {origin.seq for origin in copy.had}, len(copy.had) == count

    got = tell(0, 100)
    nomad.until(lambda: len(nomad.got[2]) == 100)
    nomad.lose()
    waiting = tell(100, RECENT)
    session = stored(mesh, one)
    assert remembered(session) == (got | waiting, True)
    session.queue_again(reversed(session.queue.copies or ()))
    session.queue_again(reversed(session.queue.copies or ()))
    nomad.arrive(one)  # as many as it allows are sent
    mesh.run(1)
    assert len(session.queue.copies or ()) < RECENT - 100
    assert remembered(session) == (got | waiting, True)
    mesh.crash(one.name)
    assert nomad.arrive(two)
    assert remembered(stored(mesh, two)) == (got | waiting, True)


def test_a_waiting_message_is_stored_once() -> None:
    """It went to the disk and to the holders when it came, and again when it was sent."""
    mesh = Replicated(1)
    one, _, three = mesh.build(3)
    nomad = Nomad.at(one, mesh)
    nomad.lose()
    session, written = stored(mesh, one), list[object]()
    put = session._journal.put

    def write(table: Table, key: Any, row: Row) -> None:
        written.append(table)
        put(table, key, row)

    session._journal.put = write  # type: ignore[method-assign]
    for number in range(10):
        mesh.tell(three, number, 1)
    mesh.run(1)
    nomad.arrive(one)
    nomad.until(lambda: len(nomad.got[1]) == 10)
    assert written.count(Table.MESSAGES) == 10
    assert written.count(Table.COPIES) == 20


def test_an_adopted_session_remembers_as_much_as_it_did_at_its_owner() -> None:
    """It remembered 1,024 publications: of 80 a second, those of 13 seconds. What others made up later came twice."""
    mesh = Replicated(1)
    one, two, three = mesh.build(3)
    nomad = Nomad.at(one, mesh)
    mesh.run(2)
    many = RECENT // 2
    for number in range(many):
        mesh.tell(three, number, 2)
        nomad.attend(0.01)
    nomad.until(lambda: len(nomad.got[2]) == many)
    session = stored(mesh, one)
    had = session.had.keys()
    assert len(had) == many
    mesh.crash(one.name)
    assert nomad.arrive(two)
    mesh.run(1)
    session = stored(mesh, two)
    assert session.had.keys() == had


def test_what_a_branch_brings_does_not_count_as_what_is_remembered_without_gaps() -> None:
    """Of what is late, only what is older than that counts as had."""
    mesh = Replicated(1)
    one, *_ = mesh.build(3)
    Nomad.at(one, mesh)
    session = stored(mesh, one)
    here = [Origin("b1", 1, number) for number in range(1000, 1000 + 3 * RECENT)]
    session._copies.here.extend(here)
    forgotten, had = here[RECENT // 2], here[-1]
    for theirs in ([], [Origin("b1", 1, number) for number in range(500, 600)]):
        session.remember(pack(theirs))
        memory = Memory(session, True, Asked([forgotten, had]))
        assert not memory.lacks(forgotten)
        assert not memory.lacks(had)
        assert memory.lacks(Origin("b1", 1, 1000 + 3 * RECENT))


def test_a_session_remembers_more_while_another_broker_is_lost() -> None:
    """A client got 4,758 publications after a cut of 40 s before what the heir had kept of them came (206 of QoS 2 came
    twice in 28 minutes of `make chaos`)."""
    mesh = Replicated(1)
    one, two, three, four = mesh.build(4)
    nomad = Nomad.at(one, mesh)
    mesh.crash(four.name)
    nomad.attend(3)
    many = RECENT + 2 * TOGETHER
    for number in range(many):
        mesh.tell(three, number, 2)
        nomad.attend(0.002)
    nomad.until(lambda: len(nomad.got[2]) == many)
    assert len(stored(mesh, one).over) == many
    heir = next(each for each in (two, three) if each.ref in one.node.replicas.source.in_sync)
    mesh.crash(one.name)
    assert nomad.arrive(heir)
    assert len(stored(mesh, heir).over) == many


@marks.expect("numbered after it was over")
def test_what_a_client_had_before_the_mesh_has_numbered_it_is_known_by_that_number() -> None:
    """It was remembered by another number once 256 later ones had come. After a loss of power of all, an heir brought
    what the client had had from its own broker (53 of QoS 2 in 28 minutes of `make chaos`)."""
    mesh = Replicated(1)
    one, *others = mesh.build(5)
    nomad, other = Nomad.at(one, mesh), Nomad(mesh, "x")
    mesh.run(2)
    three, *_ = [broker for broker in others if broker.ref in one.node.replicas.source.in_sync]
    victim, *_ = [broker for broker in others if broker.ref not in one.node.replicas.source.in_sync]
    other.arrive(three)
    other.subscribe("t/#")
    mesh.run(2)
    mesh.crash(victim.name)  # it takes a while until all subscribers of a new topic are known
    many = 3 * TOGETHER
    for number in range(many):
        mesh.tell(one, 2 * number, 2)
        nomad.attend(0.001)
    assert len(nomad.got[2]) > 2 * TOGETHER
    nomad.until(lambda: len(nomad.got[2]) == many)
    mesh.run(10)
    other.until(lambda: len(other.got[2]) == many)
    elsewhere = mesh.benches[three].frontend.sessions["x"]
    assert isinstance(elsewhere, DurableSession)
    assert stored(mesh, one).had.keys() >= elsewhere.had.keys()


def test_a_new_holder_learns_what_a_session_had_before() -> None:
    """It did not: what a client got and acknowledged before any copy was in sync came again from its heir
    (`make chaos`)."""
    mesh = Replicated(1)
    [one] = mesh.build(1)
    nomad = Nomad.at(one, mesh)
    for number in range(10):
        mesh.tell(one, number, 2)
    nomad.until(lambda: len(nomad.got[2]) == 10)
    nomad.attend(1)
    two = mesh.add("b1", "c0", one.name)
    mesh.run(5)
    session = stored(mesh, one)
    had = session.had.keys()
    assert len(had) == 10
    mesh.crash(one.name)
    assert nomad.arrive(two)
    session = stored(mesh, two)
    assert session.had.keys() == had


def test_what_a_client_has_got_is_not_kept() -> None:
    """It was, with its payload, if the mesh had not numbered it: 8.7 MB after 4,096 publications of 1 kB."""
    gc.collect()
    before = {id(each) for each in gc.get_objects() if type(each) is Batch}
    mesh = Replicated(1, copies=1)
    [one] = mesh.build(1)
    nomad = Nomad.at(one, mesh)
    for number in range(1000):
        mesh.tell(one, number, 1)
        nomad.attend(0.001)
    nomad.until(lambda: len(nomad.got[1]) == 1000)
    mesh.run(1)
    assert len(stored(mesh, one).over) == 1000
    gc.collect()
    assert sum(type(each) is Batch and id(each) not in before for each in gc.get_objects()) <= TOGETHER
