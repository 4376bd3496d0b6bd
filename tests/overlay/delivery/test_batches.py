"""Batches in the mesh: what a broker publishes in one turn leaves as few frames, and arrives once and in order.

Also where members differ by topic, where links break and brokers crash, on designed overlays and by two lanes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.messages import Message, Properties, Reached
from saps.overlay.delivery.express import by_express
from saps.overlay.delivery.outgoing import MOST_BYTES
from saps.overlay.delivery.pending import DueAck, Pending
from saps.overlay.delivery.publications import fault, give, prevs_of, properties_of, select, to_topic
from saps.overlay.delivery.tree import Branch
from saps.overlay.frames.base import Frame, ProtocolError
from saps.overlay.frames.delivery import Ack, Part, Publish
from saps.overlay.rendezvous.designer import DesignSettings
from saps.overlay.ring.keys import BrokerRef, KeyOrder
from saps.routing.batch import MOST, Batch
from saps.simulator import Network, SimBroker, Simulation
from saps.statistics import Statistics
from tests import marks
from tests.batches import batch_of
from tests.drawn import schedules
from tests.overlay.scenes import TOPICS, Recorder, random_step

pytestmark = pytest.mark.simulation

SCHEDULES = schedules(3)
SEEDS = st.integers(0, 1 << 32)
URGENT = frozenset(TOPICS[:1])


class Counted(Simulation):
    """A mesh that counts frames with publications, and the copies of publications in them."""

    def __init__(self, seed: int, order: KeyOrder = KeyOrder.CLUSTER, latency: float = 0.02, **options: object) -> None:
        super().__init__(seed, network=Network(latency=(0.001, latency)), order=order, **options)  # type: ignore[arg-type]
        self.frames_sent = self.copies = self.largest = 0
        self.count: Callable[[str], int] = lambda topic: 1

    def subscribers(self, topic: str) -> int:
        return self.count(topic)

    def _send(self, source: SimBroker, to: BrokerRef, frame: Frame) -> None:
        super()._send(source, to, frame)
        if isinstance(frame, Publish):
            assert fault(frame) is None
            self.frames_sent += 1
            self.copies += len(frame.which)
            self.largest = max(self.largest, len(frame.which))


class Prioritised(Counted):
    """Some topics go by a lane of their own, whose frames arrive before others that were sent earlier."""

    def __init__(self, seed: int, order: KeyOrder, latency: float) -> None:
        super().__init__(seed, order, latency)

    def attach(self, broker: SimBroker) -> None:
        broker.node.rendezvous.ways.prioritise(URGENT.__contains__)

    def _send(self, source: SimBroker, to: BrokerRef, frame: Frame) -> None:
        if isinstance(frame, Publish):
            lanes = {part.topic in URGENT for part in frame.parts}
            assert lanes == {by_express(frame, URGENT.__contains__)}, "all topics of a frame go by one lane"
        super()._send(source, to, frame)


class Batches(Recorder):
    """Publishes batches of several messages, several of them in one turn: to one topic or to many, of any QoS."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self._rng = random.Random(simulation.seed)

    def begin(self) -> None:
        """Two topics of the first broker are wanted, and on their way."""
        first, *others = self.simulation.alive()
        for broker in others[:2]:
            self.subscribe(broker, "#")
        self.simulation.run(1)
        for topic in TOPICS[:2]:
            super().publish(first, topic, 0)
        self.simulation.run(1)

    def publish(self, broker: SimBroker, topic: str, qos: int) -> None:
        rng = self._rng
        there = [each for each in self.simulation.alive() if each.joined and not each.node.leaving.begun]
        if rng.random() < 0.7:
            broker = there[0]

        def act() -> None:
            for _ in range(rng.choice([1, 2, 5])):
                choice = rng.choice(([topic], TOPICS[:2], TOPICS))
                topics = [rng.choice(choice) for _ in range(rng.choice([1, 2, 5, 20]))]
                self.together(broker, topics, rng.choice((qos, qos, 0, 1)))()
                dice = rng.random()
                if dice < 0.05:
                    broker.node.mesh.obey(None)  # the ways are found anew, between two batches of a turn
                elif self.simulation.faulty and dice < 0.1:
                    other = rng.choice([other for other in self.simulation.alive() if other is not broker])
                    self.simulation.reset_link(broker.name, other.name)
                    broker.node.link_down(other.ref)

        broker.act(act)


