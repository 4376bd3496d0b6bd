"""The broker that has logged what others miss restarts itself, with its files, before the cut is over."""

from __future__ import annotations

import random

import pytest

from saps.overlay.missed.catchup import LINGER
from saps.overlay.missed.heirs import KEPT
from saps.simulator import Network, SimBroker, Simulation
from saps.topics import matches
from tests import marks
from tests.drawn import seeds
from tests.overlay.missed_files import Files, keep_missed
from tests.overlay.scenes import Recorder

pytestmark = pytest.mark.simulation

TOPICS, FILTERS = ("a", "a/b", "x", "y/1"), ("a", "a/#", "x", "+/b", "y/+", "#")


class Filed(Simulation):
    """Brokers whose logs are in files."""

    def __init__(self, seed: int, network: Network | None = None) -> None:
        super().__init__(seed, network=network or Network(), check=False)
        self.files: dict[str, Files] = {}

    def attach(self, broker: SimBroker) -> None:
        keep_missed(broker, self.files.setdefault(broker.ref.name, {}))


def restart(simulation: Filed, broker: SimBroker, contact: str | None) -> SimBroker:
    simulation.crash(broker.name)
    simulation.run(random.Random(simulation.now).uniform(0.1, 6))
    return simulation.add(broker.name, broker.ref.cluster, contact)


@marks.expect("log of an earlier incarnation")
@pytest.mark.parametrize("alone", [False, True], ids=["beside others", "alone on its side"])
@pytest.mark.parametrize("restarts", [1, 3])
def test_what_was_missed_is_made_up_by_the_next_life(alone: bool, restarts: int) -> None:
    simulation = Filed(1)
    publisher, subscriber, *others = simulation.build(2 if alone else 3)
    for broker in (subscriber, *others):
        broker.subscribe("t")
    simulation.run(2)
    publisher.publish("t", b"before", 2)
    simulation.run(2)
    simulation.partition([subscriber.name])
    publisher.publish("t", b"in doubt", 2)
    simulation.run(5)
    for number in range(10):
        publisher.publish("t", b"%d" % number, 1 + number % 2)
    simulation.run(2)
    for number in range(restarts):
        publisher = restart(simulation, publisher, others[0].name if others else None)
        simulation.run(10)
        publisher.publish("t", b"later %d" % number, 2)
        simulation.run(1)
    simulation.heal()
    simulation.run(20)
    publisher.publish("t", b"after", 1)
    simulation.run(3)
    owed = [b"before", b"in doubt", *(b"%d" % n for n in range(10)), *(b"later %d" % n for n in range(restarts))]
    assert [message.payload for _, message in subscriber.delivered] == [*owed, b"after"]
    for broker in others:
        assert [message.payload for _, message in broker.delivered] == [*owed, b"after"]
    simulation.run(LINGER + 10)
    assert not simulation.files[publisher.name]
    assert not publisher.node.delivery.catch_up.lags


def after_a_cut(missed: int) -> tuple[Filed, SimBroker, SimBroker, SimBroker]:
    """A publisher, a subscriber that was cut off from it, and another broker; the cut is over."""
    simulation = Filed(2)
    publisher, subscriber, other = simulation.build(3)
    subscriber.subscribe("t")
    simulation.run(2)
    publisher.publish("t", b"before", 2)
    simulation.partition([subscriber.name])
    simulation.run(5)
    for number in range(missed):
        publisher.publish("t", b"%d" % number, 2)
    simulation.run(1)
    simulation.heal()
    return simulation, publisher, subscriber, other


def test_a_restart_while_it_makes_up_repeats_nothing() -> None:
    simulation, publisher, subscriber, other = after_a_cut(4000)
    simulation.run_until(lambda: 500 < len(subscriber.delivered) < 3000, 20.0)
    publisher = restart(simulation, publisher, other.name)
    publisher.publish("t", b"after", 2)
    simulation.run(30)
    got = [message.payload for _, message in subscriber.delivered]
    assert got == [b"before", *(b"%d" % number for number in range(4000)), b"after"]


def test_a_restart_after_all_was_made_up_sends_nothing_again() -> None:
    """The later life did not know who had been served: it sent all of its log again, for sessions that had moved too,
    and those that had been adopted could not tell that they had it."""
    simulation, publisher, subscriber, other = after_a_cut(10)
    catch_up = publisher.node.delivery.catch_up
    simulation.run_until(lambda: len(subscriber.delivered) == 11 and not catch_up.lags, 10.0)
    publisher = restart(simulation, publisher, other.name)
    simulation.run_until(lambda: publisher.joined, 30.0)
    simulation.run(20)
    assert publisher.node.delivery.catch_up.log.earlier >= 11
    assert publisher.node.delivery.catch_up.sending.made_up == 0


