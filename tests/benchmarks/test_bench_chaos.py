"""The fault suite's book and its schedule: what is owed is judged message by message, whatever the faults."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.chaos import history
from benchmarks.chaos.__main__ import main
from benchmarks.chaos.account import FLIGHT, ROAMING, Reach, Recorder, Stream, reach_of
from benchmarks.chaos.cable import lottery
from benchmarks.chaos.report import quantile
from benchmarks.chaos.schedule import (
    BETWEEN,
    CLOCKS,
    DISKS,
    ENDS,
    FOR_ALL,
    MOST,
    OPENFLOW,
    VERSIONS,
    Kind,
    Step,
    phases,
    steps,
)

NOBODY = Step(kind=Kind.KILL)
EAST, WEST = frozenset({"a"}), frozenset({"b"})
REACHES = (
    Reach(),
    *(Reach(brokers, kept=kept) for brokers in (EAST, WEST) for kept in (False, True)),
    *(Reach(sides=(EAST, WEST), kept=kept) for kept in (False, True)),
)
SWITCHES = ["s1", "s2"]
NO_VICTIM = BETWEEN | OPENFLOW | FOR_ALL


@given(data=st.data())
def test_each_wrong_delivery_is_counted_once_and_on_the_right_side(data: st.DataObject) -> None:
    """One stream from a to a subscriber at b and one at a, messages at 1, 2, ... s that are acknowledged after some
    time, against a plain account of the same history."""
    draw = data.draw
    stream = Stream("s", "a", draw(st.sampled_from((0, 1))))
    recorder = Recorder([stream], [("far", "b"), ("near", "a")])
    count = draw(st.integers(1, 12))
    spans = []
    for number in range(1, count + 1):
        assert stream.hand(float(number)) == number
        delay = draw(st.sampled_from((0.1, 1.5, 4.0))) if stream.qos else FLIGHT
        stream.acknowledged(number, number + delay)
        spans.append((number, number + delay))
    at, windows = 0.0, []
    for reach in draw(st.lists(st.sampled_from(REACHES), max_size=3)):
        begin = at + draw(st.floats(0.01, 5))
        at = begin + draw(st.floats(0, 5))
        recorder.close([recorder.strike(NOBODY, reach, begin)], at, at)
        windows.append((begin, at, reach))
    lost = doubled = unowed_lost = unowed_doubled = 0
    for name, broker in recorder.brokers.items():
        for number, (begin, end) in enumerate(spans, 1):
            met = [reach for b, e, reach in windows if b <= end and e >= begin and reach.touches("a", broker)]
            once = not met
            owed = once or (stream.qos > 0 and all(reach.kept and "a" not in reach.brokers for reach in met))
            match draw(st.sampled_from(("once", "once", "twice", "never"))):
                case "never":
                    lost, unowed_lost = lost + owed, unowed_lost + (not owed)
                    continue
                case "twice":
                    recorder.arrived(name, "s", number, 99.0)
                    doubled, unowed_doubled = doubled + once, unowed_doubled + (not once)
            recorder.arrived(name, "s", number, 99.0)
    (judged,) = recorder.judge()
    assert (judged.lost, judged.unowed_lost) == (lost, unowed_lost)
    assert (judged.doubled, judged.unowed_doubled) == (doubled, unowed_doubled)
    assert judged.delivered == 2 * count - lost - unowed_lost
    assert recorder.complete({"s": count}) is (lost == 0)


def test_a_late_first_copy_is_out_of_order_and_a_repetition_while_its_fault_is_there_is_not_held_against_anyone() -> (
    None
):
    stream = Stream("s", "a", 1)
    recorder = Recorder([stream], [("far", "b")])
    for number in (1, 2, 3):
        stream.acknowledged(stream.hand(number), number + 0.1)
    for number in (1, 3, 2):
        recorder.arrived("far", "s", number, 4.0)
    incident = recorder.strike(NOBODY, Reach(WEST), 5.0)
    recorder.arrived("far", "s", 3, 6.0)
    recorder.arrived("far", "s", 3, 13.0)  # to a client that is back 6 s after its broker
    recorder.close([incident], 7.0, 13.5)
    recorder.arrived("far", "s", 3, 14.0)
    (judged,) = recorder.judge()
    assert (judged.disordered, judged.doubled, judged.unowed_doubled, judged.lost) == (1, 1, 2, 0)
    assert recorder.details[0].startswith("doubled: s #3")


def test_a_roaming_subscriber_is_owed_what_is_published_elsewhere_than_at_the_victim_and_once_without_faults() -> None:
    stream, other = Stream("s", "a", 2), Stream("t", "b", 2)
    recorder = Recorder([stream, other], [("roamer", ROAMING)])
    for each in (stream, other):
        for now in (1.0, 5.0):
            each.acknowledged(each.hand(now), now + 0.1)
    recorder.close([recorder.strike(NOBODY, Reach(WEST, kept=True), 4.0)], 6.0, 6.0)
    recorder.arrived("roamer", "s", 1, 1.2)
    recorder.arrived("roamer", "s", 1, 1.3)
    (count,) = recorder.judge()
    assert (count.doubled, count.lost, count.unowed_lost) == (1, 2, 1)


def test_a_roaming_subscriber_may_get_again_with_qos_1_what_it_has_not_acknowledged_before_it_went() -> None:
    stream = Stream("s", "a", 1)
    recorder = Recorder([stream], [("roamer", ROAMING)])
    stream.acknowledged(stream.hand(1.0), 1.1)
    recorder.arrived("roamer", "s", 1, 1.2)
    recorder.arrived("roamer", "s", 1, 1.3)
    (count,) = recorder.judge()
    assert (count.doubled, count.unowed_doubled) == (0, 1)


def test_an_outage_is_the_longest_silence_of_a_pair_that_the_fault_did_not_touch() -> None:
    streams = [Stream("s", "a", 0), Stream("t", "b", 0)]
    recorder = Recorder(streams, [("far", "b"), ("near", "a")])
    recorder.watch(10.0)
    incident = recorder.strike(NOBODY, Reach(WEST), 10.0)
    for number, now in ((1, 10.5), (2, 12.75), (3, 13.0)):
        streams[0].hand(now)
        recorder.arrived("near", "s", number, now)
    recorder.close([incident], 13.5, 14.0)
    assert incident.outages == [2.25]


@given(seed=st.integers(), count=st.integers(1, 40), brokers=st.integers(1, 6))
def test_a_schedule_is_its_seeds_has_every_kind_each_round_and_ends_each_rolling_restart(
    seed: int, count: int, brokers: int
) -> None:
    names = [f"b{number}" for number in range(brokers)]
    planned = list(steps(seed, names, tuple(Kind), count, SWITCHES))
    assert planned == list(steps(seed, names, set(Kind), count, SWITCHES))
    assert count <= len(planned) < count + brokers
    size = len(Kind) - 1 + brokers
    for begin in range(0, len(planned) - size + 1, size):
        assert {step.kind for step in planned[begin : begin + size]} == set(Kind)
    restarts = [step for step in planned if step.kind is Kind.RESTART]
    for begin in range(0, len(restarts), brokers):
        turn = restarts[begin : begin + brokers]
        assert sorted(step.broker for step in turn) == names
        assert {step.version for step in turn} == {VERSIONS[begin // brokers % 2]}
    for step in planned:
        places = SWITCHES if step.kind is Kind.SWITCH else [""] if step.kind in NO_VICTIM else names
        assert step.broker in places
        assert (step.jump != 0) is (step.kind in CLOCKS)


@given(seed=st.integers(), count=st.integers(1, 60), brokers=st.integers(1, 6))
def test_faults_of_a_phase_have_victims_of_their_own_and_leave_what_is_promised(
    seed: int, count: int, brokers: int
) -> None:
    names = [f"b{number}" for number in range(brokers)]
    planned = list(phases(seed, names, tuple(Kind), count, SWITCHES))
    assert planned == list(phases(seed, names, set(Kind), count, SWITCHES))
    assert sum(map(len, planned)) >= count
    for phase in planned:
        assert len(phase) <= MOST
        kinds = [step.kind for step in phase]
        victims = [step.broker for step in phase if step.broker in names]
        assert len(set(victims)) == len(victims)
        assert len(BETWEEN.intersection(kinds)) <= 1
        assert FOR_ALL.isdisjoint(kinds) or len(kinds) == 1
        assert DISKS.isdisjoint(kinds) or sum(kind in ENDS for kind in kinds) == 1


def test_about_a_quarter_of_the_phases_has_no_fault() -> None:
    planned = list(phases(1, ["a", "b", "c"], (Kind.KILL, Kind.PAUSE, Kind.DISK), 2000))
    assert 0.2 < sum(not phase for phase in planned) / len(planned) < 0.3


@given(data=st.data())
def test_a_history_is_judged_again_as_it_was(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    draw = data.draw
    streams = [Stream("s", "a", 1), Stream("t", "b", 0)]
    recorder = Recorder(streams, [("far", "b"), ("near", "a")], {})
    for stream in streams:
        for number in range(1, 9):
            stream.hand(float(number))
            if draw(st.booleans()):
                stream.acknowledged(number, number + 0.5)
    incident = recorder.strike(NOBODY, draw(st.sampled_from(REACHES)), 3.0)
    recorder.close([incident], 4.0, 4.5)
    for name, source, number in draw(
        st.lists(st.tuples(st.sampled_from(("far", "near")), st.sampled_from("st"), st.integers(1, 8)), max_size=40)
    ):
        recorder.arrived(name, source, number, 20.0 + number)
    file = tmp_path_factory.getbasetemp() / "history"
    history.write(recorder, file)
    counts, again = history.judge(file)
    assert counts == recorder.judge()
    assert (again.details, again.places, again.incidents) == (recorder.details, recorder.places, recorder.incidents)


def test_a_history_that_is_none_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "history"
    file.write_bytes(b"nothing of the kind")
    assert main(["--judge", str(file)]) == 2
    assert capsys.readouterr().err.startswith(f"chaos: {file} is no history of a run")


def test_a_lost_message_is_named_by_its_place_in_the_stream() -> None:
    stream = Stream("s", "a", 1)
    recorder = Recorder([stream], [("far", "b")])
    for number in range(1, 11):
        stream.acknowledged(stream.hand(number), number + 0.1)
    for number in (3, 4, 6, 8):
        recorder.arrived("far", "s", number, 20.0)
    recorder.judge()
    assert recorder.places == {"beginning": 2, "middle": 2, "end": 2}
    assert recorder.details[0].startswith("lost from the beginning: s #1 ")


@given(share=st.floats(0, 1), seed=st.integers())
def test_the_lottery_drops_the_share_it_is_told(share: float, seed: int) -> None:
    """The program's one comparison, done by hand: packets whose random word is below the threshold are lost."""
    length, load, jump, passed, dropped = (line.split() for line in lottery(share).split(","))
    assert (length, load[0], jump[:3]) == (["4"], "32", ["53", "0", "1"])
    assert (passed[-1], dropped[-1]) == ("0", "2")
    words = [random.Random(seed).getrandbits(32) for _ in range(1000)]
    wanted = sum(word < share * 2**32 for word in words)
    assert abs(sum(word < int(jump[3]) for word in words) - wanted) <= 1


