"""What a broker misses while it is taken for dead, and gets when it is back in the same life."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from saps.overlay.delivery.order import DOUBTED
from saps.overlay.frames.calls import Bequeathed, Inherit
from saps.overlay.frames.copies import LONG_AGO
from saps.overlay.frames.delivery import Former, WantedFilter, WantedFilters
from saps.overlay.missed.absences import UNNOTICED
from saps.overlay.missed.alarm import AGAIN
from saps.overlay.missed.catchup import LINGER, CatchUp
from saps.overlay.missed.heirs import KEPT
from saps.overlay.missed.lag import TOLD, Cause, Lag, State, Stay, Wanted
from saps.overlay.missed.log import MissedLog
from saps.overlay.missed.published import Published
from saps.overlay.missed.segments import InMemory
from saps.overlay.rendezvous.publisher_registry import IDLE
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.sessions.heritage import Legacy
from saps.simulator import Network, SimBroker, Simulation
from saps.topics import matches
from tests import marks
from tests.batches import frame
from tests.drawn import schedules
from tests.overlay.scenes import Recorder

TOPICS, FILTERS = ("a", "a/b", "x"), ("a", "a/#", "x", "+/b")


def everybody_knows_everybody(seed: int) -> tuple[random.Random, Recorder]:
    """Six brokers that subscribe, and have published to every topic: sometimes all of them want all."""
    rng = random.Random(seed)
    simulation = Simulation(seed, network=Network(latency=(0.001, rng.choice([0.002, 0.02]))))
    brokers, recorder = simulation.build(6, 3), Recorder(simulation)
    filters = rng.choice((["#"], []))
    for broker in brokers:
        for topic_filter in filters or rng.sample(FILTERS, 2):
            recorder.subscribe(broker, topic_filter)
    simulation.run(2)
    for broker in brokers:
        for topic in TOPICS:
            recorder.publish(broker, topic, 1)
    simulation.run(3)
    return rng, recorder


def publish(rng: random.Random, recorder: Recorder, seconds: float) -> None:
    for _ in range(round(seconds / 0.05)):
        recorder.publish(rng.choice(recorder.simulation.alive()), rng.choice(TOPICS), rng.choice([1, 1, 2]))
        if rng.random() < 0.5:
            recorder.publish_together(rng.choice(recorder.simulation.alive()), rng.choices(TOPICS, k=5))
        recorder.simulation.run(0.05)


def lost(recorder: Recorder) -> list[bytes]:
    """Of all that was published, during the fault too, what did not reach a subscriber."""
    found = []
    for broker, intervals in recorder.intervals.items():
        have = {message.payload for _, message in broker.delivered}
        for _, publisher, topic, _, payload in recorder.published:
            wanted = publisher is not broker and any(matches(i.topic_filter, topic) for i in intervals)
            if wanted and payload not in have:
                found.append(payload)
    return found


def served_after_a_cut() -> tuple[Simulation, list[SimBroker], CatchUp]:
    """Three brokers, the second of which has got what the first one published while they were cut off, and the catch-up
    of the first one."""
    simulation = Simulation(1)
    brokers = one, two, _ = simulation.build(3)
    recorder = Recorder(simulation)
    recorder.subscribe(two, "a")
    simulation.run(2)
    recorder.publish(one, "a", 1)
    catch_up = one.node.delivery.catch_up
    simulation.partition([two.name])
    simulation.run(4)
    for _ in range(5):
        recorder.publish(one, "a", 2)
    simulation.heal()
    simulation.run_until(lambda: len(two.delivered) == 6 and not catch_up.lags, 10)
    return simulation, brokers, catch_up


def test_what_a_broker_has_caught_up_with_is_not_for_its_heir(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had adopted sessions between two absences, and was lost again as it said so: its heir was sent what it had
    missed, and got, the first time."""
    simulation, (one, two, three), catch_up = served_after_a_cut()
    simulation.crash(three.name)
    simulation.run(6)
    heritage = two.node.sessions.migrations.heritage
    monkeypatch.setattr(
        heritage, "legacies", lambda asking: [Legacy([Stay(three.ref, 0.0, 0.0)], [True], {"a": None}, [])]
    )
    simulation.partition([two.name])
    simulation.run(4)
    simulation.heal()
    simulation.run_until(lambda: any(lag.wanted.moved for lag in catch_up.lags.values()), 10)
    simulation.partition([two.name])
    simulation.run(4)
    assert two.ref in catch_up.lags
    told = catch_up.bodies[Inherit](Inherit(two.ref, three.ref, 1, 1, ["a"]), [])
    assert [*told] == [Bequeathed(one.name, 0)]


