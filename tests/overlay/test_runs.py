"""Publications that follow each other travel as runs, stretches and bundles: the guarantees hold, also beside brokers
that know none of them."""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saps.messages import Message, MessageRun, Reached
from saps.overlay.custody import Custody, Owed
from saps.overlay.frames import Ack, Bundle, Data, Frame, Part, ProtocolError, Run, Stretch
from saps.overlay.keys import BrokerRef, KeyOrder
from saps.overlay.runs import Several, check, length, singly, stretch_of
from saps.overlay.tree import Branch
from saps.plain import MOST_TOGETHER
from saps.simulator import Network, SimBroker, Simulation
from saps.statistics import Statistics
from tests.encoded import encoded_of

from .scenes import TOPICS, Recorder, random_step
from .test_guarantees import SEEDS

pytestmark = pytest.mark.simulation

SCHEDULES = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Mixed(Simulation):
    """A mesh in which links to some brokers carry single publications only, as `saps.links` does with those of version
    1."""

    def __init__(self, seed: int, order: KeyOrder = KeyOrder.CLUSTER, latency: float = 0.02) -> None:
        super().__init__(seed, network=Network(latency=(0.001, latency)), order=order)
        self.old: set[str] = set()
        self.runs = self.stretches = self.bundles = self.copies = 0
        """Frames with several publications, and copies of publications."""

    def _send(self, source: SimBroker, to: BrokerRef, frame: Frame) -> None:
        if isinstance(frame, Several) and to.name in self.old:
            for data in singly(frame):
                super()._send(source, to, data)
        else:
            super()._send(source, to, frame)
        if isinstance(frame, Run):
            self.runs += 1
        self.stretches += isinstance(frame, Stretch)
        self.bundles += isinstance(frame, Bundle)
        if isinstance(frame, Data | Several):
            self.copies += length(frame)