@marks.expect("an incarnation that is over was asked what it wants")
def test_the_log_ends_after_the_logging_and_the_lost_broker_have_both_restarted() -> None:
    """The lost incarnation was asked every second for ever what it wanted, and the log went on (`make jepsen`)."""
    simulation, publisher, subscriber, other = after_a_cut(10)
    simulation.partition([subscriber.name])
    simulation.crash(subscriber.name)
    simulation.crash(publisher.name)
    simulation.heal()
    simulation.add(subscriber.name, subscriber.ref.cluster, other.name)
    simulation.run(5)
    publisher = simulation.add(publisher.name, publisher.ref.cluster, other.name)
    catch_up = publisher.node.delivery.catch_up
    assert subscriber.ref in catch_up.lags
    simulation.run(KEPT + LINGER + 10)
    assert not catch_up.lags
    assert not catch_up.log.active


@seeds(4)
def test_nothing_is_lost_or_doubled_if_brokers_restart_during_a_cut(seed: int) -> None:
    """On both sides, while others publish; those that restart have no sessions, and so nothing is owed to them."""
    rng = random.Random(seed)
    simulation = Filed(seed, Network(latency=(0.001, rng.choice([0.002, 0.02]))))
    brokers, recorder = simulation.build(rng.choice([3, 4, 6]), 2), Recorder(simulation)
    stay = brokers[1:]  # these are never restarted
    for broker in stay:
        for topic_filter in rng.sample(FILTERS, rng.choice([1, 2])):
            recorder.subscribe(broker, topic_filter)
    simulation.run(2)
    restarting = brokers[0]

    def publish(seconds: float, most: int = 25) -> None:
        for _ in range(most):
            broker = restarting if rng.random() < 0.7 else rng.choice(stay)
            recorder.publish(broker, rng.choice(TOPICS), rng.choice([1, 2]))
            simulation.run(seconds / most)

    publish(1)
    for _ in range(2):
        side = [broker.name for broker in rng.sample(stay, rng.randrange(1, len(stay)))]
        simulation.partition(side)
        publish(rng.choice([3, 12, 40]))
        simulation.run(3)
        here = [broker for broker in stay if broker.name not in side]
        restarting = restart(simulation, restarting, rng.choice(here).name)
        simulation.run_until(lambda: restarting.joined, 30.0)  # noqa: B023
        publish(rng.choice([1, 5]))
        simulation.heal()
        publish(rng.choice([1, 12]))
        simulation.run(rng.choice([2, 20]))
    simulation.run(30)
    for broker, intervals in recorder.intervals.items():
        got = [message.payload for _, message in broker.delivered]
        for moment, publisher, topic, _, payload in recorder.published:
            owed = any(matches(i.topic_filter, topic) and i.ready and i.ready < moment for i in intervals)
            if owed and publisher is not broker and payload in recorder.confirmed:
                assert got.count(payload) == 1, f"{payload!r} to {topic} from {publisher.name} at {broker.name}"
        for topic in TOPICS:
            for name in {publisher.name for _, publisher, *_ in recorder.published}:
                mine = {p: n for n, (_, b, t, _, p) in enumerate(recorder.published) if (b.name, t) == (name, topic)}
                order = [mine[payload] for payload in got if payload in mine]
                assert order == sorted(order), f"{topic} from {name} at {broker.name}"


def test_an_heir_gets_nothing_from_before_the_last_incarnation_of_the_owner() -> None:
    """The owner restarts, and its second incarnation ends; then the publisher restarts. Its log has what it published
    all along, and heirs of the second incarnation ask for a filter that the publisher never heard of."""
    simulation = Filed(1)
    publisher, owner, away, other = simulation.build(4)
    away.subscribe("t")
    owner.subscribe("t")
    simulation.run(2)
    simulation.partition([away.name])
    simulation.run(5)
    publisher.publish("t", b"first", 2)
    simulation.run(2)
    owner = restart(simulation, owner, other.name)
    simulation.run(10)
    owner.subscribe("t")
    simulation.run(2)
    publisher.publish("t", b"second", 2)
    simulation.run(2)
    simulation.crash(owner.name)
    simulation.run(5)
    publisher.publish("t", b"missed", 2)
    simulation.run(2)
    publisher = restart(simulation, publisher, other.name)
    simulation.run(10)
    bodies = publisher.node.delivery.catch_up.heirs.missed_by(owner.ref, ["#"])
    assert [payload for body in bodies for payload in body.payloads] == [b"missed"]