def test_topics_are_not_live_for_a_broker_that_may_yet_name_sessions_that_have_come_to_it() -> None:
    """What these had missed elsewhere came after what was published while it named its own filters."""
    _, (_, two, three), catch_up = served_after_a_cut()
    sending, log = catch_up.sending, catch_up.log
    last, _ = log.topics["a"]
    lag = catch_up.lags[two.ref] = Lag(two.ref, log.last, last, 0.0)
    lag.passed = last

    def behind(state: State, cause: Cause, topic: str = "a") -> bool:
        lag.state, lag.cause = state, cause
        return sending.behind(two.ref, topic)

    assert behind(State.ASKED, Cause.CUT_OFF)
    assert not behind(State.ASKED, Cause.CUT_OFF, "b")
    assert not behind(State.ASKED, Cause.NEW)
    assert not behind(State.GOING, Cause.CUT_OFF)
    other = catch_up.lags[three.ref] = Lag(three.ref, log.last, last, 0.0)
    other.doubts.topics["b"] = last
    assert behind(State.ASKED, Cause.CUT_OFF, "b")
    log.topics["a"] = last + 1, log._sets.number((two.ref,))  # a later one has gone to it
    assert not behind(State.GOING, Cause.CUT_OFF)
    lag.wanted.moved[1] = Wanted()
    assert behind(State.GOING, Cause.CUT_OFF)


def test_what_goes_to_a_broker_now_is_not_made_up_for_sessions_that_have_come_to_it() -> None:
    """It was made up as well, for as long as the catch-up lasted, which so lasted on (`make jepsen`)."""
    simulation, (one, two, three), catch_up = served_after_a_cut()
    simulation.crash(three.name)
    simulation.run(6)
    lag = Lag(two.ref, catch_up.log.last, 0, simulation.now)
    former = [Former(three.ref, 5.0, LONG_AGO, True), Former(two.ref, 0.0, 5.0, False)]
    catch_up.heirs.adopted(lag, WantedFilters(1, 1, True, [WantedFilter("a", 1, 5.0)], former))
    now, seq = simulation.now, 1 << 40
    assert lag.wanted.missed("a", now - 5.5, seq, one.ref, set())
    assert not lag.wanted.missed("a", now - 4.5, seq, one.ref, {two.ref})
    assert not lag.wanted.missed("a", now + 1, seq, one.ref, set())


def test_sessions_were_at_a_broker_until_it_was_lost_last() -> None:
    """They were taken to have left when it was first lost, and all that it got later came again (`make jepsen`)."""
    simulation, (one, two, three), catch_up = served_after_a_cut()
    simulation.partition([two.name])
    cut = simulation.now
    simulation.run(6)
    lag = Lag(three.ref, catch_up.log.last, 0, simulation.now)
    former = [Former(two.ref, LONG_AGO + 3.0, LONG_AGO, True), Former(three.ref, 0.0, 3.0, False)]
    catch_up.heirs.adopted(lag, WantedFilters(1, 1, True, [WantedFilter("a", 1, 5.0)], former))
    assert lag.wanted.missed("a", simulation.now - 3.5, 1 << 40, one.ref, {two.ref})
    assert not lag.wanted.missed("a", cut, 1 << 40, one.ref, {two.ref})


def test_what_a_former_broker_can_have_missed_ends_when_its_heir_has_the_sessions() -> None:
    """Without a lag of it, all since the log began was looked at: of two brokers it is not known to the millisecond
    when sessions went from one to the other (`make chaos`)."""
    simulation, (one, two, three), catch_up = served_after_a_cut()
    simulation.run(100)
    lag = Lag(two.ref, catch_up.log.last, 0, simulation.now)
    older = msgspec.structs.replace(three.ref, incarnation=1)  # which the publishers' broker never heard
    former = [Former(older, LONG_AGO + 60.0, LONG_AGO, True), Former(two.ref, 0.0, 60.0, False)]
    catch_up.heirs.adopted(lag, WantedFilters(1, 1, True, [WantedFilter("a", 1, 5.0)], former))
    assert lag.wanted.missed("a", simulation.now - 60 + TOLD, 1 << 40, one.ref, set())
    assert not lag.wanted.missed("a", simulation.now - 58 + TOLD, 1 << 40, one.ref, set())