@given(values=st.lists(st.floats(0, 10), min_size=1, max_size=300), share=st.floats(0.01, 1))
def test_a_quantile_is_the_least_value_that_is_not_exceeded_by_that_share(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = quantile(ordered, share)
    assert found is not None
    assert sum(value <= found for value in ordered) >= share * len(ordered)
    assert sum(value < found for value in ordered) < share * len(ordered)


def test_only_a_client_that_roams_over_a_cut_may_begin_anew() -> None:
    recorder = Recorder([], [("roamer", ROAMING), ("at a", "a")])
    incident = recorder.strike(NOBODY, Reach(sides=(EAST, WEST), kept=True), 10.0)
    recorder.close([incident], 20.0, 21.0)
    later = recorder.strike(NOBODY, Reach(EAST, kept=True), 30.0)
    recorder.close([later], 40.0, 41.0)
    assert recorder.may_begin_anew("roamer", 15.0)
    assert not recorder.may_begin_anew("at a", 15.0)
    assert not recorder.may_begin_anew("a publisher", 15.0)
    assert not recorder.may_begin_anew("roamer", 9.0)
    assert not recorder.may_begin_anew("roamer", 35.0)


def test_what_a_broker_kept_for_others_beyond_a_cut_ends_with_its_disk() -> None:
    streams = [Stream("s", "a", 1), Stream("t", "c", 1)]
    recorder = Recorder(streams, [("at b", "b"), ("at c", "c")])
    for stream in streams:
        for now in (11.0, 13.0):
            stream.acknowledged(stream.hand(now), now + 0.1)
    cut = recorder.strike(NOBODY, Reach(sides=(frozenset("ac"), frozenset("b")), kept=True), 10.0)
    wiped = Step(kind=Kind.WIPE, broker="a")
    wipe = recorder.strike(wiped, reach_of(wiped, "abc", (frozenset(), frozenset())), 12.0)
    recorder.close([wipe], 12.5, 12.5)
    recorder.close([cut], 20.0, 21.0)
    assert [recorder.owed(streams[0], "at b", number) for number in (1, 2)] == [False, True]
    assert [recorder.owed(streams[0], "at c", number) for number in (1, 2)] == [True, True]
    assert [recorder.owed(streams[1], "at b", number) for number in (1, 2)] == [True, True]


def test_a_client_that_began_anew_beyond_a_cut_is_owed_nothing_of_that_time() -> None:
    stream = Stream("s", "a", 1)
    recorder = Recorder([stream], [("roamer", ROAMING), ("at b", "b")])
    for now in (9.0, 9.5, 15.0, 25.0):
        stream.acknowledged(stream.hand(now), now + 0.1)
    recorder.arrived("roamer", "s", 1, 9.2)
    incident = recorder.strike(NOBODY, Reach(sides=(EAST, WEST), kept=True), 10.0)
    owed = [recorder.owed(stream, "roamer", number) for number in (1, 2, 3, 4)]
    recorder.began_anew("roamer", 12.0)
    recorder.close([incident], 20.0, 21.0)
    recorder.began_anew("roamer", 22.0)
    assert owed == [True, True, True, True]
    assert [recorder.owed(stream, "roamer", number) for number in (1, 2, 3, 4)] == [True, False, False, True]
    assert [recorder.owed(stream, "at b", number) for number in (1, 2, 3, 4)] == [True, True, True, True]