def kinds(seed: int) -> Counted:
    """A mesh of one kind or another."""
    rng = random.Random(seed)
    order, latency = rng.choice(list(KeyOrder)), rng.choice([0.002, 0.02, 0.08])
    kind = rng.choice(["plain", "designed", "prioritised"])
    if kind == "prioritised":
        return Prioritised(seed, order, latency)
    return Counted(seed, order, latency, design=DesignSettings() if kind == "designed" else None)


def begun(seed: int) -> tuple[random.Random, Counted, Batches]:
    """A mesh of six brokers, whose publications are recorded."""
    simulation = kinds(seed)
    simulation.build(6, 3)
    recorder = Batches(simulation)
    recorder.begin()
    return random.Random(seed), simulation, recorder


@SCHEDULES
@given(SEEDS)
def test_batches_under_churn_arrive_once_and_in_order(seed: int) -> None:
    rng, simulation, recorder = begun(seed)
    for _ in range(60):
        random_step(rng, recorder, churn=True)
        simulation.run(rng.choice([0, 0, 0.001, 0.01, 0.05]))
    simulation.run(8)
    assert simulation.largest > 5
    recorder.judge()


@SCHEDULES
@given(SEEDS)
def test_batches_over_breaking_links_and_crashing_brokers_lose_no_qos_1(seed: int) -> None:
    rng, simulation, recorder = begun(seed)
    for step in range(50):
        random_step(rng, recorder, churn=False)
        simulation.run(rng.choice([0, 0.001, 0.01, 0.05]))
        if rng.random() < 0.1:
            source, target = rng.sample(simulation.alive(), 2)
            simulation.reset_link(source.name, target.name)
        if step == 30:
            simulation.crash(rng.choice(simulation.alive()).name)
    simulation.run(12)
    assert simulation.largest > 5
    recorder.judge(faulty=True)


# --- frames and answers -------------------------------------------------------------------------------------------


def opened(order: KeyOrder = KeyOrder.CLUSTER, topics: Sequence[str] = ("a/1", "a/2", "a/3")) -> tuple[Counted, ...]:
    """A publisher whose topics are wanted by four of six others; what has been sent so far does not count."""
    simulation = Counted(1, order)
    simulation.count = lambda topic: int(topic[-1])
    simulation.build(7, 3)
    publisher, *others = simulation.alive()
    for member in others[:4]:
        member.subscribe("a/+")
    for topic in topics:
        publisher.publish(topic, b"0")
    simulation.run(2)
    simulation.frames_sent = simulation.copies = 0
    simulation.counters.by_kind.clear()
    for member in others:
        member.delivered.clear()
    return (simulation,)


@pytest.mark.parametrize("order", KeyOrder)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_published_in_one_turn_is_one_frame_and_one_answer_for_each_member(order: KeyOrder, qos: int) -> None:
    """Whoever publishes it, in however many batches, with properties and without; to each topic its own count."""
    (simulation,) = opened(order)
    publisher, *others = simulation.alive()
    told: list[tuple[list[str], list[Reached]]] = []
    sent: list[Message] = []

    def publish() -> None:
        for start, size in ((0, 1), (1, 30), (31, 2), (33, 1)):
            properties = Properties(content_type="x") if start == 31 else None
            messages = [
                Message(f"a/{number * number % 3 + 1}", b"%d" % number, qos, False, properties)
                for number in range(start, start + size)
            ]
            sent.extend(messages)
            batch = batch_of(messages)
            publisher.node.mesh.publish(batch, lambda reached, batch=batch: told.append((batch.topics, list(reached))))  # type: ignore[misc]

    publisher.act(publish)
    simulation.run(2)
    assert (simulation.frames_sent, simulation.copies) == (4, 4 * 34)
    assert simulation.counters.by_kind["Ack"] == (4 if qos else 0)
    for member in others[:4]:
        assert [message for _, message in member.delivered] == sent, "in the publisher's order, between topics, too"
    for topics, reached in told:
        assert reached == [Reached(4, 4 * int(topic[-1]) if qos else 0) for topic in topics]
    assert len(told) == 4


