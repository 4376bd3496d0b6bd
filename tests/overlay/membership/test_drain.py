"""A broker is drained, on the simulator: its clients and their sessions go elsewhere, nothing is lost or doubled."""

from __future__ import annotations

import random
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.drain.adoption import Adopter
from saps.drain.agent import DRAIN, DrainAgent
from saps.drain.drain import Drain
from saps.drain.values import Drained, Host, Options, Stage
from saps.frontend.mqtt.codec.packets import V5, V311, Connack, Disconnect, Will
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import Reason
from saps.overlay.wills import LEFT
from saps.simulator import Network, SimBroker
from tests.drawn import schedules
from tests.overlay.roams import Nomad, Roams

pytestmark = pytest.mark.simulation

SEEDS = st.integers(0, 2**32 - 1)
QUICK = Options(rate=20.0, grace=1.0)


class Drains(Roams):
    """A simulation in which each broker can be drained."""

    def __init__(self, seed: int, **options: object) -> None:
        super().__init__(seed, **options)  # type: ignore[arg-type]
        self.drains: dict[SimBroker, Drain] = {}
        self.full: set[str] = set()
        """Brokers that take no sessions."""

    def attach(self, broker: SimBroker) -> None:
        super().attach(broker)
        self._equip(broker)

    def _equip(self, broker: SimBroker) -> None:
        frontend, node = self.benches[broker].frontend, broker.node

        def host() -> Host | None:
            if drain.draining:
                return None
            room = 0 if broker.name in self.full else 99
            return Host(broker.name, broker.ref.cluster, f"{broker.name}:1883", "", len(frontend.sessions), room)

        drain = self.drains[broker] = Drain(
            lambda: broker.ref, frontend, node.sessions, broker.agents.call, on_empty=broker.leave
        )
        adopter = Adopter(frontend, node.sessions)

        def progress() -> Drained:
            return Drained(at=self.now, **msgspec.structs.asdict(drain.progress()))

        agent = DrainAgent(
            host, adopter, self.hubs[broker].connected, lambda order: drain.start(order.options(QUICK)), progress
        )
        broker.agents.host(DRAIN, agent)

    def drain(self, broker: SimBroker, options: Options = QUICK) -> Drain:
        broker.act(partial(self.drains[broker].start, options))
        return self.drains[broker]


class Guest(Nomad):
    """A client that is told where to go."""

    told = ""
    """The last Server Reference."""

    def hear(self) -> None:
        for packet in self.client.packets if self.client is not None else ():
            if isinstance(packet, Connack | Disconnect):
                self.told = packet.properties.get(Property.SERVER_REFERENCE, self.told)
        super().hear()

    def where(self) -> SimBroker:
        """The first broker it was sent to."""
        return self.mesh.brokers[self.told.split()[0].partition(":")[0]]


def guests(mesh: Drains, home: SimBroker, count: int, rng: random.Random) -> list[Guest]:
    """Clients with sessions at a broker; some are away."""
    found = [Guest(mesh, f"c{n}", rng.choice([V311, V5])) for n in range(count)]
    for guest in found:
        guest.arrive(home)
        guest.subscribe("t/1/+", "t/+/0", "t/2/#")
        if rng.random() < 0.4:
            guest.lose()
    return found