def test_a_restarted_broker_knows_up_to_where_a_lost_one_had_everything() -> None:
    """It began with the oldest record of its log (`make chaos`)."""
    log, ref = MissedLog(), BrokerRef("b", 1, "h:1", "c")
    log.begin(1)
    for seq in range(1, 11):
        log.append(float(seq), frame("t", seq), [()], [])
    fate = Lag(ref, log.last, 8, 9.0).fate(9.0, -math.inf)
    lag = Lag(ref, log.start, fate.taken, fate.at)
    lag.restore(fate, log)
    assert (lag.start, lag.taken) == (8, 8)


def test_sessions_had_what_went_to_a_broker_that_only_their_heir_took_for_dead() -> None:
    """All that it ever got was made up for them (`make jepsen`)."""
    simulation, (one, two, three), catch_up = served_after_a_cut()
    simulation.crash(three.name)
    simulation.run(2)
    again = simulation.add(three.name, "c0", one.name)
    simulation.run(100)
    lag = Lag(two.ref, catch_up.log.last, 0, simulation.now)
    former = [Former(three.ref, LONG_AGO, LONG_AGO, True), Former(again.ref, LONG_AGO + 20.0, 90.0, True)]
    wanted = WantedFilters(1, 1, True, [WantedFilter("a", 1, 5.0)], [*former, Former(two.ref, 0.0, 5.0, False)])
    catch_up.lags[three.ref] = Lag(three.ref, catch_up.log.last, 0, simulation.now)
    catch_up.heirs.adopted(lag, wanted)
    assert not lag.wanted.missed("a", simulation.now - 60, 1 << 40, one.ref, {again.ref})
    assert lag.wanted.missed("a", simulation.now - 10, 1 << 40, one.ref, {again.ref})


@marks.expect("heir of a broker that is back")
def test_an_heir_that_asks_late_gets_what_an_owner_had_missed_that_is_back() -> None:
    """The owner's sessions had left it for the heir before that came: nobody got it (`make jepsen`)."""
    simulation, (one, two, three), catch_up = served_after_a_cut()
    heir = Inherit(two.ref, three.ref, 1, 1, ["a"])
    (told,) = catch_up.bodies[Inherit](heir, [])
    assert isinstance(told, Bequeathed)
    assert told.frames
    simulation.run(UNNOTICED)
    assert [*catch_up.bodies[Inherit](heir, [])] == [Bequeathed(one.name, 0)]


def cut(rng: random.Random, simulation: Simulation) -> Callable[[], None]:
    names = [broker.name for broker in simulation.alive()]
    rng.shuffle(names)
    simulation.partition(names[: rng.randrange(1, len(names))])
    return simulation.heal


def stop(rng: random.Random, simulation: Simulation) -> Callable[[], None]:
    simulation.pause(rng.choice(simulation.alive()).name, rng.uniform(2, 7))
    return lambda: None


@pytest.mark.simulation
@pytest.mark.parametrize("fault", [cut, stop])
@schedules(1)
@given(seed=st.integers(0, 2**32 - 1))
def test_nothing_is_lost_while_a_broker_is_taken_for_dead_wrongly(
    fault: Callable[[random.Random, Simulation], Callable[[], None]], seed: int
) -> None:
    rng, recorder = everybody_knows_everybody(seed)
    end = fault(rng, recorder.simulation)
    publish(rng, recorder, rng.choice([1, 3, 6, 12]))
    end()
    publish(rng, recorder, 3)
    recorder.simulation.run(16)
    assert lost(recorder) == []
    recorder.judge(faulty=True)
    recorder.simulation.run(LINGER)
    assert not any(broker.node.delivery.multicast.missed.bytes for broker in recorder.simulation.alive())


@pytest.mark.simulation
@schedules(1)
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=5)  # what came past a gap was delivered at the origin's second death, and so what filled the gap was not
def test_nothing_is_lost_over_a_link_that_comes_and_goes(seed: int) -> None:
    rng, recorder = everybody_knows_everybody(seed)
    simulation = recorder.simulation
    names = [broker.name for broker in simulation.alive()]
    side = [broker.name for broker in simulation.alive() if broker.ref.cluster == "c0"]
    if rng.random() >= 0.5:
        rng.shuffle(names)
        side = names[: rng.randrange(1, len(names))]
    end = simulation.now + 14
    while simulation.now < end:
        simulation.partition(side)
        publish(rng, recorder, rng.choice([3, rng.uniform(0.5, 4)]))
        simulation.heal()
        publish(rng, recorder, rng.choice([3, rng.uniform(0.2, 4)]))
    simulation.run(20)
    assert lost(recorder) == []
    recorder.judge(faulty=True)


