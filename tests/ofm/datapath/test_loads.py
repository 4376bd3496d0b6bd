"""Publications packed into datagrams: nothing is lost, doubled or reordered, and no datagram is too large."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from saps.messages import Properties
from saps.ofm.datapath.congestion import BEHIND, FIRST, LEAST, MOST, SMALL, Progress, Window
from saps.ofm.datapath.loads import Load, Waiting, joined, split, weights
from saps.overlay.delivery.publications import give, properties_of
from saps.overlay.frames.delivery import Part, Publish
from saps.overlay.ring.keys import BrokerRef

ME, OTHER = (BrokerRef(name, 1, f"10.0.0.{number}:1", "c") for number, name in enumerate(("me", "other"), 1))
ROOM = 300


@st.composite
def loads_drawn(draw: st.DrawFn) -> list[Load]:
    """What one origin publishes to a topic, some of which went another way, and what it stands for."""
    found, seq = [], {ME: 0, OTHER: 0}
    for _ in range(draw(st.integers(1, 12))):
        origin, count = draw(st.sampled_from([ME, ME, ME, OTHER])), draw(st.integers(1, 6))
        prev = seq[origin] = seq[origin] + draw(st.sampled_from([0, 0, 0, 3]))
        payloads = [bytes(draw(st.integers(0, ROOM - 40))) for _ in range(count)]
        body = Publish(0, 0, 0, draw(st.sampled_from([0, 0, 1])), False, [Part("t", prev)], [], [], payloads, [], [])
        body.which, body.seqs = [0] * count, [prev + number for number in range(1, count + 1)]
        if draw(st.booleans()):
            give(body, [draw(st.sampled_from([None, Properties(content_type="x")])) for _ in range(count)], {})
        seq[origin] += count
        members = (OTHER,) if origin == ME else ()
        found.append(Load(body, weights(body), sum(weights(body)), members, origin))
    return found


def told(body: Publish) -> list[tuple[int, bytes, Properties | None]]:
    """Each publication of a body."""
    properties = properties_of(body) or [None] * len(body.seqs)
    return list(zip(body.seqs, body.payloads, properties, strict=True))


@given(loads_drawn())
def test_what_waited_leaves_whole_and_in_order(loads: list[Load]) -> None:
    waiting, left = Waiting(), []
    for load in loads:
        waiting.add(load)
    while waiting:
        taken = waiting.take(ROOM)
        body = joined([load.body for load in taken])
        assert len({(load.origin, load.body.qos, load.members) for load in taken}) == 1
        last = body.parts[0].prev
        for part in split(body, [weight for load in taken for weight in load.weights], ROOM):
            assert part.parts[0].prev == last, "a gap inside a datagram, or a false one between two"
            assert len(part.seqs) == 1 or sum(weights(part)) <= ROOM
            last = part.seqs[-1]
            left += [(taken[0].origin, each) for each in told(part)]
    assert left == [(load.origin, each) for load in loads for each in told(load.body)]
    assert waiting.size == 0


@given(st.lists(st.sampled_from(["return", "return", "return", "lose"]), max_size=200))
def test_the_window_stays_between_its_bounds_and_halves_once_a_round_trip(events: list[str]) -> None:
    window, serial = Window(), 0
    for event in events:
        before, serial = window.allowed, serial + 1
        if event == "return":
            window.returned(1, round(before))
            assert before <= window.allowed <= before + 1
        else:
            window.lost(serial, serial + 10)
            assert window.allowed in (before, max(LEAST, before / 2))
            once = window.allowed
            window.lost(serial + 1 if once < before else serial, serial + 20)
            assert window.allowed == once, "of the same round trip"
        assert LEAST <= window.allowed <= MOST


def test_with_little_under_way_a_datagram_need_not_be_full() -> None:
    window = Window()
    assert window.admits(SMALL - 1, full=False)
    assert not window.admits(SMALL, full=False)
    assert window.admits(round(FIRST) - 1, full=True)
    assert not window.admits(round(FIRST), full=True)


def test_a_window_that_is_not_used_does_not_grow() -> None:
    window = Window()
    for _ in range(1000):
        window.returned(1, 1)
    assert window.allowed == FIRST


@given(st.lists(st.tuples(st.sampled_from(["send", "send", "send", "tell", "forget", "change"]), st.integers(0, 3))))
def test_who_is_too_far_behind_is_known_for_each_datagram(events: list[tuple[str, int]]) -> None:
    progress, has = Progress(), dict[BrokerRef, int]()
    members: tuple[BrokerRef, ...] = (ME, OTHER)
    sent = 0
    for event, number in events:
        member = (ME, OTHER)[number % 2]
        if event == "send":
            for _ in range(BEHIND // 2):
                sent += 1
                progress.sent(members, sent)
                has = {each: has.get(each, sent - 1) for each in members}
        elif event == "tell":
            progress.acknowledged(member, sent - BEHIND * number // 2)
            if member in has:
                has[member] = max(has[member], sent - BEHIND * number // 2)
        elif event == "forget":
            progress.forget(member)
            has.pop(member, None)
        else:
            members = ((ME, OTHER), (ME,), (OTHER,), ())[number]
        assert set(progress.left_behind()) == {each for each, at in has.items() if at < sent - BEHIND}
