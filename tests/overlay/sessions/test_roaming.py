"""Sessions that follow their clients, on the simulator: one client, one session, nothing lost and nothing twice."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.codec.packets import V5, V311, Disconnect, Will
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import Reason
from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Body, Broadcast, Claim, Locate
from saps.overlay.rendezvous.range_calls import Outcome
from saps.overlay.ring.keys import BrokerRef, Range
from saps.overlay.sessions.claiming import AGAIN
from saps.overlay.sessions.directory import partition_of
from saps.overlay.sessions.replicas.holders import CONFIRM
from saps.overlay.sessions.replicas.source import EXCHANGE
from saps.routing.batch import Batch
from saps.simulator import Network, SimBroker
from tests import marks
from tests.drawn import schedules
from tests.overlay.hubs import Client as Watcher
from tests.overlay.replicated import Replicated
from tests.overlay.roams import Nomad, Roams

pytestmark = pytest.mark.simulation

SEEDS = st.integers(0, 2**32 - 1)
SCHEDULES = schedules(2)


def test_a_session_follows_its_client() -> None:
    mesh = Roams(1)
    one, two, three = mesh.build(3, 2)
    nomad = Nomad(mesh, "c")
    assert not nomad.arrive(one)
    nomad.subscribe("t/#")
    number = 0
    for home in (two, three, one, two):
        for _ in range(10):
            number += 1
            mesh.tell(three, number, 1 + number % 2)
        assert nomad.arrive(home), home.name
        assert mesh.sessions("c") == [home.name]
    mesh.run(2)
    nomad.until(lambda: len(nomad.got[1]) + len(nomad.got[2]) >= number)
    mesh.run(1)
    nomad.hear()
    for qos in (1, 2):
        assert nomad.got[qos] == [b"b2 %d" % n for n in range(1, number + 1) if 1 + n % 2 == qos]
    assert nomad.ended == []  # it has not listened to its old connections any more


def test_a_session_with_nothing_in_it_is_the_clients_session_anywhere() -> None:
    """A client that keeps to MQTT-3.2.2-5 drops its unacknowledged publications when there is none any more."""
    mesh = Roams(1)
    one, two, three = mesh.build(3, 2)
    nomad = Nomad(mesh, "c")
    assert [nomad.arrive(home) for home in (one, one, two)] == [False, True, True]
    nomad.lose()
    mesh.run(1)
    assert nomad.arrive(three)
    assert mesh.sessions("c") == ["b2"]


@pytest.mark.parametrize("steps", [0, 1, 3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_a_broker_that_stops_while_a_session_is_on_its_way_hands_it_over(seed: int, steps: int) -> None:
    mesh = Roams(seed, network=Network(latency=(0.001, 0.01)))
    one, two, three = mesh.build(3, 2)
    nomad = Nomad.at(one, mesh)
    nomad.lose()
    for number in range(10):
        mesh.tell(three, number, 1)
    mesh.run(1)
    nomad.connect(two)
    mesh.run_until(lambda: "c" in one.node.sessions.migrations.source.leaving)
    for _ in range(steps):
        mesh.step()
    one.act(mesh.benches[one].frontend.sessions.close)
    one.leave()
    nomad.until(lambda: nomad.greeted and len(nomad.got[1]) == 10)
    assert nomad.present[-1]
    for topic in (0, 1):
        assert [p for p in nomad.got[1] if int(p[3:]) % 2 == topic] == [b"b2 %d" % n for n in range(topic, 10, 2)]
    mesh.run_until(lambda: not one.alive)


class Journey:
    """A client that goes from broker to broker while two brokers that never die publish to it, and its judge."""

    def __init__(self, seed: int, **network: object) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        slow = self.rng.choice([0.002, 0.03])
        self.mesh = Roams(seed, network=Network(latency=(0.001, slow), **network), check=False)  # type: ignore[arg-type]
        self.mesh.build(5, 2)
        self.mesh.run(1)
        self.speakers = self.mesh.alive()[:2]
        self.nomad = Nomad(self.mesh, "c", self.rng.choice([V311, V5]))
        self.owed: dict[int, list[bytes]] = {1: [], 2: []}
        """What was published while the client had a session."""
        self.kept = True
        """The session outlives what happens next."""
        self.greetings = 0
        self.number = 0
        self.nomad.arrive(self.speakers[0])
        self.subscribe()

    def subscribe(self) -> None:
        self.nomad.subscribe("t/1/+", "t/+/0", "t/2/#")
        self.mesh.run(1)
        self.owed = {1: [], 2: []}
        for qos in (1, 2):
            self.nomad.got[qos].clear()
        self.greetings = len(self.nomad.present)

    def tell(self) -> None:
        """One of the two publishes."""
        self.number += 1
        speaker, qos = self.rng.choice(self.speakers), self.rng.choice([1, 2])
        self.owed[qos].append(b"%s %d" % (speaker.name.encode(), self.number))
        self.mesh.tell(speaker, self.number, qos)

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()
            self.mesh.run(self.rng.choice([0, 0, 0.001, 0.01, 0.05, 0.3]))

    def step(self) -> None:
        if self.rng.random() < 0.6:
            self.tell()
        else:
            self.nomad.wander(self.rng, 0.25)

    def settle(self) -> None:
        """The client comes to rest at a broker, which lets it in, and hears all. A CONNECT that it made elsewhere and
        that is still under way may count as the later one, as clocks differ: then it tries again."""
        nomad = self.nomad
        for _ in range(20):
            nomad.connect(self.rng.choice(self.mesh.alive()))
            self.listen(6)
            if nomad.alive and nomad.greeted:
                break
        assert nomad.greeted, f"not let in (seed {self.seed}): {nomad.refused}"

    def listen(self, seconds: float) -> None:
        """The client takes and acknowledges what comes."""
        for _ in range(int(seconds / 0.2)):
            self.nomad.hear()
            self.nomad.answer()
            self.mesh.run(0.2)

    def judge(self) -> None:
        """Nothing lost, nothing of QoS 2 twice, nothing of QoS 1 twice without DUP; in each publisher's order."""
        nomad, where = self.nomad, f"(seed {self.seed})"
        assert all(nomad.present[self.greetings :]), f"the session was lost {where}"
        assert max(nomad.plain.values(), default=0) <= 1, f"twice without DUP {where}: {nomad.plain.most_common(3)}"
        assert not nomad.client.closed, where  # type: ignore[union-attr]
        for qos in (1, 2):
            got = nomad.got[qos] if qos == 2 else list(dict.fromkeys(nomad.got[qos]))
            assert sorted(got) == sorted(self.owed[qos]), f"QoS {qos} {where}: {difference(got, self.owed[qos])}"
            for speaker in self.speakers:
                for parity in (0, 1):
                    mine = [n for n in numbers(got, speaker.name) if n % 2 == parity]
                    assert mine == sorted(mine), f"disorder {where}"


