"""Publications in the name of an origin that it has not made: they keep none of its own from being delivered."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from saps.overlay.delivery import order
from saps.overlay.delivery.acknowledgements import REPEAT
from saps.overlay.delivery.numbers import STILL
from saps.overlay.frames.base import Frame
from saps.overlay.frames.delivery import Nack, Publish
from saps.overlay.ring.keys import BrokerRef
from saps.routing.batch import Batch
from tests import marks
from tests.batches import frame as publication
from tests.overlay.ports import LonePort

ORIGIN = BrokerRef("b0", 1, "", "c")
WAY = 0.01
"""Seconds from the origin to the receiver, and back."""
EVERY = 0.2
"""Seconds between two publications of the origin."""
FORGED = b"forged"


class Receiver(LonePort):
    """A receiver with a clock, and an honest origin at the far end of its link: what it publishes with QoS 1 it repeats
    until the receiver has answered for it."""

    def __init__(self, *, dead: bool = False) -> None:
        super().__init__(dead=dead)
        self.delivered: list[bytes] = []
        self.given = 0
        """The origin's last number."""
        self.unanswered: dict[int, Publish] = {}
        self.inbox = order.Inbox(self, self._deliver, lambda topic, origin: 0, lambda topic: 1)

    def _deliver(self, batch: Batch) -> list[int]:
        self.delivered += batch.payloads
        return [1]

    def send(self, to: BrokerRef, frame: Frame) -> None:
        assert isinstance(frame, Nack)
        self.after(WAY, partial(self._asked, frame))

    def _asked(self, nack: Nack) -> None:
        """As `Multicast._on_nack`."""
        after = nack.seq - 1 if nack.after is None else nack.after
        again = [seq for seq in self.unanswered if after < seq <= nack.seq] if nack.seq <= self.given else []
        for seq in again:
            self.after(WAY, partial(self._arrives, self.unanswered[seq]))
        if not again:
            given = self.given if self.given < nack.seq else None
            self.after(WAY, lambda: self.inbox.skip(ORIGIN, nack.topic, nack.seq, given))

    def publish(self) -> None:
        self.given += 1
        data = _publication(self.given)
        self.unanswered[self.given] = data
        self.after(WAY, partial(self._arrives, data))

    def _arrives(self, data: Publish) -> None:
        (seq,) = data.seqs
        if self.inbox.accept(ORIGIN, data) != [order.DOUBTED]:
            self.unanswered.pop(seq, None)
        elif seq in self.unanswered:
            self.after(REPEAT, partial(self._arrives, data))

    def forge(self, seq: int, prev: int, qos: int = 1) -> None:
        self.inbox.accept(ORIGIN, publication("t", seq, prev, FORGED, qos))

    def again(self, seq: int) -> None:
        """Somebody repeats what the origin has published, if it has."""
        if seq <= self.given:
            self.inbox.accept(ORIGIN, _publication(seq))

    def own(self) -> list[int]:
        """What has been delivered of the origin's own."""
        return [int(payload) for payload in self.delivered if payload != FORGED]


def _publication(seq: int) -> Publish:
    return publication("t", seq, max(seq - 1, 0), b"%d" % seq)


far = st.integers(1 << 20, (1 << 63) - 1)
when = st.floats(0, 20 * EVERY)
publications = 100


def publishing(receiver: Receiver) -> None:
    for number in range(publications):
        receiver.after(number * EVERY, receiver.publish)


@given(when, far, st.one_of(st.just(0), st.integers(0, 30), far))
@example(2.05, 1 << 62, 0)
@example(2.05, 1 << 62, (1 << 62) - 1)
@example(2.05, 1 << 20, 1 << 62)
def test_one_number_from_the_far_future_keeps_nothing_back(at: float, seq: int, prev: int) -> None:
    """Whatever it says that it follows: on something delivered, on something to come, or on what will never be."""
    receiver = Receiver()
    publishing(receiver)
    receiver.after(at, partial(receiver.forge, seq, prev))
    receiver.run(publications * EVERY + order.GIVE_UP_RELIABLE)
    assert receiver.own() == list(range(1, publications + 1))
    assert not receiver.inbox._held_bytes


@given(when, far)
def test_one_highest_number_from_the_far_future_keeps_nothing_back(at: float, seq: int) -> None:
    receiver = Receiver()
    publishing(receiver)

    def heard() -> None:
        receiver.inbox.expect(ORIGIN, "t", seq)

    receiver.after(at, heard)
    receiver.run(publications * EVERY + order.GIVE_UP_RELIABLE)
    assert receiver.own() == list(range(1, publications + 1))


near = st.integers(0, 2 * publications)


@given(
    st.lists(st.tuples(when, near | far, near | far, st.sampled_from([0, 1])), max_size=12),
    st.lists(st.tuples(when, near), max_size=5),
)
@example([(2.05, 1 << 61, 0, 1), (2.05, 1 << 62, 0, 1)], [])
def test_whatever_is_forged_nothing_comes_twice_and_it_is_over_soon(
    forged: list[tuple[float, int, int, int]], repeated: list[tuple[float, int]]
) -> None:
    """What is published after `STILL` seconds without it arrives, but for the numbers that have been used."""
    receiver = Receiver()
    publishing(receiver)
    for at, seq, prev, qos in forged:
        receiver.after(at, partial(receiver.forge, seq, prev, qos))
    for at, seq in repeated:
        receiver.after(at, partial(receiver.again, seq))
    receiver.run(publications * EVERY + 2 * order.GIVE_UP_RELIABLE)
    own = receiver.own()
    assert len(own) == len(set(own))
    used = {seq for _, seq, _, _ in forged} | {prev for _, _, prev, _ in forged}
    over = 20 * EVERY + STILL + 2 * EVERY
    later = {number for number in range(1, publications + 1) if (number - 1) * EVERY > over}
    assert later - used <= set(own)


@marks.expect("number disowned")
def test_an_origin_that_comes_back_is_heard_although_its_floor_was_forged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a number is left of it: a forged one, that counts for all of its topics."""
    monkeypatch.setattr(order, "LASTS", 0)
    receiver = Receiver()
    receiver.publish()
    receiver.run(1.0)
    receiver.forge(1 << 62, 1)
    receiver.dead = True
    receiver.inbox.forget(ORIGIN, over=True)
    receiver.run(2.0 + order.MEMORY)
    receiver.dead = False
    for _ in range(100):
        receiver.publish()
        receiver.run(receiver.now + EVERY)
    assert receiver.own()[-50:] == list(range(52, 102))
    assert receiver.inbox._floors[ORIGIN] < 102


def test_floors_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "FLOORS", 20)
    monkeypatch.setattr(order, "LASTS", 0)
    receiver = Receiver(dead=True)
    origins = [BrokerRef(f"b{number}", 1, "", "c") for number in range(order.FLOORS + 10)]
    for origin in origins:
        receiver.inbox.accept(origin, publication("t", 7, 0, b"7", 0))
        receiver.inbox.forget(origin, over=True)
    receiver.run(order.MEMORY + 1)
    assert list(receiver.inbox._floors) == origins[-order.FLOORS :]
    assert not receiver.inbox._sequences
