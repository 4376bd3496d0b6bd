"""Whom a tree reaches: how long a sender waits for members, and how long ALM serves those that it does not reach."""

from __future__ import annotations

import pytest

from saps.ofm.datapath.reach import Reach
from saps.ofm.datapath.settings import DatapathSettings
from saps.ofm.datapath.trial import PROVEN
from saps.overlay.delivery.ofm_members import Served, Tree
from saps.overlay.frames.base import Frame
from saps.overlay.ring.keys import BrokerRef
from tests.overlay.ports import LonePort

AWAY, HERE = BrokerRef("away", 1, "", "c"), BrokerRef("here", 1, "", "c")
SERVED = Served(Tree("239.77.0.1:5000", 1), frozenset({("away", 1), ("here", 1)}))


class Silent(LonePort):
    """A port that nothing leaves by."""

    def send(self, to: BrokerRef, frame: Frame) -> None:
        raise AssertionError(frame)


@pytest.fixture
def port() -> Silent:
    return Silent()


@pytest.fixture
def reach(port: Silent) -> Reach:
    return Reach(port, DatapathSettings(), lambda: None)


def test_a_member_that_repeats_its_acknowledgement_is_waited_for_no_longer(port: Silent, reach: Reach) -> None:
    for serial in range(1, 201):
        reach.progress.sent((AWAY, HERE), serial)
    reach.acknowledged(HERE, 200)
    reach.acknowledged(AWAY, 1)
    assert reach.held() == 0.0
    for tenth in range(1, 4):
        port.now = tenth / 10
        reach.acknowledged(AWAY, 1)
        reach.check(0.2)
    assert reach.held() is None
    assert reach.usable(SERVED).brokers == {("here", 1)}


@pytest.mark.parametrize("calm", [0.0, 2 * PROVEN])
def test_a_member_that_is_lost_again_is_tried_later_but_not_after_a_calm_time(
    port: Silent, reach: Reach, calm: float
) -> None:
    waits = []
    for _ in range(4):
        begun = port.now
        reach.do_without([AWAY])
        while reach.usable(SERVED) is not SERVED:
            port.run(port.now + 0.1)
        waits.append(port.now - begun)
        port.run(port.now + calm)
    assert (waits[-1] < 2 * waits[0]) is bool(calm), waits
