"""When a tree is used, left and tried again; what is repeated, and how often."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.simulated_ofm import OfmFaults
from saps.agents.switchover import Mode
from saps.ofm.datapath.flights import Flight, Flights, Meter
from saps.ofm.datapath.settings import DatapathSettings
from saps.ofm.datapath.trial import BEHIND, RAISED, Ceiling, Trial
from saps.overlay.delivery import order
from saps.overlay.delivery.repairs import AGAIN, Repairs
from saps.overlay.frames.delivery import Part, Publish
from saps.overlay.ring.keys import BrokerRef
from saps.simulator import Network
from tests.agents.switchovers import Scene
from tests.agents.test_switchover import publish, steady

ONE, TWO = (BrokerRef(name, 1, f"10.0.0.{number}:1", "c") for number, name in enumerate(("one", "two"), 1))


def body(first: int, last: int) -> Publish:
    seqs = list(range(first, last + 1))
    return Publish(0, 0, 0, 0, False, [Part("t", first - 1)], [0] * len(seqs), seqs, [b""] * len(seqs), [], [])


def test_a_ceiling_keeps_off_what_is_more_and_is_raised_until_it_does_not() -> None:
    ceiling = Ceiling()
    assert ceiling.allows(1e9)
    ceiling.exceeded(1000.0)
    assert ceiling.allows(1000.0)
    refused = 0
    while not ceiling.allows(3000.0):
        refused += 1
    assert 1000.0 * RAISED**refused >= 3000.0 > 1000.0 * RAISED ** (refused - 1)


def tried(*members: BrokerRef, published: int = 100) -> Trial:
    trial = Trial(0.5, 30.0)
    trial.leave(10.0, published)
    trial.probe(7, 55, published, members)
    return trial


@given(st.permutations(["back", "one", "two"]))
def test_a_tree_is_used_again_when_the_probe_is_back_and_all_members_are_level(events: list[str]) -> None:
    trial = tried(ONE, TWO)
    for event in events:
        assert not trial.passed(100)
        if event == "back":
            trial.returned(7)
        else:
            member = ONE if event == "one" else TWO
            trial.acknowledged(member, 54)
            assert not trial.passed(100), "it lacks one"
            trial.acknowledged(member, 55)
    assert trial.passed(100 + BEHIND)
    assert not trial.passed(101 + BEHIND), "ALM is too far behind by now"
    assert BEHIND < order.HELD / 2


def test_after_the_time_for_answers_alm_goes_on_for_the_silent_and_for_all_if_one_is_behind() -> None:
    trial = tried(ONE, TWO)
    trial.acknowledged(ONE, 55)
    assert trial.end(100) is None, "the probe is not back"
    trial.returned(6)
    assert trial.end(100) is None, "it was another one"
    trial.returned(7)
    assert trial.end(100) == [TWO]
    trial.acknowledged(TWO, 3)
    assert trial.end(100) is None


def test_a_tree_that_fails_again_is_tried_later_and_later() -> None:
    trial = Trial(0.5, 30.0)
    delays = [trial.postpone() for _ in range(9)]
    assert delays == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    trial.use(100.0)
    trial.carried(104.0)
    assert trial.postpone() == 30
    trial.carried(106.0)
    assert trial.postpone() == 0.5


def test_what_is_offered_is_measured_from_one_try_to_the_next() -> None:
    trial = tried(published=0)
    trial.ceiling.exceeded(1000.0)
    assert not trial.may_try(11.0, 5000)
    assert trial.may_try(12.0, 5900)


def test_a_second_look_at_the_same_moment_neither_allows_a_tree_nor_raises_its_ceiling() -> None:
    trial = tried(published=0)
    trial.ceiling.exceeded(1000.0)
    assert not trial.may_try(11.0, 5000)
    ceiling = trial.ceiling.rate
    assert not trial.may_try(11.0, 5000)
    assert not trial.may_try(11.1, 5001)
    assert trial.ceiling.rate == ceiling


@pytest.mark.parametrize("slowly", [False, True])
def test_a_tree_has_no_ceiling_before_anything_is_measured(slowly: bool) -> None:
    meter = Meter()
    if slowly:
        for second in range(5):
            meter.add(1, second)
    assert meter.rate(10.0) == float("inf")


@given(st.lists(st.floats(0.001, 0.2), min_size=20, max_size=300))
def test_a_meter_counts_the_last_second(gaps: list[float]) -> None:
    meter, now, times = Meter(), 0.0, []
    for gap in gaps:
        now += gap
        meter.add(1, now)
        times.append(now)
    if now > 2:
        rates = [sum(time > now - span for time in times) / span for span in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)]
        assert min(rates) * 0.3 <= meter.rate(now) <= max(rates) * 3


def test_a_datagram_is_lost_when_three_later_ones_are_back_and_a_round_trip_has_passed() -> None:
    flights = Flights(0.05)
    for serial in range(1, 8):
        flights.depart(serial, Flight(serial / 1000, b"", body(serial, serial)))
    for serial in (2, 3, 4):
        assert flights.back([serial], 0.001 * serial + 0.02)
    assert list(flights.overtaken(0.0211, 7)) == [], "they may have overtaken it"
    assert [flight.body for flight in flights.overtaken(0.030, 7)] == [body(1, 1)]
    assert list(flights.overtaken(0.030, 7)) == []
    assert not flights.is_silent(0.05)
    assert flights.is_silent(0.2)
    given_up, before = flights.give_up()
    assert [flight.late for flight in given_up] == [True] * 3
    assert not before
    assert flights.back([6], 0.3), "the time-out was too short"
    assert not flights.back([1], 0.3)


@given(
    questions=st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 30), st.floats(0.0, 0.3), st.sampled_from([ONE, TWO])), max_size=60
    )
)
def test_nobody_gets_the_same_again_within_a_second_and_everybody_in_the_end(
    questions: list[tuple[int, int, float, BrokerRef]],
) -> None:
    repairs, now, got = Repairs(), 10.0, {ONE: dict[int, float](), TWO: dict[int, float]()}
    for first, count, pause, who in questions:
        now += pause
        for repeated in repairs.due(who, "t", [body(n + 1, n + 1) for n in range(first, first + count)], now):
            [seq] = repeated.seqs
            assert now - got[who].get(seq, 0.0) >= AGAIN - 0.3 * 60, seq
            got[who][seq] = now
    for who in (ONE, TWO):
        wanted = [body(n, n) for n in range(1, 50)]
        assert repairs.due(who, "t", wanted, now + AGAIN) == wanted
        assert repairs.due(who, "t", wanted, now + 1.9 * AGAIN) == []


def busy(scene: Scene, count: int, seconds: float, size: int = 200) -> None:
    for _ in range(count):
        scene.brokers[0].publish("a/b", bytes(size))
        scene.simulation.run(seconds)


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_a_datagram_lost_for_all_goes_once_more_along_the_tree_and_not_by_alm(mode: Mode) -> None:
    scene = steady(mode, faults=OfmFaults(latency=(0.001, 0.001)), settings=DatapathSettings())
    messages, before = scene.simulation.counters.data, scene.ofm.sent
    busy(scene, 20, 0.001)
    scene.ofm.faults.loss = 1.0
    busy(scene, 1, 0.0)
    scene.simulation.run(0.0005)
    scene.ofm.faults.loss = 0.0
    busy(scene, 20, 0.001)
    scene.simulation.run(0.08)
    for broker in scene.brokers[2:]:
        assert sum(len(message.payload) == 200 for _, message in broker.delivered) == 41
    assert scene.ofm.datapaths["b0"].counts["lost"] == 1
    assert scene.simulation.counters.data == messages
    assert scene.ofm.sent - before <= 41 + 2


def test_a_tree_that_was_left_is_not_used_while_alm_is_far_behind() -> None:
    """Datagrams would overtake what waits in the links: more than members hold, and QoS 0 would be lost."""
    scene = steady(Mode.EITHER, faults=OfmFaults(latency=(0.001, 0.001)), settings=DatapathSettings())
    counts = scene.ofm.datapaths["b0"].counts
    scene.ofm.switches.trees, kept = {}, scene.ofm.trees
    busy(scene, 10, 0.02)
    assert counts["failed"] == 1
    scene.ofm.switches.trees = kept
    scene.simulation.network = Network(latency=(0.25, 0.25))
    carried = counts["carried"]
    busy(scene, 6000, 0.0002)
    assert counts["carried"] == carried, "the links are 1,200 publications behind"
    scene.simulation.network = Network(latency=(0.001, 0.002))
    busy(scene, 300, 0.1)
    assert counts["carried"] > carried
    scene.simulation.run(5)
    for broker in scene.brokers[2:]:
        assert sum(len(message.payload) == 200 for _, message in broker.delivered) == 6310


@pytest.mark.parametrize("changes", [0, 1, 2])
def test_what_a_member_misses_is_repeated_after_changes_of_the_tree(changes: int) -> None:
    scene = steady(Mode.EITHER, settings=DatapathSettings())
    victim = scene.brokers[5]
    scene.ofm.faults.deaf.add(victim.name)
    publish(scene, 1)
    scene.ofm.faults.deaf.clear()
    for _ in range(changes):
        scene.brokers[0].act(lambda: scene.ofm.agents["b0"].revoke("a/b", 1 << 62))
        scene.simulation.run(0.4)
    scene.simulation.run(10)
    scene.recorder.judge(faulty=False)


def test_a_member_that_asks_for_what_waits_is_not_told_that_it_does_not_come() -> None:
    scene = steady(Mode.EITHER, settings=DatapathSettings())
    datapath, member = scene.ofm.datapaths["b0"], scene.brokers[5].node.port.me
    last = scene.brokers[0].node.rendezvous.publishers.streams["a/b"].last_seq
    sent = datapath.counts["sent"]
    busy(scene, 20, 0.0)
    assert datapath.counts["sent"] - sent < 20
    found = datapath.remembered(member, "a/b", last, last + 20)
    assert [seq for each in found for seq in each.seqs] == list(range(last + 1, last + 21))