class Bursts(Recorder):
    """Publishes several messages in one event: to one topic, or with others in between."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self._rng = random.Random(simulation.seed)

    def begin(self) -> None:
        """Nothing goes as a stretch before its way is known: let that be so for two topics of one broker."""
        first, *others = self.simulation.alive()
        for broker in others[:2]:
            self.subscribe(broker, "#")
        self.simulation.run(1)
        for topic in TOPICS[:2]:
            super().publish(first, topic, 0)
        self.simulation.run(1)

    def publish(self, broker: SimBroker, topic: str, qos: int) -> None:
        rng = self._rng
        there = [each for each in self.simulation.alive() if each.joined and not each.node.leaving]
        if rng.random() < 0.7:
            topic, broker = rng.choice(TOPICS[:2]), there[0]
        wanted = [(topic, qos)] * rng.choice([1, 2, 5, 20])
        if rng.random() < 0.3:
            wanted.insert(rng.randrange(len(wanted)), (rng.choice(TOPICS), rng.choice((0, 1))))

        def act() -> None:
            if rng.random() < 0.6:
                several = rng.choice(([topic], TOPICS[:2], TOPICS))
                topics = [rng.choice(several) for _ in range(rng.choice([2, 5, 20]))]
                if qos:
                    self.together(broker, topics)()
                else:
                    self._publish_stretch(broker, topics)
            while wanted:
                count = next((n for n, each in enumerate(wanted) if each != wanted[0]), len(wanted))
                count = rng.choice([1, count])
                self._publish(broker, *wanted[0], count)
                del wanted[:count]

        broker.act(act)

    def _publish_stretch(self, broker: SimBroker, topics: list[str]) -> None:
        sent = [(each, b"%d" % number) for number, each in enumerate(topics, self._serial + 1)]
        self._serial += len(sent)
        self.published += [(self.moment(), broker, each, 0, payload) for each, payload in sent]
        broker.node.publish_stretch(encoded_of(sent, self._rng.choice((4, 5))))

    def _publish(self, broker: SimBroker, topic: str, qos: int, count: int) -> None:
        payloads = [b"%d" % number for number in range(self._serial + 1, self._serial + count + 1)]
        self._serial += count
        self.published += [(self.moment(), broker, topic, qos, payload) for payload in payloads]
        done = partial(self.confirm, payloads)
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
    recorder.begin()
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
    recorder.begin()
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
    count = MOST_TOGETHER + 10

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


@pytest.mark.parametrize("order", KeyOrder)
def test_a_stretch_keeps_the_publisher_s_order_between_topics_at_one_frame_for_each_member(order: KeyOrder) -> None:
    """Also if some members know no stretches, and where runs and single messages stand before and behind it."""
    simulation = Mixed(1, order)
    simulation.build(7, 3)
    publisher, *others = simulation.alive()
    for member in others[:4]:
        member.subscribe("a/+")
    for topic in ("a/1", "a/2", "a/3"):
        publisher.publish(topic, b"0")
    simulation.run(2)
    before = simulation.stretches, simulation.copies
    sent = [(f"a/{number * number % 3 + 1}", b"%d" % number) for number in range(1, 41)]

    def publish() -> None:
        node = publisher.node
        node.publish_run(MessageRun("a/2", 0, [b"first", b"second"]), None)
        node.publish_stretch(encoded_of(sent))
        node.publish(Message("a/2", b"last"), None)

    publisher.act(publish)
    simulation.run(2)
    assert (simulation.stretches - before[0], simulation.copies - before[1]) == (4, 4 * 43)
    simulation.old = {broker.name for broker in others[:2]}
    publisher.act(publish)
    simulation.run(2)
    once = [b"first", b"second", *(payload for _, payload in sent), b"last"]
    for member in others[:4]:
        assert [message.payload for _, message in member.delivered[3:]] == 2 * once


def test_what_must_be_looked_at_message_by_message_is_not_sent_as_a_stretch() -> None:
    """Here the members of two topics differ: all arrives, in order."""
    simulation = Mixed(1)
    simulation.build(4, 2)
    publisher, *others = simulation.alive()
    for member, topic_filter in zip(others, ("a", "#", "#"), strict=True):
        member.subscribe(topic_filter)
    for topic in ("a", "b"):
        publisher.publish(topic, b"0")
    simulation.run(2)
    sent = [("ab"[number % 2], b"%d" % number) for number in range(10)]
    publisher.act(lambda: publisher.node.publish_stretch(encoded_of(sent)))
    simulation.run(2)
    assert not simulation.stretches
    for member, topics in zip(others, ("a", "ab", "ab"), strict=True):
        expected = [payload for topic, payload in sent if topic in topics]
        assert [message.payload for _, message in member.delivered][1 + (topics == "ab") :] == expected


@given(
    first=st.integers(1, 1 << 40),
    prev=st.integers(0, 1 << 40),
    which=st.lists(st.integers(0, 2), min_size=1, max_size=9),
)
def test_a_stretch_is_its_publications_each_behind_the_one_before_to_its_topic(
    first: int, prev: int, which: list[int]
) -> None:
    sent = [("abc"[number], b"%d" % place) for place, number in enumerate(which)]
    found = encoded_of(sent)
    parts = [Part(topic, first + 1000 * number, prev + number) for number, topic in enumerate(found.topics)]
    singles = singly(stretch_of(found, parts))
    assert [(data.topic, data.payload) for data in singles] == sent
    for part in parts:
        mine = [data for data in singles if data.topic == part.topic]
        assert [data.seq for data in mine] == list(range(part.seq, part.seq + len(mine)))
        assert [data.prev for data in mine] == [part.prev, *(data.seq for data in mine[:-1])]


def test_a_bundle_is_confirmed_with_one_answer_of_each_member_and_each_topic_s_own_subscribers() -> None:
    """Also if it is passed on, if some members know no bundles, and beside single messages to the same topics."""
    simulation = Mixed(1, KeyOrder.CLUSTER)
    simulation.subscribers = lambda topic: int(topic[-1])
    simulation.build(7, 3)
    publisher, *others = simulation.alive()
    members = others[:4]
    for member in members:
        member.subscribe("a/+")
    for topic in ("a/1", "a/2", "a/3"):
        publisher.publish(topic, b"0")
    simulation.run(2)
    expected = {topic: Reached(4, 4 * int(topic[-1])) for topic in ("a/1", "a/2", "a/3")}
    before = simulation.bundles, simulation.copies, simulation.counters.by_kind.get("Ack", 0)
    sent = [(f"a/{number * number % 3 + 1}", b"%d" % number) for number in range(1, 41)]
    confirmed: list[Reached] = []

    def done(start: int, part: int, reached: Reached) -> None:
        assert start == len(confirmed)
        confirmed.extend([reached] * part)

    def publish() -> None:
        node = publisher.node
        node.publish(Message("a/2", b"first", 1), None)
        node.publish_several([MessageRun(topic, 1, [payload]) for topic, payload in sent], done)
        node.publish(Message("a/2", b"last", 1), None)

    publisher.act(publish)
    simulation.run(2)
    assert (simulation.bundles - before[0], simulation.copies - before[1]) == (4, 4 * 42)
    assert simulation.counters.by_kind.get("Ack", 0) - before[2] == 4 * 3
    assert confirmed == [expected[topic] for topic, _ in sent]
    simulation.old = {broker.name for broker in others[:2]}
    confirmed.clear()
    publisher.act(publish)
    simulation.run(2)
    assert confirmed == [expected[topic] for topic, _ in sent]
    once = [b"first", *(payload for _, payload in sent), b"last"]
    for member in members:
        assert [message.payload for _, message in member.delivered[-84:]] == 2 * once


def test_a_bundle_that_a_member_misses_reaches_it_message_by_message_once_it_is_there_again() -> None:
    simulation = Mixed(2)
    simulation.subscribers = " ab".index
    simulation.build(3, 1)
    publisher, *members = simulation.alive()
    for member in members:
        member.subscribe("#")
    for topic in "ab":
        publisher.publish(topic, b"0")
    simulation.run(2)
    confirmed: list[int] = []
    runs = [MessageRun("ab"[number % 2], 1, [b"%d" % number]) for number in range(10)]

    def done(start: int, part: int, reached: Reached) -> None:
        confirmed.extend(range(start, start + part))
        assert {reached} == {Reached(2, 2 + 2 * (number % 2)) for number in range(start, start + part)}

    def publish() -> None:
        publisher.node.publish_several(runs, done)

    publisher.act(publish)
    simulation.reset_link(publisher.name, members[0].name)  # what is under way on it is lost
    publisher.node.link_down(members[0].ref)
    simulation.run(3)
    assert simulation.bundles
    assert sorted(confirmed) == list(range(10))
    assert publisher.node.multicast.settled
    for member in members:
        payloads = [message.payload for _, message in member.delivered[2:]]
        assert sorted(payloads) == [b"%d" % number for number in range(10)]
        assert [each for each in payloads if int(each) % 2] == [b"1", b"3", b"5", b"7", b"9"]


@given(
    first=st.integers(1, 1 << 40),
    prev=st.integers(0, 1 << 40),
    which=st.lists(st.integers(0, 2), min_size=1, max_size=9),
)
def test_a_bundle_is_its_publications_each_behind_the_one_before_to_its_topic(
    first: int, prev: int, which: list[int]
) -> None:
    numbers = {number: place for place, number in enumerate(dict.fromkeys(which))}
    parts = [Part("abc"[number], first + 1000 * place, prev + place) for number, place in numbers.items()]
    payloads = [b"%d" % place for place in range(len(which))]
    bundle = Bundle(1, 2, 100, parts, [numbers[number] for number in which], payloads)
    check(bundle)
    singles = singly(bundle)
    assert [(data.topic, data.payload) for data in singles] == [
        ("abc"[n], payload) for n, payload in zip(which, payloads, strict=True)
    ]
    assert [data.token for data in singles] == list(range(101, 101 + len(which)))
    for part in parts:
        mine = [data for data in singles if data.topic == part.topic]
        assert [data.seq for data in mine] == list(range(part.seq, part.seq + len(mine)))
        assert [data.prev for data in mine] == [part.prev, *(data.seq for data in mine[:-1])]


@pytest.mark.parametrize(
    ("topics", "which", "payloads"),
    [("ab", [0, 0], 2), ("ab", [0, 2], 2), ("ab", [0, 1], 3), ("aa", [0, 1], 2), ("a", [], 0)],
)
def test_a_bundle_that_is_not_the_publications_of_its_parts_is_refused(
    topics: str, which: list[int], payloads: int
) -> None:
    parts = [Part(topic, 1 + 10 * number, 0) for number, topic in enumerate(topics)]
    with pytest.raises(ProtocolError):
        check(Bundle(1, 0, 1, parts, which, [b""] * payloads))


def pair(seed: int, topics: str = "ab") -> tuple[Mixed, SimBroker, SimBroker]:
    """A publisher that knows the way to some topics, and who wants them."""
    simulation = Mixed(seed)
    publisher, member = simulation.build(2, 1)
    member.subscribe("#")
    for topic in topics:
        publisher.publish(topic, b"before")
    simulation.run(2)
    return simulation, publisher, member


def test_messages_of_a_bundle_that_are_being_made_up_for_somebody_are_confirmed_once() -> None:
    """A member that was taken for dead is back: it gets them by itself while the bundle is still unanswered."""
    simulation, publisher, back = pair(3)
    recorder = Recorder(simulation)
    multicast = publisher.node.multicast
    statistics = multicast.statistics = Statistics()
    recorder.publish_together(publisher, "abab")
    publisher.act(lambda: multicast.make_up(back.ref, multicast.pending(back.ref)))
    simulation.run(3)
    assert simulation.bundles
    assert len(recorder.confirmed) == 4
    assert [sum(statistics.of(topic).latency or ()) for topic in "ab"] == [2, 2]
    assert multicast.settled
    assert [message.payload for _, message in back.delivered[2:]] == [b"1", b"2", b"3", b"4"]


def test_an_answer_for_other_topics_than_were_asked_about_is_refused() -> None:
    child = BrokerRef("b", 1, "b:1", "c")
    bundle = Bundle(1, 0, 1, [Part("a", 1, 0), Part("b", 2, 0)], [0, 1], [b"", b""])
    custody = Custody(child, bundle)
    owed = Owed(custody, Branch(child, ()))
    for more in ([], [1, 1]):
        with pytest.raises(ProtocolError):
            owed.answered(Ack(1, 1, 1, [], more))
    owed.answered(Ack(1, 1, 2, [child], [3]))
    assert (custody.brokers, custody.subscribers, custody.missing) == (1, [2, 3], [child])


def test_more_than_go_together_go_as_runs() -> None:
    simulation, publisher, _ = pair(1)
    recorder = Recorder(simulation)
    recorder.publish_together(publisher, "ab" * (MOST_TOGETHER // 2) + "a")
    simulation.run(3)
    assert not simulation.bundles
    assert len(recorder.confirmed) == MOST_TOGETHER + 1


def test_messages_of_a_run_that_are_made_up_for_somebody_are_counted_once() -> None:
    simulation, publisher, back = pair(3, "a")
    multicast = publisher.node.multicast
    statistics = multicast.statistics = Statistics()
    publisher.act(lambda: publisher.node.publish_run(MessageRun("a", 1, [b"1", b"2", b"3"]), None))
    publisher.act(lambda: multicast.make_up(back.ref, multicast.pending(back.ref)))
    simulation.run(3)
    assert sum(statistics.of("a").latency or ()) == 3
    assert multicast.settled
    assert [message.payload for _, message in back.delivered] == [b"before", b"1", b"2", b"3"]