def two(simulation: Simulation) -> tuple[SimBroker, SimBroker]:
    publisher, subscriber = simulation.build(2)
    subscriber.subscribe("t")
    simulation.run(2)
    publisher.publish("t", b"before", 1)
    simulation.run(2)
    return publisher, subscriber


def test_who_does_not_come_back_in_time_gets_nothing_and_costs_nothing() -> None:
    simulation = Simulation(1)
    publisher, subscriber = two(simulation)
    publisher.node.delivery.catch_up.log.age = 20
    simulation.partition([publisher.name])
    simulation.run(5)
    publisher.publish("t", b"missed", 1)
    assert publisher.node.delivery.multicast.missed.bytes
    simulation.run(20 + LINGER + 2)
    assert not publisher.node.delivery.multicast.missed.bytes
    simulation.heal()
    simulation.run(10)
    publisher.publish("t", b"after", 1)
    simulation.run(3)
    assert [message.payload for _, message in subscriber.delivered] == [b"before", b"after"]


def test_nothing_is_kept_for_a_broker_that_an_operator_says_is_gone_for_good() -> None:
    """While others publish, and one of them restarts; the log would last for `overlay.missed_age` otherwise."""
    simulation = Simulation(1)
    publisher, subscriber, other = simulation.build(3)
    subscriber.subscribe("t")
    simulation.run(2)
    simulation.crash(subscriber.name)
    simulation.run(5)
    publisher.publish("t", b"missed", 1)
    simulation.crash(other.name)
    simulation.run(3)
    simulation.add(other.name, "c0", publisher.name)
    simulation.run(2 * KEPT + LINGER)
    assert publisher.node.delivery.multicast.missed.active
    publisher.act(lambda: publisher.node.delivery.catch_up.give_up(subscriber.name))
    simulation.run(KEPT + LINGER + 2)
    publisher.publish("t", b"later", 1)
    assert not publisher.node.delivery.multicast.missed.active


def test_a_later_life_gets_nothing_that_an_earlier_one_has_missed() -> None:
    simulation = Simulation(1)
    publisher, subscriber = two(simulation)
    simulation.crash(subscriber.name)
    simulation.run(5)
    publisher.publish("t", b"missed", 1)
    assert publisher.node.delivery.multicast.missed.bytes
    again = simulation.add(subscriber.name, "c0", publisher.name)
    simulation.run(5)
    assert publisher.node.delivery.multicast.missed.bytes  # for whoever adopts the earlier one's sessions
    again.subscribe("t")
    simulation.run(3)
    publisher.publish("t", b"after", 1)
    simulation.run(3)
    assert [message.payload for _, message in again.delivered] == [b"after"]
    simulation.run(KEPT + LINGER)
    assert not publisher.node.delivery.multicast.missed.bytes


@marks.expect("no room for what is missed")
def test_without_a_disk_the_log_is_bounded_and_the_latest_stay() -> None:
    log = MissedLog()
    log.size = 64 << 10
    log.begin(1)
    nobody: tuple[BrokerRef, ...] = ()
    for seq in range(1, 2001):
        log.append(float(seq), frame("t", seq, 0, bytes(100)), [nobody], [])
        log.trim(0.0, 0)
    kept = [record.body.seqs[0] for record, _ in log.read(log.start)]
    assert kept == [*range(log.first, 2001)]
    assert log.first > 1
    assert log.bytes <= log.size
    assert (log.messages, log.dropped) == (len(kept), 2000 - len(kept))
    log.age = 10
    log.trim(2000.0, 0)  # what is older goes, as much together as a segment has
    assert 2000 - log.first < 20
    log.end()
    assert (log.bytes, log.messages) == (0, 0)


def test_a_damaged_record_costs_its_segment_and_nothing_else() -> None:
    log, segments = MissedLog(), list[InMemory]()
    log.size = 64 << 10
    log.spool.make = lambda number: segments.append(InMemory()) or segments[-1]  # type: ignore[func-returns-value]
    for seq in range(1, 31):
        log.append(0.0, frame("t", seq, 0, bytes(100)), [()], [])
    segments[1]._bytes[20] ^= 1
    kept = [record.body.seqs[0] for record, _ in log.read(log.start)]
    assert log.damaged == 1
    assert 20 <= len(kept) < 30
    assert kept == sorted(kept)


