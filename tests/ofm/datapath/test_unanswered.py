"""Which publications the members of a tree have acknowledged."""

from __future__ import annotations

import math

from saps.ofm.datapath.loads import Unacknowledged
from saps.ofm.datapath.unanswered import Unanswered
from saps.overlay.delivery.pending import Pending
from saps.overlay.frames.delivery import OfmAck
from saps.overlay.ring.keys import BrokerRef
from tests.batches import frame

MEMBER = BrokerRef("b1", 1, "", "c")


def test_what_has_not_left_cannot_be_acknowledged() -> None:
    unanswered = Unanswered(0.2)
    for seq, sent in ((1, 4.0), (2, math.inf)):
        pending = Pending(MEMBER, frame("t", seq, seq - 1, b"", 1))
        unanswered.add(Unacknowledged(pending, (MEMBER,), sent), None)
    assert [each.last for each in unanswered.acknowledged(MEMBER, OfmAck("t", 1 << 40, 1), 5.0)] == [1]
    assert unanswered.members() == {MEMBER}
    assert unanswered.time.mean == 1.0
