"""What brokers and OFGate keep in the long run: nothing of topics, filters and calls that are over."""

from __future__ import annotations

import pytest

from saps.agents.ofgate.leadership import Greeting
from saps.agents.ofgate.ofgate import LEASE, SWEEP
from saps.agents.switchover import Mode, TopicStatus
from saps.overlay.frames.calls import AgentCall
from saps.statistics.agent import MonitorAgent
from tests.agents.test_switchover import steady, without_alm

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])
def test_no_answer_is_kept_that_grows_with_what_a_broker_has(mode: Mode) -> None:
    scene = steady(mode)
    agents = scene.brokers[0].agents
    agents.host("monitor", MonitorAgent(list))
    for name, method, args in (("ofm", "describe", ()), ("ofm", "report", (False,)), ("monitor", "counts", (9,))):
        agents.answer(AgentCall(name, method, args, 0, scene.brokers[1].ref), False)
    scene.simulation.run(30)
    kept = [answer for broker in scene.brokers for some in broker.agents._answered.values() for answer in some]
    assert {type(answer.value) for answer in kept} <= {bool, Greeting, TopicStatus, type(None)}
    assert not any(answer.error for answer in kept)


def test_ofgate_forgets_topics_that_nobody_wants_or_asks_about() -> None:
    """But not while a publisher holds an answer: that has to be taken back from it."""
    scene = steady(Mode.EITHER)
    term, asking = scene.gate._terms.construction, scene.ofm.agents["b2"].me.plain()
    assert term is not None
    for number in range(10):
        scene.gate.status([f"reply/{number}"], asking)
    term.forget_idle()
    assert len(term.topics) == 11
    scene.simulation.run(LEASE + 2 * SWEEP)
    assert set(term.topics) == {"a/b"}
    without_alm(scene, 20)
