"""The inbox by itself: how long later publications wait for one that does not come."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.overlay.delivery import order
from saps.overlay.frames.base import Frame
from saps.overlay.frames.delivery import Nack, Publish
from saps.overlay.ring.keys import BrokerRef
from saps.routing.batch import Batch
from tests import marks
from tests.batches import frame as publication
from tests.overlay.ports import LonePort

ORIGIN = BrokerRef("b0", 1, "", "c")
WAY = 0.01
"""Seconds to the origin, and back."""
LATE = 0.5
"""Seconds by which a publication may be late at most, of those that come."""


class Origin(LonePort):
    """A port with a clock, and the origin at its far end: it `has` some publications to repeat, and says that there are
    none, if it `answers`."""

    def __init__(self, *, answers: bool = True) -> None:
        super().__init__()
        self.delivered: dict[int, float] = {}
        """When each publication was delivered, in the order in which they were."""
        self.has: dict[int, Publish] = {}
        self.doubled: list[int] = []
        self._answers = answers
        self.baseline = 0
        """The subscription counts for what comes after this one."""
        self.inbox = order.Inbox(self, self._deliver, lambda topic, origin: self.baseline, lambda topic: 1)

    def _deliver(self, batch: Batch) -> list[int]:
        for payload in batch.payloads:
            number = int(payload)
            if number in self.delivered:
                self.doubled.append(number)
            self.delivered[number] = self.now
        return [1]

    def send(self, to: BrokerRef, frame: Frame) -> None:
        assert isinstance(frame, Nack)
        nack = frame
        if not self._answers:
            return
        assert nack.after is not None
        found = [seq for seq in self.has if nack.after < seq <= nack.seq]
        for seq in found:
            self.arrives(self.has[seq], self.now + 2 * WAY)
        if not found:
            self.after(2 * WAY, lambda: self.inbox.skip(ORIGIN, nack.topic, nack.seq))

    def arrives(self, data: Publish, when: float) -> None:
        def accept() -> None:
            self.inbox.accept(ORIGIN, data)

        self.after(when - self.now, accept)


def data(seq: int, qos: int) -> Publish:
    return publication("t", seq, seq - 1, b"%d" % seq, qos)


@given(
    fates=st.lists(
        st.tuples(st.sampled_from([0, 1]), st.sampled_from(["comes", "lost"]), st.floats(0, LATE)), max_size=60
    )
)
def test_one_that_is_lost_holds_later_ones_for_its_own_time_only_and_each_of_qos_1_comes(
    fates: list[tuple[int, str, float]],
) -> None:
    """A hundred a second; each gap is waited for from when it was noticed, not from the end of the gap before it."""
    port = Origin()
    arrived: dict[int, float] = {}
    for seq, (qos, fate, late) in enumerate(fates, 1):
        if qos:
            port.has[seq] = data(seq, qos)
        if fate == "comes":
            arrived[seq] = seq / 100 + late
            port.arrives(data(seq, qos), arrived[seq])
    port.run()
    last = max(arrived, default=0)
    assert list(port.delivered) == sorted(arrived.keys() | {seq for seq in port.has if seq < last})
    gaps = len(fates) - len(arrived)
    bound = order.OVERDUE + 2 * order.ASK_AFTER + LATE + (gaps + 1) * 2 * WAY
    assert all(port.delivered[seq] - when <= bound for seq, when in arrived.items())


@marks.expect("gap given up")
@pytest.mark.parametrize(("qos", "timeout"), [(0, order.GIVE_UP), (1, order.GIVE_UP_RELIABLE)])
def test_an_origin_that_does_not_answer_is_waited_for_longer_where_something_may_be_owed(
    qos: int, timeout: float
) -> None:
    port = Origin(answers=False)
    port.arrives(data(2, qos), 1.0)
    port.run()
    assert timeout <= port.delivered[2] - 1.0 <= timeout + 2 * order.ASK_AFTER
    assert port.inbox.given_up == 1


def test_what_comes_from_a_queue_is_waited_for_as_long_as_it_comes() -> None:
    """Two seconds of publications are in the queues of ALM as a tree takes the next ones."""
    port = Origin()
    for seq in range(1, 301):
        port.arrives(data(seq, 0), seq / 100 + (1.9 if seq <= 200 else 0.0))
    port.run()
    assert list(port.delivered) == list(range(1, 301))
    assert port.inbox.given_up == 0


@marks.expect("held before a gap nobody owes")
def test_what_was_held_for_an_earlier_subscription_comes_before_what_the_next_one_gets() -> None:
    origin = Origin()
    for seq in (1, 4):
        origin.inbox.accept(ORIGIN, data(seq, 1))
    origin.baseline = 5
    origin.inbox.accept(ORIGIN, data(6, 1))
    assert list(origin.delivered) == [1, 4, 6]


def test_what_may_be_lost_with_an_adoption_is_delivered_and_not_acknowledged() -> None:
    port = Origin()
    port.inbox.adopting[1] = BrokerRef("b0", 0, "", "c")
    assert port.inbox.accept(ORIGIN, data(1, 1)) == [order.DOUBTED]
    assert port.inbox.accept(ORIGIN, data(1, 1)) == [order.DOUBTED]
    assert port.inbox.accept(BrokerRef("b0", 0, "", "c"), data(1, 1)) == [1]
    assert port.inbox.accept(ORIGIN, data(2, 0)) == [1]
    port.inbox.adopting.clear()
    assert port.inbox.accept(ORIGIN, data(1, 1)) == [1]
    assert port.doubled == [1], "of another origin"


def test_beyond_the_bound_of_what_is_held_a_gap_of_qos_0_is_given_up() -> None:
    port = Origin(answers=False)
    for seq in range(2, order.HELD + 3):
        port.inbox.accept(ORIGIN, data(seq, 0))
    assert list(port.delivered) == list(range(2, order.HELD + 3))


@marks.expect("no room to hold")
@pytest.mark.parametrize("first", [0, 1], ids=["qos 0 missing", "qos 1 missing"])
def test_beyond_the_bound_of_what_is_held_qos_1_is_refused_and_comes_when_there_is_room(first: int) -> None:
    port, count = Origin(), 2 * order.HELD
    frames = {seq: data(seq, first if seq == 1 else 1 - seq % 7 // 6) for seq in range(1, count + 1)}
    for seq in range(2, count + 1):
        if frames[seq].qos:
            port.has[seq] = frames[seq]
        assert port.inbox.accept(ORIGIN, frames[seq]) == [order.DOUBTED if frames[seq].qos else 0]
    port.arrives(frames[1], order.ASK_AFTER / 2)
    port.run()
    delivered = list(port.delivered)
    assert delivered == sorted(delivered)
    assert {1, *port.has} <= {*delivered}
    assert not port.doubled


def test_nothing_is_asked_of_an_origin_that_is_gone_for_good() -> None:
    origin = Origin(answers=False)
    origin.inbox.accept(ORIGIN, data(1, 1))
    origin.inbox.expect(ORIGIN, "t", 5)
    origin.dead = True
    origin.inbox.forget(ORIGIN, over=False)
    origin.run()  # to an end


@pytest.mark.parametrize("back", [True, False])
def test_what_came_past_a_gap_waits_for_an_origin_that_may_come_back(back: bool) -> None:
    """It makes up for what it acknowledged while this broker was dead to it; if it does not come, what is held goes,
    unacknowledged."""
    origin = Origin(answers=False)
    origin.inbox.accept(ORIGIN, data(1, 1))
    origin.inbox.accept(ORIGIN, data(4, 1))
    origin.dead = True
    origin.inbox.forget(ORIGIN, over=False)
    origin.run(20.0)
    assert list(origin.delivered) == [1]
    if back:
        origin.dead = False
        origin.inbox.accept(ORIGIN, data(2, 1))
        with marks.expect("gap filled"):
            origin.inbox.accept(ORIGIN, data(3, 1))
    origin.run()
    assert list(origin.delivered) == ([1, 2, 3, 4] if back else [1])


@given(outages=st.lists(st.tuples(st.floats(0.1, 100), st.floats(0.1, 150)), min_size=1, max_size=6))
def test_an_origin_that_was_cut_off_again_and_again_doubles_nothing(outages: list[tuple[float, float]]) -> None:
    """What it remembers it repeats when it is back; a time that began at an earlier death counts no more."""
    origin = Origin()
    at = 0.0

    def publishes(seq: int) -> None:
        for known in range(1, seq + 1):
            origin.has[known] = data(known, 1)
            origin.inbox.accept(ORIGIN, origin.has[known])

    def dies(dead: bool) -> None:
        origin.dead = dead
        if dead:
            origin.inbox.forget(ORIGIN, over=True)

    for seq, (alive, away) in enumerate(outages, 1):
        origin.after(at, partial(publishes, seq))
        origin.after(at + alive, partial(dies, True))
        at += alive + away
        origin.after(at, partial(dies, False))
    origin.after(at, partial(publishes, len(outages) + 1))
    origin.run()
    assert list(origin.delivered) == list(range(1, len(outages) + 2))
    assert not origin.doubled