@pytest.mark.parametrize("case", ["new topic", "idle topic", "new filter", "shared"])
def test_what_begins_during_a_cut_is_made_up(case: str) -> None:
    simulation = Simulation(1)
    publisher, subscriber = simulation.build(2)
    topic_filter = "$share/g/t" if case == "shared" else "t"
    if case != "new filter":
        subscriber.subscribe(topic_filter)
        simulation.run(2)
    if case != "new topic":
        publisher.publish("t", b"before", 1)
        simulation.run(2)
    if case == "idle topic":
        simulation.run(IDLE + 10)
    simulation.partition([publisher.name])
    simulation.run(5)
    if case == "new filter":
        publisher.publish("t", b"too soon", 1)
        simulation.run(2)
        subscriber.subscribe(topic_filter)
        simulation.run(2)
    publisher.publish("t", b"missed", 1)
    simulation.run(5)
    simulation.heal()
    simulation.run(20)
    publisher.publish("t", b"after", 1)
    simulation.run(3)
    got = [message.payload for _, message in subscriber.delivered if message.payload != b"before"]
    assert got == [b"missed", b"after"]


@marks.expect("log for brokers that others have lost")
def test_a_broker_that_joins_during_a_cut_logs_for_those_beyond() -> None:
    """It had not met them, and kept nothing for them (`make jepsen`: a disk wiped at the beginning of a cut)."""
    simulation = Simulation(1)
    contact, subscriber = simulation.build(2)
    subscriber.subscribe("t")
    simulation.run(2)
    simulation.partition([contact.name, "newcomer"])
    simulation.run(5)
    newcomer = simulation.add("newcomer", "c0", contact.name)
    simulation.run(2)
    newcomer.publish("t", b"soon", 1)
    simulation.run(LINGER + 10)
    newcomer.publish("t", b"missed", 1)
    simulation.run(5)
    simulation.heal()
    simulation.run(20)
    newcomer.publish("t", b"after", 1)
    simulation.run(LINGER + 10)
    assert [message.payload for _, message in subscriber.delivered] == [b"soon", b"missed", b"after"]
    assert not newcomer.node.delivery.catch_up.log.active


@pytest.mark.parametrize(("stands_still", "new"), [(True, "topic"), (False, "topic"), (False, "filter")])
def test_a_broker_without_links_to_a_lost_one_logs_for_it(stands_still: bool, new: str) -> None:
    """It had nothing for a broker whose keys were out of the ring, and kept nothing: 12 of 15 lost what they had
    acknowledged."""
    simulation = Simulation(1)
    subscriber, *others = simulation.build(16)

    def publish(payload: bytes) -> None:
        for broker in others:
            broker.publish(f"t/{broker.name}", payload, 1)

    if new == "filter":
        publish(b"too soon")
    else:
        subscriber.subscribe("t/+")
    simulation.run(2)
    if stands_still:
        simulation.pause(subscriber.name, 7.0)
    else:
        simulation.partition([subscriber.name])
    simulation.run(4)
    subscriber.subscribe("t/+")
    simulation.run(2)
    publish(b"missed")
    simulation.run(0.5)
    publish(b"later")
    simulation.run(1)
    simulation.heal()
    simulation.run(20)
    for broker in others:
        got = [message.payload for _, message in subscriber.delivered if message.topic == f"t/{broker.name}"]
        assert got == [b"missed", b"later"], broker.name


def test_all_brokers_are_told_of_a_loss_about_once() -> None:
    """And again for as long as it lasts, each time over each link once in each direction."""
    simulation = Simulation(1)
    lost, *others = simulation.build(24)
    simulation.run(5)
    simulation.crash(lost.name)
    simulation.run(2.5)
    links = sum(len({*broker.node.graph.linked_brokers()}) for broker in others)
    told = simulation.counters.by_kind["CutOff"]
    assert all(broker.node.delivery.catch_up.log.active for broker in others)
    assert told < 3 * links
    simulation.run(10 * AGAIN)
    assert all(broker.node.delivery.catch_up.log.active for broker in others)
    assert simulation.counters.by_kind["CutOff"] - told < 2 * 10 * links