def numbers(payloads: list[bytes], name: str) -> list[int]:
    return [int(payload.split()[1]) for payload in payloads if payload.split()[0] == name.encode()]


def difference(got: list[bytes], owed: list[bytes]) -> str:
    return f"missing {sorted(set(owed) - set(got))}, beyond {[p for p in got if got.count(p) > 1 or p not in owed]}"


@SCHEDULES
@given(SEEDS)
def test_whatever_way_a_client_goes_it_gets_everything_once(seed: int) -> None:
    """Brokers live, links break now and then."""
    journey = Journey(seed, reset=random.Random(seed).choice([0.0, 0.002]))
    journey.steps(120)
    journey.settle()
    journey.listen(6)
    assert not journey.nomad.misled(), f"the session was lost (seed {seed})"
    journey.judge()
    assert journey.nomad.broker is not None
    assert journey.mesh.sessions("c") == [journey.nomad.broker.name], f"seed {seed}"


@SCHEDULES
@given(SEEDS)
def test_a_crash_costs_a_session_only_if_it_was_there_alone(seed: int) -> None:
    """Brokers die while the session is at one of them, or between two; new ones join. As long as a broker that had it
    lives, it is found again, with everything in it; and never comes a message of QoS 2 twice."""
    journey = Journey(seed)
    mesh, rng, nomad = journey.mesh, journey.rng, journey.nomad
    for crash in range(3):
        journey.steps(25)
        victims = [broker for broker in mesh.alive() if broker not in journey.speakers]
        involved = [broker for broker in victims if "c" in mesh.benches[broker].frontend.sessions]
        if rng.random() < 0.5:  # in the midst of it
            nomad.connect(rng.choice(mesh.alive()))
            mesh.run(rng.uniform(0, 0.1))
        victim = rng.choice(involved or victims)
        survives = bool(set(mesh.complete("c")) - {victim.name})
        mesh.crash(victim.name)
        mesh.add(f"new{crash}", "c1", journey.speakers[0].name)
        for _ in range(10):
            journey.step()
            mesh.run(rng.choice([0.01, 0.3]))
        journey.settle()
        journey.listen(8)
        misled = nomad.misled()
        if survives:
            assert not misled, f"the session was lost (seed {seed})"
            journey.judge()
        twice = [payload for payload in set(nomad.got[2]) if nomad.got[2].count(payload) > 1]
        assert not twice, f"QoS 2 came twice (seed {seed}): {twice}"
        journey.subscribe()