@schedules(4)
@given(SEEDS)
def test_whatever_clients_do_a_drain_loses_and_doubles_nothing(seed: int) -> None:
    """Some follow the Server Reference, some go elsewhere, some stay away; links break now and then."""
    rng = random.Random(seed)
    slow, reset = rng.choice([0.002, 0.03]), rng.choice([0.0, 0.001])
    mesh = Drains(seed, network=Network(latency=(0.001, slow), reset=reset), check=False)
    leaving, *staying = mesh.build(4, 2)
    found = guests(mesh, leaving, 6, rng)
    mesh.run(1)
    owed: dict[int, list[bytes]] = {1: [], 2: []}
    number = 0

    def tell() -> None:
        nonlocal number
        number += 1
        speaker, qos = rng.choice(staying[:2]), rng.choice([1, 2])
        owed[qos].append(b"%s %d" % (speaker.name.encode(), number))
        mesh.tell(speaker, number, qos)

    def go(guest: Guest) -> None:
        guest.hear()
        if guest.alive:
            guest.answer(rng.randrange(1, 6))
        elif rng.random() < 0.1:
            guest.connect(guest.where() if guest.told and rng.random() < 0.5 else rng.choice(mesh.alive()))

    for _ in range(10):
        tell()
    drain = mesh.drain(leaving)
    limit = mesh.now + 120
    while leaving.alive:
        tell()
        go(rng.choice(found))
        mesh.run(rng.choice([0.01, 0.05, 0.3]))
        assert mesh.now < limit, f"it does not leave (seed {seed}): {drain.progress()}"
    assert not mesh.benches[leaving].frontend.sessions
    for guest in found:
        assert mesh.sessions(guest.name), f"{guest.name} has no session any more (seed {seed})"
        for _ in range(10):  # a CONNECT that was under way elsewhere may count as the later one
            guest.connect(rng.choice(mesh.alive()))
            for _ in range(20):
                guest.hear()
                guest.answer()
                mesh.run(0.2)
            if guest.alive and guest.greeted:
                break
        assert all(guest.present[1:]), f"the session of {guest.name} was lost (seed {seed})"
        for qos in (1, 2):
            got = guest.got[qos] if qos == 2 else list(dict.fromkeys(guest.got[qos]))
            assert sorted(got) == sorted(owed[qos]), f"{guest.name}, QoS {qos} (seed {seed})"
        assert max(guest.plain.values(), default=0) <= 1, f"twice without DUP (seed {seed})"
        assert guest.broker is not None
        assert mesh.sessions(guest.name) == [guest.broker.name], f"seed {seed}"


def test_clients_are_sent_to_their_own_site_in_turns_and_at_the_pace_asked_for() -> None:
    mesh = Drains(1)
    leaving, far, near, also_near = (mesh.add("b0"), *(mesh.add(f"b{n}", f"c{n % 2}", "b0") for n in (1, 2, 4)))
    mesh.run_until(lambda: all(broker.joined for broker in mesh.alive()))
    found = [Guest(mesh, f"c{n}") for n in range(6)]
    for guest in found:
        guest.arrive(leaving)
        guest.subscribe("t/#")
    drain = mesh.drain(leaving, Options(rate=2.0, grace=30.0))
    began = mesh.now
    for left in range(len(found) - 1, -1, -1):
        mesh.run_until(lambda left=left: drain.progress().clients <= left)  # type: ignore[misc]
    assert mesh.now - began >= (len(found) - 1) / 2 - 0.5, "too many at once"
    for guest in found:
        guest.hear()
    assert [guest.ended for guest in found] == [[Reason.USE_ANOTHER_SERVER]] * 6
    first = sorted(guest.told.split()[0] for guest in found)
    assert first == [f"{near.name}:1883"] * 3 + [f"{also_near.name}:1883"] * 3
    assert all(guest.told.split()[2] == f"{far.name}:1883" for guest in found)
    late = Guest(mesh, "late")
    late.connect(leaving)
    mesh.run(0.1)
    late.hear()
    assert (late.refused, bool(late.told)) == ([Reason.USE_ANOTHER_SERVER], True)
    for guest in found:
        assert guest.arrive(guest.where())
    mesh.run_until(lambda: not leaving.alive)


def test_what_nobody_asks_for_is_given_away_with_its_will_and_its_end() -> None:
    """A will that waits is published at its time by the other broker; a session ends when it would have."""
    mesh = Drains(2, check=False)
    leaving, *_ = brokers = mesh.build(3, 1)
    watcher = mesh.client(brokers[2], "wills/#")
    mesh.run_until(lambda: watcher.ready)
    will = Will("wills/c", b"gone", 1, properties={Property.WILL_DELAY: 30})
    guest = Guest(mesh, "c", will=will, expiry=40)
    guest.arrive(leaving)
    guest.subscribe("t/#")
    guest.lose()
    lost = mesh.now
    mesh.drain(leaving)
    mesh.run_until(lambda: not leaving.alive)
    (home,) = mesh.sessions("c")
    assert home != leaving.name
    mesh.run(lost + 29 - mesh.now)
    assert not watcher.got
    mesh.run(2)
    assert [got.payload for got in watcher.got] == [b"gone"]
    assert mesh.sessions("c") == [home]
    mesh.run(lost + 41 - mesh.now)
    assert not mesh.sessions("c")
    mesh.run(60)
    assert len(watcher.got) == 1


