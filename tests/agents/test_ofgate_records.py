"""What brokers and OFGate keep in the long run: nothing of topics, filters and calls that are over."""

from __future__ import annotations

import pytest

from saps.agents.api import Answers
from saps.agents.ofgate.leadership import Greeting
from saps.agents.ofgate.ofgate import LEASE, SWEEP
from saps.agents.ofgate.roster import Roster
from saps.agents.switchover import Member, Mode, Report, TopicStatus
from saps.ofm.network.topology import BrokerAddress
from saps.overlay.frames.calls import AgentCall, Answer
from saps.overlay.ring.keys import BrokerRef
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


def test_a_filter_that_two_reports_in_a_row_do_not_have_is_forgotten() -> None:
    """The notice that its last subscriber has gone may be lost. One report may be older than the notice that the first
    has come."""
    roster = Roster()
    plain = Member(BrokerRef("b", 1, "b:1", "c"), BrokerAddress("10.0.0.1", "02:00:00:00:00:01", 7400)).plain()

    def take(*filters: tuple[str, int]) -> bool:
        """Whether the broker still counts as a subscriber after this report."""
        report = Report(plain, list(filters), [], 0)
        roster.take(Answers([Answer("ofm", report), Answer("ofm", report)]))
        return "b" in roster.interested("a/b")

    roster.register(plain, "a/b", 1, True)
    assert [take(), take(("a/b", 1)), take(), take()] == [True, True, True, False]
    for version in range(2, 50, 2):
        roster.register(plain, f"reply/{version}", version, True)
        roster.register(plain, f"reply/{version}", version + 1, False)
    assert not roster.register(plain, "reply/2", 2, True), "an old notice that comes late"
    take()
    take()
    assert roster._filters == {"b": {}}