@pytest.mark.parametrize("qos", [0, 1])
def test_a_frame_has_its_limits(qos: int) -> None:
    (simulation,) = opened(topics=["a/1"])
    publisher, member, *_ = simulation.alive()
    told: list[object] = []

    def publish(payloads: list[bytes]) -> None:
        for payload in payloads:
            publisher.node.mesh.publish(Batch.of(Message("a/1", payload, qos)), told.append)

    publisher.act(partial(publish, [b"%d" % number for number in range(MOST + 10)]))
    simulation.run(2)
    assert simulation.frames_sent == 2 * 4
    publisher.act(partial(publish, [bytes(MOST_BYTES), b"beside it"]))
    simulation.run(2)
    assert simulation.frames_sent == 4 * 4
    assert len(told) == MOST + 12
    assert len(member.delivered) == MOST + 12


def test_a_topic_keeps_its_order_between_qualities_of_service() -> None:
    """Those of QoS 0 and 1 leave in two frames; one that follows both begins a third."""
    (simulation,) = opened(topics=["a/1", "a/2"])
    publisher, member, *_ = simulation.alive()

    def publish() -> None:
        for number, (topic, qos) in enumerate([("a/1", 0), ("a/1", 1), ("a/2", 0), ("a/1", 0), ("a/2", 0)]):
            publisher.node.mesh.publish(Batch.of(Message(topic, b"%d" % number, qos)), None)

    publisher.act(publish)
    for broker in simulation.alive():
        assert not broker.node.delivery.inbox.waiting()
    simulation.run(2)
    assert simulation.frames_sent == 3 * 4
    got = [message.payload for _, message in member.delivered]
    assert [payload for payload in got if payload in (b"0", b"1", b"3")] == [b"0", b"1", b"3"]
    assert [payload for payload in got if payload in (b"2", b"4")] == [b"2", b"4"]


def test_topics_with_other_members_leave_in_other_frames() -> None:
    simulation = Counted(1)
    simulation.build(4, 2)
    publisher, *others = simulation.alive()
    for member, topic_filter in zip(others, ("a", "#", "#"), strict=True):
        member.subscribe(topic_filter)
    for topic in "abc":
        publisher.publish(topic, b"0")
    simulation.run(2)
    simulation.frames_sent = 0
    recorder = Recorder(simulation)
    recorder.publish_together(publisher, "abcabc", 1)
    simulation.run(2)
    assert simulation.frames_sent == 3 + 2
    for member, topics in zip(others, ("a", "abc", "abc"), strict=True):
        got = [(message.topic, message.payload) for _, message in member.delivered if message.payload != b"0"]
        wanted = [(topic, b"%d" % number) for number, topic in enumerate("abcabc", 1) if topic in topics]
        assert sorted(got) == sorted(wanted)
    assert {payload: reached.brokers for payload, reached in recorder.confirmed.items()} == {
        b"%d" % number: 3 if topic == "a" else 2 for number, topic in enumerate("abcabc", 1)
    }


def test_a_broken_link_closes_what_is_being_filled() -> None:
    (simulation,) = opened(topics=["a/1"])
    publisher, member, *_ = simulation.alive()

    def publish() -> None:
        publisher.node.mesh.publish(Batch.of(Message("a/1", b"1", 1)), None)
        publisher.node.link_down(member.ref)
        publisher.node.mesh.publish(Batch.of(Message("a/1", b"2", 1)), None)

    simulation.reset_link(publisher.name, member.name)
    publisher.act(publish)
    simulation.run(3)
    assert [message.payload for _, message in member.delivered] == [b"1", b"2"]
    assert publisher.node.delivery.multicast.settled


# --- who misses some of it ----------------------------------------------------------------------------------------


def pair(seed: int, topics: str = "ab") -> tuple[Counted, SimBroker, SimBroker]:
    """A publisher that knows the way to some topics, and who wants them."""
    simulation = Counted(seed)
    publisher, member = simulation.build(2, 1)
    member.subscribe("#")
    for topic in topics:
        publisher.publish(topic, b"before")
    simulation.run(2)
    return simulation, publisher, member