def test_a_will_is_published_only_if_the_client_goes_nowhere() -> None:
    """Sent away, it has not died: it gets the time it has when a broker leaves."""
    mesh = Drains(3, check=False)
    leaving, other, third = mesh.build(3, 1)
    watcher = mesh.client(third, "wills/#")
    mesh.run_until(lambda: watcher.ready)
    for name, expiry in (("comes", 3600), ("comes-anew", 0), ("gone", 3600), ("gone-anew", 0)):
        guest = Guest(mesh, name, will=Will(f"wills/{name}", name.encode(), 1), expiry=expiry)
        guest.arrive(leaving)
        guest.subscribe("t/#")
    drain = mesh.drain(leaving, Options(rate=1000.0, grace=60.0))
    mesh.run_until(lambda: drain.progress().clients == 0)
    sent = mesh.now
    for name in ("comes", "comes-anew"):
        back = Guest(mesh, name, expiry=3600 if name == "comes" else 0)
        back.arrive(other)
    mesh.run(sent + LEFT - 1 - mesh.now)
    assert not watcher.got
    mesh.run(LEFT)
    assert sorted(got.payload for got in watcher.got) == [b"gone", b"gone-anew"]


def test_where_nobody_takes_sessions_clients_are_to_come_back() -> None:
    """Nobody has room, or nobody else is there: no address is told, and the drain gets nowhere with
    sessions that are not stored; when it is ended everything is as before."""
    mesh = Drains(4, check=False)
    leaving, *others = mesh.build(3, 1)
    mesh.full = {broker.name for broker in others}
    guest, away = Guest(mesh, "c"), Guest(mesh, "away")
    for each in (guest, away):
        each.arrive(leaving)
        each.subscribe("t/#")
    away.lose()
    drain = mesh.drain(leaving, Options(rate=10.0, grace=1.0, timeout=5.0))
    mesh.run_until(lambda: drain.stage is Stage.STUCK)
    guest.hear()
    assert (guest.ended, guest.told) == ([Reason.SERVER_SHUTTING_DOWN], "")
    assert drain.progress().staying
    late = Guest(mesh, "late")
    late.connect(leaving)
    mesh.run(0.1)
    late.hear()
    assert late.refused == [Reason.SERVER_UNAVAILABLE]
    leaving.act(drain.cancel)
    assert guest.arrive(leaving)
    assert away.arrive(leaving)
    mesh.tell(others[0], 1, 2)
    mesh.run(2)
    guest.hear()
    assert guest.got[2] == [b"b1 1"]


def test_a_drain_that_is_ended_can_begin_again() -> None:
    mesh = Drains(5, check=False)
    leaving, other, _ = mesh.build(3, 1)
    guest = Guest(mesh, "c")
    guest.arrive(leaving)
    guest.subscribe("t/#")
    drain = mesh.drain(leaving, Options(rate=10.0, grace=30.0))
    mesh.run_until(lambda: not guest.alive)
    leaving.act(drain.cancel)
    assert drain.progress().stage is Stage.SERVING
    assert guest.arrive(leaving)
    mesh.run(60)
    guest.hear()
    assert guest.alive
    mesh.drain(leaving, Options(rate=10.0, grace=1.0, moved=True))
    mesh.run_until(lambda: not leaving.alive)
    guest.hear()
    assert guest.ended == [Reason.USE_ANOTHER_SERVER, Reason.SERVER_MOVED]
    assert guest.arrive(other)


@pytest.mark.parametrize("later", [0.0, 0.004, 0.01, 0.02, 0.04])
def test_a_session_on_its_way_to_a_broker_that_crashes_goes_to_another(later: float) -> None:
    mesh = Drains(6, check=False)
    leaving, other, third = mesh.build(3, 1)
    guest = Guest(mesh, "c")
    guest.arrive(leaving)
    guest.subscribe("t/#")
    guest.lose()
    mesh.tell(leaving, 1, 2)
    drain = mesh.drain(leaving)
    mesh.run_until(lambda: drain.progress().moving == 1)
    mesh.run(later)
    assert "c" in mesh.benches[leaving].frontend.sessions
    mesh.crash(other.name)
    mesh.run_until(lambda: not leaving.alive)
    assert mesh.sessions("c") == [third.name]
    assert guest.arrive(third)
    guest.until(lambda: guest.got[2] == [b"b0 1"])
