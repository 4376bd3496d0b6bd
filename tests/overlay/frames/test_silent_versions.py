"""Brokers of version 1 are asked nothing that they do not know; that the question is answered in their place is no sign
of life."""

from __future__ import annotations

import pytest

from saps.overlay.frames.calls import Gathered
from saps.simulator import Simulation

pytestmark = pytest.mark.simulation


def test_a_broker_that_is_silent_is_given_up_however_often_it_is_answered_for() -> None:
    """Else it would not be dead when it is cut off, nor heard of again, and told everything anew, when that is over."""
    mesh = Simulation(7)
    asking, *others = mesh.build(4)
    silent = others[-1]
    ready: list[bool] = []
    silent.subscribe("a/b", lambda: ready.append(True))
    mesh.run_until(lambda: bool(ready))
    asking.publish("a/b", b"opens", 1)
    mesh.run(2.0)
    mesh.partition([silent.name])
    asking.publish("a/b", b"waits", 1)
    for _ in range(40):
        mesh.run(0.1)
        answer = Gathered(1 << 40, [], complete=False, depth=0)
        asking.act(lambda answer=answer: asking.node.answered_for(silent.ref, answer))  # type: ignore[misc]
    assert asking.node.port.lost(silent.ref)
    mesh.heal()
    mesh.run(15.0)
    assert not asking.node.port.lost(silent.ref)
    asking.publish("a/b", b"again", 1)
    mesh.run(2.0)
    assert [message.payload for _, message in silent.delivered][-1] == b"again"