def test_a_member_that_misses_a_frame_gets_it_once_it_is_there_again() -> None:
    simulation = Counted(2)
    simulation.count = " ab".index
    simulation.build(3, 1)
    publisher, *members = simulation.alive()
    for member in members:
        member.subscribe("#")
    for topic in "ab":
        publisher.publish(topic, b"0")
    simulation.run(2)
    told: list[list[Reached]] = []
    batch = batch_of([Message("ab"[number % 2], b"%d" % number, 1) for number in range(10)])
    publisher.publish_batch(batch, lambda reached: told.append(list(reached)))
    simulation.reset_link(publisher.name, members[0].name)  # what is under way on it is lost
    publisher.node.link_down(members[0].ref)
    simulation.run(3)
    assert told == [[Reached(2, 2), Reached(2, 4)]]
    assert publisher.node.delivery.multicast.settled
    for member in members:
        assert [message.payload for _, message in member.delivered[2:]] == [b"%d" % number for number in range(10)]


def test_who_has_left_a_topic_gets_the_rest_of_the_frame() -> None:
    """A member misses a frame, and wants only one of its topics when it is repeated."""
    simulation, publisher, member = pair(5)
    member.subscribe("a")
    simulation.run(1)
    recorder = Recorder(simulation)
    recorder.publish_together(publisher, "abab")
    simulation.reset_link(publisher.name, member.name)
    publisher.node.link_down(member.ref)
    member.unsubscribe("#")
    simulation.run(3)
    assert {payload: reached.brokers for payload, reached in recorder.confirmed.items()} == {
        b"1": 1,
        b"2": 0,
        b"3": 1,
        b"4": 0,
    }
    assert [message.payload for _, message in member.delivered if message.payload != b"before"] == [b"1", b"3"]


@marks.expect("missed publications made up")
def test_what_is_made_up_for_two_members_with_different_topics_is_all_of_each() -> None:
    """They come back while the first of them is still being told."""
    simulation = Counted(6)
    publisher, *members = simulation.build(3, 1)
    for member, topic_filter in zip(members, ("a", "#"), strict=True):
        member.subscribe(topic_filter)
    for topic in "ab":
        publisher.publish(topic, b"before")
    simulation.run(2)
    recorder = Recorder(simulation)
    simulation.partition([publisher.name])
    simulation.run(0.01)
    recorder.publish_together(publisher, "abab")
    simulation.run(5)
    assert publisher.node.delivery.multicast.settled
    simulation.heal()
    simulation.run(8)
    assert publisher.node.delivery.multicast.settled
    for member, topics in zip(members, ("a", "ab"), strict=True):
        for topic in topics:
            got = [message.payload for _, message in member.delivered if message.topic == topic]
            assert got == {"a": [b"before", b"1", b"3"], "b": [b"before", b"2", b"4"]}[topic]


def test_publications_that_are_being_made_up_for_somebody_are_confirmed_and_counted_once() -> None:
    """A member that was taken for dead is back: it gets them by themselves while the frame is still unanswered."""
    simulation, publisher, back = pair(3)
    recorder = Recorder(simulation)
    statistics, acknowledgements = Statistics(), publisher.node.delivery.multicast.acknowledgements
    publisher.node.delivery.multicast.count(statistics)
    recorder.publish_together(publisher, "abab")
    assert acknowledgements.unacknowledged(back.ref)
    publisher.act(lambda: publisher.node.delivery.catch_up.lost(back.ref, over=False))
    publisher.act(lambda: publisher.node.delivery.catch_up.back(back.ref))
    simulation.run(3)
    assert len(recorder.confirmed) == 4
    assert [sum(statistics.of(topic).latency or ()) for topic in "ab"] == [2, 2]
    assert publisher.node.delivery.multicast.settled
    assert [message.payload for _, message in back.delivered[2:]] == [b"1", b"2", b"3", b"4"]


