"""A broker that restarts with stored sessions: when it says that it is ready, the mesh knows where they are."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.agents.user import SubscriberAgent
from saps.messages import Subscription
from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Gathered
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.ring.unanswered import RETRY
from saps.overlay.sessions.directory import PARTITIONS, partition_of
from saps.simulator import Network, SimBroker
from tests.drawn import schedules
from tests.overlay.roams import Nomad, Roams

pytestmark = pytest.mark.simulation

SEEDS = st.integers(0, 2**32 - 1)
SCHEDULES = schedules(2)
EXPIRY = 3600.0


class Restarts(Roams):
    """Brokers that begin with what is stored under their names."""

    def __init__(self, seed: int, network: Network | None = None) -> None:
        super().__init__(seed, network=network, check=False)
        self.stored: dict[str, list[str]] = {}
        """Clients by broker."""

    def attach(self, broker: SimBroker) -> None:
        super().attach(broker)
        self._restore(broker, self.stored.get(broker.name, []))

    def _restore(self, broker: SimBroker, clients: list[str]) -> None:
        """Sessions as `saps.frontend.mqtt.session.durable.restore` leaves them: their clients have just gone."""
        frontend = self.benches[broker].frontend
        for client in clients:
            session = frontend.sessions[client] = frontend.sessions.new_session(client, int(EXPIRY))
            session.expiry, session.ends_at = int(EXPIRY), self.now + EXPIRY
            SubscriberAgent.subscribe(session, Subscription("t/#", 2))
            frontend.sessions.away(session)
        broker.node.sessions.restored(clients)

    def restart(self, victim: SimBroker, contact: SimBroker) -> SimBroker:
        """A broker's next life, with the sessions it had."""
        self.stored[victim.name] = list(self.benches[victim].frontend.sessions)
        return self.add(victim.name, victim.ref.cluster, contact.name)


@SCHEDULES
@given(SEEDS)
def test_when_a_broker_is_ready_again_its_sessions_are_found_from_everywhere(seed: int) -> None:
    """However soon it is back: before its death has been noticed, or after. Those of its clients that have connected
    somewhere before it was ready have one session in the end; the others have theirs."""
    rng = random.Random(seed)
    mesh = Restarts(seed, network=Network(latency=(0.001, rng.choice([0.005, 0.03, 0.1]))))
    brokers = mesh.build(4, 2)
    home = rng.choice(brokers)
    nomads = [Nomad(mesh, f"c{number}") for number in range(8)]
    for nomad in nomads:  # so that there are holders, some of them at home
        nomad.arrive(rng.choice(brokers))
    mesh.run(0.3)  # by more than clocks differ
    for nomad in nomads:
        nomad.arrive(home)
        nomad.subscribe("t/#")
        nomad.lose()
    mesh.crash(home.name)
    mesh.run(rng.choice([0, 0.05, 0.5, 1.2, 3]))
    others = mesh.alive()
    again = mesh.restart(home, rng.choice(others))
    early, late = nomads[:4], nomads[4:]
    for nomad in early:
        mesh.run(rng.choice([0, 0.005, 0.05, 0.3]))
        nomad.connect(rng.choice(mesh.alive()))
    mesh.run_until(lambda: again.ready)
    for nomad in late:
        nomad.connect(rng.choice(others))
        mesh.run(rng.choice([0, 0, 0.01, 0.3]))
    mesh.run(15)
    for nomad in nomads:
        nomad.hear()
        assert nomad.greeted, f"{nomad.name} was not let in (seed {seed})"
        assert nomad.broker is not None
        assert mesh.sessions(nomad.name) == [nomad.broker.name], f"{nomad.name} (seed {seed})"
    assert all(nomad.present[-1] for nomad in late), f"a session was not found (seed {seed})"


def test_a_broker_is_ready_at_once_if_there_is_nothing_to_tell_or_nobody() -> None:
    mesh = Restarts(1)
    mesh.stored["b0"] = ["c"]
    assert mesh.add("b0").ready
    other = mesh.add("b1", contact="b0")
    mesh.run_until(lambda: other.joined)
    assert other.ready


@pytest.mark.parametrize("stored", [False, True])
def test_a_client_that_connects_before_its_broker_begins_a_mesh_waits_for_nobody(stored: bool) -> None:
    """Others that join later find its session."""
    mesh = Restarts(5)
    mesh.stored["b0"] = ["c"] if stored else []
    mesh.add("gone")
    mesh.crash("gone")
    one, early = mesh.add("b0", contact="gone"), Nomad(mesh, "c")
    early.connect(one)
    mesh.run(0.5)
    early.hear()
    assert not early.greeted
    one.act(lambda: one.node.redirect(None))
    begun = mesh.now
    mesh.run(0)
    early.hear()
    assert (mesh.now, early.present) == (begun, [stored])
    other = mesh.add("b1", contact="b0")
    mesh.run_until(lambda: other.joined)
    assert early.arrive(other)
    assert mesh.sessions("c") == ["b1"]


def test_many_sessions_take_one_claim_for_each_bucket() -> None:
    """If the holders are there."""
    mesh = Restarts(2)
    one, _, three = mesh.build(3, 2)
    for name in {partition_of(name): name for name in (f"n{number}" for number in range(16 * PARTITIONS))}.values():
        Nomad(mesh, name).arrive(one)
    mesh.run(10)
    mesh.crash(three.name)
    mesh.run(10)
    mesh.stored[three.name] = [f"c{number}" for number in range(20 * PARTITIONS)]
    again = mesh.add(three.name, contact=one.name)
    mesh.run_until(lambda: again.ready)
    notices = again.node.sessions.notices
    assert notices.searched + notices.straight == PARTITIONS


def test_where_nobody_holds_the_buckets_all_keys_are_put_in_at_the_first_attempt() -> None:
    """Each finds its place, also behind another own one that was sent just before."""
    mesh = Restarts(4)
    mesh.build(2, 1)
    mesh.stored["new"] = [f"c{number}" for number in range(20 * PARTITIONS)]
    new, begun = mesh.add("new", contact="b0"), mesh.now
    mesh.run_until(lambda: new.ready)
    assert sorted(new.node.sessions.directory.partitions) == list(range(PARTITIONS))
    assert mesh.now - begun < RETRY, "some had to be put in again"


class Deaf(Restarts):
    """A mesh in which one broker does not hear what range calls bring back to it."""

    deaf = ""

    def _send(self, source: SimBroker, to: BrokerRef, frame: Frame) -> None:
        if to.name != self.deaf or not isinstance(frame, Gathered):
            super()._send(source, to, frame)


def test_a_broker_is_ready_after_some_time_even_if_nobody_answers(caplog: pytest.LogCaptureFixture) -> None:
    """It says in its log what that means, and goes on claiming."""
    mesh = Deaf(3)
    one, two, three = mesh.build(3, 2)
    for number in range(3):
        Nomad(mesh, f"n{number}").arrive(one)
    mesh.stored[three.name], mesh.deaf = ["c"], three.name
    mesh.crash(three.name)
    mesh.run(10)
    again = mesh.add(three.name, contact=one.name)
    mesh.run_until(lambda: again.joined)
    begun = mesh.now
    mesh.run_until(lambda: again.ready)
    assert mesh.now - begun == pytest.approx(again.node.sessions.timeout)
    assert "the mesh has not heard in 5 s of all sessions that are here, 1 are missing" in caplog.text
    mesh.deaf = ""
    mesh.run(10)
    searched = again.node.sessions.notices.searched
    mesh.run(10)
    assert again.node.sessions.notices.searched == searched, "it still claims"
    assert Nomad(mesh, "c").arrive(two)
