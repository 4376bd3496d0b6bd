"""Missed publications are made up beside direct ones, and overtake none of these."""

from __future__ import annotations

from types import SimpleNamespace

from saps.overlay.delivery.order import MEMORY
from saps.overlay.frames.base import Frame
from saps.overlay.frames.delivery import Caught, MadeUp, Part
from saps.overlay.missed.returned import Returned
from saps.overlay.ring.keys import BrokerRef
from tests import marks
from tests.batches import frame as publication
from tests.overlay.delivery.test_order import ORIGIN, Origin, data


class Late(Origin):
    """The port of a broker that catches up."""

    def __init__(self) -> None:
        super().__init__()
        self.caught: list[int] = []
        self.returned = Returned(self, self.inbox, SimpleNamespace(registrations={}), lambda: False)  # type: ignore[arg-type]

    def send(self, to: BrokerRef, frame: Frame) -> None:
        if isinstance(frame, Caught):
            self.caught.append(frame.serial)
        else:
            super().send(to, frame)

    def made_up(self, serial: int, seq: int, *after: int) -> None:
        """A frame from the log."""
        body = publication("t", seq, 0, b"%d" % seq, 1)
        self.returned.on_made_up(ORIGIN, MadeUp(1, serial, [body], after=[Part("t", each) for each in after]))


@marks.expect("what was missed waits for what was sent directly before")
def test_what_comes_from_the_log_waits_for_what_was_sent_directly_before() -> None:
    port = Late()
    port.made_up(1, 1)
    port.arrives(data(2, 1), 0.3)
    port.made_up(2, 3, 2)
    port.made_up(3, 4)
    assert port.caught == [1]
    port.run(1.0)
    assert [*port.delivered] == [1, 2, 3, 4]
    assert port.caught == [1, 2, 3]


def test_what_does_not_come_is_asked_for() -> None:
    port = Late()
    port.has = {2: data(2, 1)}
    port.made_up(1, 1)
    port.made_up(2, 3, 2)
    port.run(1.0)
    assert [*port.delivered] == [1, 2, 3]


def test_a_lost_broker_is_waited_for_as_long_as_it_may_come_back() -> None:
    port = Late()
    port.made_up(1, 1)
    port.made_up(2, 3, 2)
    port.dead = True
    port.inbox.forget(ORIGIN, over=False)
    port.run(MEMORY - 1)
    assert [*port.delivered] == [1]
    port.run(MEMORY + 1)
    assert [*port.delivered] == [1, 3]