@SCHEDULES
@given(SEEDS)
def test_of_several_that_connect_at_once_one_stays(seed: int) -> None:
    """Clients of one name connect to all brokers within a moment: in the end one is connected, and has the session;
    each of the others was let in, and then told that its session has been taken over."""
    rng = random.Random(seed)
    mesh = Roams(seed, network=Network(latency=(0.001, rng.choice([0.002, 0.03]))), check=False)
    brokers = mesh.build(4, 2)
    nomads = [Nomad(mesh, "c") for _ in brokers]
    if with_session := rng.random() < 0.5:
        home = rng.choice(brokers)
        first = Nomad.at(home, mesh)
        first.lose()
    for nomad, broker in zip(nomads, rng.sample(brokers, 4), strict=True):
        nomad.connect(broker)
        mesh.run(rng.choice([0, 0, 0.002, 0.02]))
    mesh.run(15)
    for nomad in nomads:
        nomad.hear()
    stayed = [nomad for nomad in nomads if nomad.alive]
    assert len(stayed) == 1, f"{len(stayed)} are connected (seed {seed})"
    assert stayed[0].broker is not None
    assert mesh.sessions("c") == [stayed[0].broker.name], f"seed {seed}"
    assert all(nomad.greeted and not nomad.refused for nomad in nomads), f"seed {seed}"
    gone = [nomad.ended for nomad in nomads if nomad not in stayed]
    assert gone == [[Reason.SESSION_TAKEN_OVER]] * 3, f"seed {seed}"
    assert stayed[0].present == [True] or not with_session, f"seed {seed}"


@SCHEDULES
@given(SEEDS)
def test_after_a_partition_the_session_of_the_last_connect_stays(seed: int) -> None:
    """Cut off from where its session is, the client gets another one on its side; when the partition has healed the
    earlier one ends, whether its client is connected or not."""
    rng = random.Random(seed)
    mesh = Roams(seed, check=False)
    brokers = mesh.build(4, 2)
    nomad = Nomad(mesh, "c")
    nomad.arrive(brokers[0])
    nomad.subscribe("t/#")
    if rng.random() < 0.5:
        nomad.lose()
    mesh.partition([brokers[0].name, brokers[1].name])
    mesh.run(rng.choice([0.5, 6]))
    nomad.connect(brokers[2])
    mesh.run(12)
    nomad.hear()
    assert nomad.greeted
    assert not nomad.present[-1]
    nomad.subscribe("t/#")
    mesh.heal()
    mesh.run(25)
    nomad.hear()
    assert mesh.sessions("c") == [brokers[2].name], f"seed {seed}"
    assert nomad.alive
    mesh.tell(brokers[0], 1, 2)
    mesh.run(2)
    nomad.hear()
    assert nomad.got[2] == [b"b0 1"]