def test_a_machine_that_slept_gets_all_that_its_filters_have_missed() -> None:
    """Its monotonic clock stood still meanwhile: its filters are older than it says."""
    simulation = Simulation(1)
    publisher, subscriber = two(simulation)
    simulation.partition([subscriber.name])
    for number in range(10):
        publisher.publish("t", b"%d" % number, 1)
        simulation.run(6)
    subscriber.node.rendezvous.subscriptions.registrations["t"].since += 60
    simulation.heal()
    simulation.run(20)
    assert [message.payload for _, message in subscriber.delivered] == [b"before", *(b"%d" % n for n in range(10))]


def test_a_group_across_a_cut_gets_each_message_at_one_member() -> None:
    simulation = Simulation(3)
    publisher, one, two = simulation.build(3)
    for broker in (one, two):
        broker.subscribe("$share/g/t")
    simulation.run(2)
    simulation.partition([publisher.name])
    simulation.run(40)
    for number in range(20):
        publisher.publish("t", b"%d" % number, 1 + number % 2)
        simulation.run(0.1)
    simulation.heal()
    simulation.run(20)
    got = [message.payload for broker in (one, two) for _, message in broker.delivered]
    assert sorted(got, key=int) == [b"%d" % number for number in range(20)]


def test_what_is_held_for_a_gap_is_not_acknowledged() -> None:
    """Whoever has it, and dies, has told nobody that it is safe."""
    simulation = Simulation(1)
    publisher, subscriber = two(simulation)
    origin = publisher.ref
    inbox = subscriber.node.delivery.inbox
    last = inbox.delivered(origin, "t")
    assert inbox.accept(origin, frame("t", last + 3, last + 2, b"later")) == [DOUBTED]
    assert inbox.accept(origin, frame("t", last + 3, last + 2, b"later")) == [DOUBTED]
    inbox.accept(origin, frame("t", last + 2, last, b"gap"))
    assert inbox.accept(origin, frame("t", last + 3, last + 2, b"later")) == [1]


@marks.expect("a broker may lack what was logged for its former incarnation")
def test_a_broker_that_has_begun_beyond_a_cut_may_lack_what_was_published_meanwhile() -> None:
    """A session that left it counted as complete, and never got that."""
    simulation = Simulation(1)
    one, two, three = simulation.build(3)
    two.subscribe("t")
    simulation.run(2)
    one.publish("t", b"before", 1)
    simulation.run(1)
    simulation.partition([one.name])
    simulation.run(4)
    simulation.crash(two.name)
    simulation.run(3)
    again = simulation.add(two.name, "c0", three.name)
    again.subscribe("t")
    one.publish("t", b"missed", 1)
    simulation.run(4)
    lacks = one.node.delivery.catch_up.lacks
    assert lacks(again.ref, ["+"])
    assert not lacks(again.ref, ["t/t"])
    simulation.heal()
    simulation.run(20)
    assert [message.payload for _, message in again.delivered] == [b"missed"]
    assert not lacks(again.ref, ["+"])


def _cut_off_unheard(seed: int) -> list[bytes]:
    """What a broker gets that has started again, and was cut off from a publisher's before that had heard it itself."""
    simulation = Simulation(seed)
    one, two, three, _ = simulation.build(4)
    two.subscribe("t")
    simulation.run(2)
    one.publish("t", b"before", 1)
    simulation.run(1)
    simulation.crash(two.name)
    simulation.run(3)
    again = simulation.add(two.name, "c0", three.name)
    again.subscribe("t")
    simulation.run_until(lambda: bool(one.node.rendezvous.publishers.baselines(again.ref)), 5)
    one.publish("t", b"missed", 1)
    simulation.partition([one.name])
    simulation.run(6)
    simulation.heal()
    simulation.run(20)
    return [message.payload for _, message in again.delivered]


@marks.expect("doubts about an incarnation that was never heard")
def test_what_went_to_an_incarnation_that_a_cut_kept_from_being_heard_comes_after_it() -> None:
    """Others had told its filters just before the cut."""
    assert [_cut_off_unheard(seed) for seed in range(1, 12)] == 11 * [[b"missed"]]


