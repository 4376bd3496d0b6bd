"""Publications that follow each other travel as runs: the guarantees hold, also beside brokers that know no runs."""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saps.messages import Message, MessageRun, Reached
from saps.overlay.frames import Data, Frame, Run
from saps.overlay.keys import BrokerRef, KeyOrder
from saps.overlay.runs import MOST, singly
from saps.simulator import Network, SimBroker, Simulation

from .scenes import TOPICS, Recorder, random_step
from .test_guarantees import SEEDS

pytestmark = pytest.mark.simulation

SCHEDULES = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Mixed(Simulation):
    """A mesh in which links to some brokers carry no runs, as `saps.links` does with those of version 1."""

    def __init__(self, seed: int, order: KeyOrder = KeyOrder.CLUSTER, latency: float = 0.02) -> None:
        super().__init__(seed, network=Network(latency=(0.001, latency)), order=order)
        self.old: set[str] = set()
        self.runs = self.copies = 0
        """Frames with several publications, and copies of publications."""

    def _send(self, source: SimBroker, to: BrokerRef, frame: Frame) -> None:
        if isinstance(frame, Run) and to.name in self.old:
            for data in singly(frame):
                super()._send(source, to, data)
        else:
            super()._send(source, to, frame)
        if isinstance(frame, Run):
            self.runs += 1
        if isinstance(frame, Data | Run):
            self.copies += len(singly(frame))


class Bursts(Recorder):
    """Publishes several messages in one event: to one topic, or with others in between."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self._rng = random.Random(simulation.seed)

    def publish(self, broker: SimBroker, topic: str, qos: int) -> None:
        rng = self._rng
        wanted = [(topic, qos)] * rng.choice([1, 2, 5, 20])
        if rng.random() < 0.3:
            wanted.insert(rng.randrange(len(wanted)), (rng.choice(TOPICS), rng.choice((0, 1))))

        def act() -> None:
            while wanted:
                count = next((n for n, each in enumerate(wanted) if each != wanted[0]), len(wanted))
                count = rng.choice([1, count])
                self._publish(broker, *wanted[0], count)
                del wanted[:count]

        broker.act(act)

    def _publish(self, broker: SimBroker, topic: str, qos: int, count: int) -> None:
        payloads = [b"%d" % number for number in range(self._serial + 1, self._serial + count + 1)]
        self._serial += count
        self.published += [(self.moment(), broker, topic, qos, payload) for payload in payloads]

        def done(start: int, part: int, reached: Reached) -> None:
            for payload in payloads[start : start + part]:
                assert payload not in self.confirmed
                self.confirmed[payload] = reached

        if count > 1:
            broker.node.publish_run(MessageRun(topic, qos, payloads), done)
        else:
            broker.node.publish(Message(topic, payloads[0], qos), partial(done, 0, 1))
        dice = self._rng.random()
        if dice < 0.05:
            broker.node.obey(None)  # the stream is divided again between two messages of a run
        elif self.simulation.faulty and dice < 0.1:
            other = self._rng.choice([other for other in self.simulation.alive() if other is not broker])
            self.simulation.reset_link(broker.name, other.name)
            broker.node.link_down(other.ref)


@SCHEDULES
@given(SEEDS)
def test_bursts_under_churn_arrive_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    simulation = Mixed(seed, rng.choice(list(KeyOrder)), rng.choice([0.002, 0.02, 0.08]))
    simulation.build(6, 3)
    simulation.old = {name for name in simulation.brokers if rng.random() < 0.4}
    recorder = Bursts(simulation)
    for _ in range(60):
        random_step(rng, recorder, churn=True)
        simulation.run(rng.choice([0, 0, 0.001, 0.01, 0.05]))
    simulation.run(8)
    assert simulation.runs
    recorder.judge()


@SCHEDULES
@given(SEEDS)
def test_bursts_over_breaking_links_and_crashing_brokers_lose_no_qos_1(seed: int) -> None:
    rng = random.Random(seed)
    simulation = Mixed(seed, rng.choice(list(KeyOrder)), rng.choice([0.002, 0.02, 0.08]))
    simulation.build(6, 3)
    simulation.old = {name for name in simulation.brokers if rng.random() < 0.4}
    recorder = Bursts(simulation)
    for step in range(50):
        random_step(rng, recorder, churn=False)
        simulation.run(rng.choice([0, 0.001, 0.01, 0.05]))
        if rng.random() < 0.1:
            source, target = rng.sample(simulation.alive(), 2)
            simulation.reset_link(source.name, target.name)
        if step == 30:
            simulation.crash(rng.choice(simulation.alive()).name)
    simulation.run(12)
    assert simulation.runs
    recorder.judge(faulty=True)


@pytest.mark.parametrize("order", KeyOrder)
@pytest.mark.parametrize("qos", [0, 1])
def test_a_burst_costs_one_frame_for_each_member_and_one_copy_of_each_message(order: KeyOrder, qos: int) -> None:
    simulation = Mixed(1, order)
    simulation.build(7, 3)
    publisher, *others = simulation.alive()
    members = others[:4]
    for member in members:
        member.subscribe("a/b")
    publisher.publish("a/b", b"0")
    simulation.run(2)
    before = simulation.runs, simulation.copies, simulation.counters.by_kind.get("Ack", 0)
    confirmed: list[int] = []
    count = MOST + 10

    def done(start: int, part: int, reached: Reached) -> None:
        assert start == len(confirmed)
        confirmed.extend([reached.brokers] * part)

    def publish() -> None:
        publisher.node.publish_run(MessageRun("a/b", qos, [b"%d" % number for number in range(count)]), done)

    publisher.act(publish)
    simulation.run(2)
    assert simulation.runs - before[0] == 2 * len(members)
    assert simulation.copies - before[1] == count * len(members)
    assert simulation.counters.by_kind.get("Ack", 0) - before[2] == (2 * len(members) if qos else 0)
    assert confirmed == [len(members)] * count
    for member in members:
        assert [int(message.payload) for _, message in member.delivered[1:]] == list(range(count))


@given(seq=st.integers(1, 1 << 40), prev=st.integers(0, 1 << 40), payloads=st.lists(st.binary(max_size=3), min_size=1))
def test_a_run_is_its_publications_each_behind_the_one_before(seq: int, prev: int, payloads: list[bytes]) -> None:
    singles = singly(Run(1, seq, prev, 2, 100, "a", 1, payloads))
    assert [data.payload for data in singles] == payloads
    assert [data.seq for data in singles] == list(range(seq, seq + len(payloads)))
    assert [data.prev for data in singles] == [prev, *(data.seq for data in singles[:-1])]
    assert [data.token for data in singles] == list(range(101, 101 + len(payloads)))


def test_who_records_publications_is_told_of_the_messages_that_subscribers_hold() -> None:
    simulation = Mixed(1)
    simulation.build(2, 1)
    publisher, member = simulation.alive()
    member.subscribe("a")
    publisher.publish("a", b"0")
    simulation.run(2)
    told: list[Message] = []
    publisher.node.multicast.seen = lambda message, origin, seq: told.append(message)
    run = MessageRun("a", 1, [b"1", b"2", b"3"])
    publisher.act(lambda: publisher.node.publish_run(run, None))
    simulation.run(2)
    assert all(one is other for one, other in zip(told, run.messages, strict=True))
    assert [message.payload for _, message in member.delivered] == [b"0", b"1", b"2", b"3"]