def test_a_will_is_void_when_the_client_is_back_elsewhere_within_its_delay() -> None:
    mesh = Roams(5)
    brokers = mesh.build(3, 2)
    watcher = mesh.client(brokers[2], "wills/#")
    mesh.run_until(lambda: watcher.ready)
    for name, delay in (("patient", 30), ("late", 3), ("none", 0)):
        will = Will(f"wills/{name}", name.encode(), 1, properties={Property.WILL_DELAY: delay})
        nomad = Nomad(mesh, name, will=will)
        nomad.arrive(brokers[0])
        nomad.subscribe("t/#")
        nomad.lose()
        mesh.run(1 if name == "patient" else 5)
        nomad.will = None
        assert nomad.arrive(brokers[1])
    mesh.run(60)
    assert heard(watcher) == ["late", "none"]


def heard(watcher: Watcher) -> list[str]:
    return [got.payload.decode() for got in watcher.got]


def test_the_session_of_another_user_is_left_alone() -> None:
    mesh = Roams(6)
    one, two, _ = mesh.build(3, 2)
    owner, thief = Nomad(mesh, "c"), Nomad(mesh, "c")
    owner.arrive(one)
    owner.subscribe("t/#")
    thief.connect(two, user="mallory")
    mesh.run(2)
    for nomad in (owner, thief):
        nomad.hear()
    assert thief.refused == [Reason.NOT_AUTHORIZED]
    assert owner.alive
    assert not owner.ended
    assert mesh.sessions("c") == ["b0"]
    owner.lose()
    assert owner.arrive(two)


