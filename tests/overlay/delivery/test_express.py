"""The express lane: the end of a link comes after all that was sent before, and each lane has its own numbers."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from saps.overlay.delivery.express import FIRST, Endings, Lane, by_express, ends_a_link
from saps.overlay.frames.base import Frame
from saps.overlay.frames.delivery import DefineBroker, DefineSlice, HighWater, Nack, OfmAck, Publish, Skip
from saps.overlay.frames.ring import Leave, LeaveAck, Ping
from saps.overlay.ring.keys import BrokerRef
from tests.batches import frame as publication

PEER, OTHER = BrokerRef("peer", 1, "peer:1", "c"), BrokerRef("other", 1, "other:1", "c")


def urgent(topic: str) -> bool:
    return topic.startswith("alert/")


def data(topic: str, number: int = 1) -> Publish:
    return publication(topic, 1, 0, b"", 0, origin=number)


def test_all_about_a_priority_topic_goes_by_the_express_lane_and_nothing_else() -> None:
    for topic, express in (("alert/fire", True), ("air/no2", False)):
        for frame in (data(topic), Nack(topic, 1), Skip(topic, 1), HighWater(topic, 1), OfmAck(topic, 1, 1)):
            assert by_express(frame, urgent) is express
    assert by_express(DefineBroker(FIRST + 1, PEER), urgent)
    assert by_express(DefineSlice(FIRST + 1, [FIRST + 1]), urgent)
    for other in (DefineBroker(FIRST, PEER), DefineSlice(1, [1]), Leave(), LeaveAck(), Ping()):
        assert not by_express(other, urgent)


@st.composite
def deliveries(draw: st.DrawFn) -> list[tuple[int, Frame]]:
    """What a peer sends over its two lanes before its end, and the end over both, in an order the network may choose:
    each lane in its own order."""
    lanes = [
        [
            *(data("t", number) for number in range(draw(st.integers(0, 4)))),
            draw(st.sampled_from([Leave(), LeaveAck()])),
        ]
        for _ in range(2)
    ]
    lanes[1][-1] = lanes[0][-1]
    turns = draw(st.permutations([0] * len(lanes[0]) + [1] * len(lanes[1])))
    taken = [iter(lane) for lane in lanes]
    return [(turn, next(taken[turn])) for turn in turns]


@given(deliveries(), st.integers(0, 1))
def test_the_end_is_handed_on_once_and_after_everything_else(came: list[tuple[int, Frame]], greets_late: int) -> None:
    """One of the lanes says whose it is only just before its first frame; another peer's lane is never waited for."""
    endings, lanes, bystander = Endings(), [Lane(), Lane()], Lane()
    for lane in (*lanes, bystander):
        endings.opened(lane)
    bystander.peer, lanes[1 - greets_late].peer = OTHER, PEER
    got: list[Frame] = []
    for turn, frame in came:
        if lanes[turn].peer is None:
            lanes[turn].peer = PEER
            got += [ended for _, ended in endings.released()]
        got += endings.passed(lanes[turn], [frame])
    assert [ends_a_link(frame) for frame in got] == [False] * (len(came) - 2) + [True]


def test_a_lane_that_is_closed_is_waited_for_no_more() -> None:
    for first, kind in itertools.product((0, 1), (Leave, LeaveAck)):
        endings, lanes = Endings(), [Lane(), Lane()]
        for lane in lanes:
            endings.opened(lane)
            lane.peer = PEER
        assert endings.passed(lanes[first], [kind()]) == []
        assert endings.closed(lanes[1 - first]) == [(PEER, kind())]
        assert endings.released() == []