def test_an_answer_for_other_topics_than_were_asked_about_is_refused() -> None:
    child = BrokerRef("b", 1, "b:1", "c")
    pending = Pending(child, Publish(0, 0, 0, 1, False, [Part("a", 0), Part("b", 0)], [0, 1], [1, 2], [b"", b""]))
    owed = DueAck(pending, Branch(child, ()))
    for reached in ([(1, 1)], [(1, 1)] * 3):
        with pytest.raises(ProtocolError):
            owed.answered(Ack(1, reached, []))
    owed.answered(Ack(1, [(1, 2), (1, 3)], [child]))
    DueAck(pending, Branch(child, ()), [1]).answered(Ack(1, [(4, 5)], []))
    assert (pending.counts, pending.missing) == ([Reached(1, 2), Reached(5, 8)], [child])


def test_copies_between_clusters_are_counted_for_each_topic() -> None:
    (simulation,) = opened(KeyOrder.CLUSTER)
    publisher = simulation.alive()[0]
    statistics = Statistics()
    publisher.node.delivery.multicast.count(statistics)
    recorder = Recorder(simulation)
    for topics in (["a/1", "a/2", "a/2"], ["a/3"] * 4):
        recorder.publish_together(publisher, topics)
    simulation.run(2)
    away = {broker.ref.cluster for broker in simulation.alive()[1:5]} - {publisher.ref.cluster}
    found = Counter({topic: statistics.of(topic).copies for topic in ("a/1", "a/2", "a/3")})
    assert found == {"a/1": len(away), "a/2": 2 * len(away), "a/3": 4 * len(away)}


# --- the publications of a frame ----------------------------------------------------------------------------------


@st.composite
def bodies(draw: st.DrawFn) -> Publish:
    """A sound frame, its sequence numbers not without gaps."""
    names = [draw(st.integers(0, 3)) for _ in range(draw(st.integers(1, 12)))]
    numbers: dict[int, int] = {}
    which = [numbers.setdefault(name, len(numbers)) for name in names]
    first = draw(st.integers(len(numbers), 1 << 40))
    seqs = [first]
    for _ in which[1:]:
        seqs.append(seqs[-1] + draw(st.integers(1, 5)))
    parts = [Part("abcd"[name], draw(st.integers(0, first - 1))) for name in numbers]
    known = [None, Properties(content_type="x"), Properties(content_type="y")]
    described = [draw(st.sampled_from(known)) for _ in which]
    properties: list[Properties | None] = draw(st.sampled_from([[], [None] * len(which), described]))
    frame = Publish(0, 0, 0, 1, False, parts, which, seqs, [b"%d" % seq for seq in seqs], [], [])
    give(frame, properties, {})
    return frame


def told(frame: Publish) -> list[tuple[str, int, int, bytes, Properties | None]]:
    """All that it says of each publication."""
    topics = [frame.parts[number].topic for number in frame.which]
    properties = properties_of(frame) or [None] * len(topics)
    return list(zip(topics, frame.seqs, prevs_of(frame), frame.payloads, properties, strict=True))


@given(bodies(), st.data())
def test_selected_publications_keep_their_numbers_and_predecessors(frame: Publish, data: st.DataObject) -> None:
    assert fault(frame) is None
    places = sorted(data.draw(st.sets(st.integers(0, len(frame.which) - 1), min_size=1)))
    part = select(frame, places)
    assert fault(part) is None
    whole = told(frame)
    chosen = [whole[place] for place in places]
    # One whose predecessor is among the chosen stands behind it; of others the number of the predecessor is kept.
    last: dict[str, int] = {}
    for (topic, seq, prev, payload, properties), said in zip(chosen, told(part), strict=True):
        assert said == (topic, seq, last.get(topic, prev), payload, properties)
        last[topic] = seq


@given(bodies(), st.integers(0, 1 << 41), st.integers(0, 1 << 41))
def test_a_topic_s_publications_are_found_by_their_numbers(frame: Publish, after: int, upto: int) -> None:
    for topic in "abcde":
        found = to_topic(frame, topic, after, upto)
        expected = [each for each in told(frame) if each[0] == topic and after < each[1] <= upto]
        assert (told(found) if found is not None else []) == expected