def test_a_member_of_a_group_takes_its_place_along() -> None:
    mesh = Roams(7)
    one, two, three = mesh.build(3, 2)
    member = Nomad(mesh, "c")
    member.arrive(one)
    member.subscribe("$share/g/t/#")
    for number in range(30):
        mesh.tell(three, number, 1)
        if number % 10 == 5:
            assert member.arrive((two, three, one)[number // 10])
    member.until(lambda: len(set(member.got[1])) == 30)


def test_a_clean_start_ends_the_session_elsewhere() -> None:
    mesh = Roams(8)
    one, two, _ = mesh.build(3, 2)
    nomad = Nomad.at(one, mesh)
    assert not nomad.arrive(two, clean=True)
    mesh.run(1)
    assert mesh.sessions("c") == ["b1"]
    assert not mesh.hubs[one].index.targets("t/x")


def test_a_broker_alone_says_nothing_and_tells_all_when_others_come() -> None:
    mesh = Roams(9)
    one = mesh.add("b0")
    nomad = Nomad.at(one, mesh)
    assert not mesh.counters.frames
    two = mesh.add("b1", contact="b0")
    mesh.run_until(lambda: two.joined)
    assert nomad.arrive(two)
    assert mesh.sessions("c") == ["b1"]


def test_a_client_that_is_back_as_its_session_leaves_follows_it() -> None:
    """The broker had not said yet that the session had left, and began another one."""
    mesh = Roams(1)
    one, two, _ = mesh.build(3)
    nomad = Nomad.at(one, mesh)
    nomad.connect(two)
    mesh.run_until(lambda: mesh.sessions("c") == [two.name])
    assert nomad.arrive(one)
    assert mesh.sessions("c") == [one.name]


def test_the_directory_forgets_whose_sessions_have_ended() -> None:
    mesh = Roams(10, check=False)
    brokers = mesh.build(4, 2)
    for number in range(40):
        nomad = Nomad(mesh, f"c{number}", expiry=0)
        nomad.arrive(brokers[number % 4])
        assert nomad.client is not None
        if number % 2:
            brokers[number % 4].act(lambda client=nomad.client: client.send(Disconnect()))  # type: ignore[misc]
        else:
            nomad.lose()
    mesh.run(10)
    assert any(broker.node.sessions.directory.partitions for broker in brokers)
    assert not sum(len(broker.node.sessions.directory) for broker in brokers)


def test_a_session_moves_although_what_is_under_way_does_not_settle(caplog: pytest.LogCaptureFixture) -> None:
    """The target waited for longer than the source for the target, which kept the session: it never moved
    (`make chaos`)."""
    mesh = Roams(1)
    one, two, _ = mesh.build(3, 2)
    nomad = Nomad.at(one, mesh)
    target = two.node.sessions.migrations.target
    target._publications = Held()
    target._calls = Unanswered(mesh)  # type: ignore[assignment]
    assert nomad.arrive(two)
    assert mesh.sessions("c") == [two.name]
    assert "a session moves before all is settled: not all publishers' brokers have answered" in caplog.text


class Held:
    """A publication waits at the broker, and its predecessor never comes."""

    cut = False

    @property
    def adopting(self) -> dict[int, BrokerRef]:
        return {}

    def waiting(self, topic_filters: list[str]) -> bool:
        return True

    def queued(self) -> Callable[[], bool]:
        return lambda: True

    def passed(self, origin: BrokerRef, topic: str) -> int:
        return 0

    def brings(self, topic_filters: list[str]) -> list[tuple[str, int, int]]:
        return []

    def missed_by(self, broker: BrokerRef, topic_filters: list[str]) -> list[Batch]:
        return []


class Unanswered:
    """Range calls that reach nobody."""

    def __init__(self, mesh: Roams) -> None:
        self._mesh = mesh

    def call(self, wanted: Range, body: Body, done: Callable[[Outcome], None], attempts: int) -> None:
        self._mesh.at(self._mesh.now + 4.9, lambda: done(Outcome([], complete=False, depth=0)))


@pytest.mark.parametrize("silent", [7.0, 40.0])
@marks.expect("a client is to try again, as its session was not found")
def test_a_client_whose_session_is_not_found_is_told_to_try_again_for_a_time(
    silent: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker that it connects to does not reach the holders of the session directory."""
    mesh = Roams(1)
    one, two, *others = mesh.build(6)
    nomad = Nomad.at(one, mesh)
    nomad.lose()
    mesh.tell(two, 0, 2)
    mesh.run(1)
    far = next(each for each in others if partition_of("c") not in each.node.sessions.directory.partitions)
    since, send = mesh.now, mesh._send

    def but_claims(source: SimBroker, to: BrokerRef, frame: Frame) -> None:
        lost = isinstance(frame, (Locate, Broadcast)) and isinstance(frame.body, Claim)
        if not (lost and source is far and mesh.now < since + silent):
            send(source, to, frame)

    monkeypatch.setattr(mesh, "_send", but_claims)
    while len(nomad.present) == 1:
        refused = len(nomad.refused)
        nomad.connect(far)
        while len(nomad.present) == 1 and len(nomad.refused) == refused:
            mesh.run(0.1)
            nomad.hear()
    found = silent < AGAIN
    assert set(nomad.refused) == {Reason.SERVER_BUSY}
    assert nomad.present == [False, found]
    assert mesh.now - since <= AGAIN + 5
    nomad.until(lambda: nomad.got[2] == ([b"b1 0"] if found else []))


@marks.expect("released for a session that has ended elsewhere")
def test_a_client_that_had_another_session_beyond_a_cut_takes_no_later_message_for_one_of_that() -> None:
    """It had not released what it had got there, and dropped messages that had the same identifiers (55 of QoS 2 in 28
    minutes of `make chaos`)."""
    mesh = Replicated(1)
    home, away, *_ = mesh.build(6, clusters=2)
    nomad = Nomad(mesh, "c")
    nomad.arrive(home)
    nomad.subscribe("t/2/0")
    mesh.run(2 * CONFIRM + EXCHANGE)
    mesh.partition([broker.name for broker in mesh.alive() if broker.ref.cluster == home.ref.cluster])
    mesh.run(4)
    assert not nomad.arrive(away)
    nomad.subscribe("t/2/1")
    mesh.run(1)
    for number in range(20):
        mesh.tell(away, 2 * number + 1, 2)
    mesh.run(1)
    nomad.hear()
    assert len(nomad.got[2]) == 20
    mesh.heal()
    nomad.connect(home)
    nomad.until(lambda: nomad.greeted)
    nomad.attend(10)
    for number in range(100):
        mesh.tell(home, 2 * number, 2)
    nomad.until(lambda: len(nomad.got[2]) == 120)