def test_what_a_former_broker_may_lack_is_for_the_sessions_that_were_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others of the broker that has them now got it before it restarted, and got it again (`make chaos`)."""
    simulation = Simulation(1)
    one, two, three = simulation.build(3)
    for broker in (two, three):
        broker.subscribe("t")
    simulation.run(2)
    one.publish("t", b"had", 1)
    simulation.run(1)
    simulation.partition([two.name])
    one.publish("t", b"in doubt", 1)
    simulation.run(5)
    one.publish("t", b"missed", 1)
    simulation.run(1)
    simulation.crash(three.name)
    simulation.run(1)
    again = simulation.add(three.name, "c0", one.name)
    moved = Legacy([Stay(two.ref, 0.0, simulation.now)], [True], {"t": None}, [])
    monkeypatch.setattr(again.node.sessions.migrations.heritage, "legacies", lambda asking: [moved])
    again.subscribe("t")
    asked = one.node.delivery.catch_up
    simulation.run_until(lambda: any(lag.doubts.seqs and lag.wanted.moved for lag in asked.lags.values()), 10)
    simulation.run(5)
    assert not again.delivered


def test_a_broker_lacks_what_is_made_up_until_it_has_answered() -> None:
    """Sessions left it for another broker as soon as the topic was live for it again."""
    simulation = Simulation(1)
    one, two, *_ = simulation.build(3)
    two.subscribe("t")
    simulation.run(2)
    one.publish("t", b"before", 1)
    simulation.partition([two.name])
    simulation.run(5)
    one.publish("t", b"missed", 1)
    simulation.heal()
    catch_up = one.node.delivery.catch_up
    simulation.run_until(lambda: two.ref in catch_up.lags and bool(catch_up.lags[two.ref].flight.frames), 20)
    one.publish("t", b"later", 1)
    assert one.node.rendezvous.publishers.streams["t"].members == (two.ref,)
    assert catch_up.lacks(two.ref, ["#"])
    simulation.run_until(lambda: len(two.delivered) == 3, 5)
    simulation.run(1)
    assert not catch_up.lacks(two.ref, ["#"])


def test_what_is_on_its_way_live_is_not_overtaken_by_what_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that others have never lost gets what sessions that have come to it had missed, and until then all else
    after that; it took what was still on its way through a third one for a duplicate (`make jepsen`)."""
    simulation = Simulation(1)
    one, relay, two, four, lost = simulation.build(5)
    for broker in (relay, two, four, lost):
        broker.subscribe("t")
    simulation.run(2)
    one.publish("t", b"before", 1)
    simulation.run(1)
    simulation.partition([lost.name])
    one.publish("t", b"in doubt", 1)
    simulation.run(5)
    missed = [b"%d" % number for number in range(2000)]
    for payload in missed:
        one.publish("t", payload, 1)
    simulation.run(1)
    moved = Legacy([Stay(lost.ref, 0.0, simulation.now)], [True], {"t": None}, [])
    monkeypatch.setattr(two.node.sessions.migrations.heritage, "legacies", lambda asking: [moved])
    lags = one.node.delivery.catch_up.lags
    one.act(one.node.delivery.catch_up.rejoined)
    simulation.run_until(lambda: two.ref in lags, 10)
    assert one.node.rendezvous.publishers.streams["t"].way.branches[0].child == relay.ref
    simulation.pause(relay.name, 0.5)
    one.publish("t", b"on its way", 1)
    simulation.run_until(
        lambda: lags[two.ref].state is State.GOING and four.ref in one.node.delivery.catch_up._known, 1
    )
    one.publish("t", b"later", 1)
    assert one.node.rendezvous.publishers.streams["t"].behind == (two.ref,)
    simulation.run(5)
    assert [message.payload for _, message in two.delivered] == [
        b"before",
        b"in doubt",
        *missed,
        b"on its way",
        b"later",
    ]


def test_what_an_heir_and_its_owner_both_may_lack_is_in_doubt_once() -> None:
    log = MissedLog()
    log.begin(5)
    heir, owner = (Lag(BrokerRef(name, 1, name, "c"), log.last, 2, 0.0) for name in ("heir", "owner"))
    three, four = (Published(frame("t", number), 0.0, frozenset()) for number in (3, 4))
    heir.lost([three], log, 0.0)
    owner.lost([three, four], log, 0.0)
    stay = Stay(owner.broker, 0.0, 0.0)
    heir.wanted.of(1, [stay], [True]).add("t", 0.0, 0)
    for _ in range(2):
        heir.inherit(heir.wanted.of(1, [stay], [True]), owner.doubts, owner.place, owner.taken, 0)
    assert [early.body.seqs for early in heir.doubts.before] == [[3], [4]]
