"""EITHER at a publisher: what it asks OFGate, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from saps.agents.api import AgentRegistry, Answers
from saps.agents.either import AT_ONCE, RENEW, TOGETHER, Either
from saps.agents.switchover import Member
from saps.ofm.network.topology import BrokerAddress
from saps.ofm.northbound.schema import Status
from saps.overlay.delivery.ofm_members import Served
from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Answer
from saps.overlay.ring.keys import BrokerRef
from tests.overlay.ports import LonePort

LEASE = 10.0


class Publisher(LonePort):
    """A broker that publishes, and all of whose questions reach one OFGate."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[float, list[str]]] = []
        self.used: dict[str, Served | None] = {}
        self.held: list[Callable[[], None]] = []
        """Answers on their way."""
        me = Member(self.me, BrokerAddress("10.0.0.1", "02:00:00:00:00:01", 7400))
        self.either = Either(self, cast(AgentRegistry, self), me, self.used.__setitem__, lambda topic, label: None)

    def send(self, to: BrokerRef, frame: Frame) -> None:
        raise AssertionError("all goes by calls")

    def discovery_call(self, gate: str, method: str, args: Iterable[Any], done: Callable[[Answers], None]) -> None:
        topics, _ = args
        self.asked.append((self.now, topics))
        said = [[Status.CONSTRUCTED, f"ofm/{topic}", 1, [["b2", 1]], LEASE, b"label"] for topic in topics]
        self.held.append(lambda: done(Answers([Answer("gate", said)])))

    def answer(self) -> None:
        held, self.held = self.held, []
        for each in held:
            each()


def test_topics_that_begin_together_are_one_question_and_stay_one() -> None:
    port = Publisher()
    for topic in "abc":
        port.either.stream_opened(topic)
    port.run(0.01)
    port.either.stream_opened("d")
    port.run(0.02)
    port.answer()
    assert {topic: served.tree.address for topic, served in port.used.items() if served} == {
        t: f"ofm/{t}" for t in "abcd"
    }
    port.run(LEASE * RENEW)
    assert [topics for _, topics in port.asked] == [["a", "b", "c"], ["d"], ["a", "b", "c", "d"]]
    assert LEASE * (RENEW - TOGETHER) <= port.asked[-1][0] <= LEASE * RENEW


def test_a_question_has_a_bounded_number_of_topics() -> None:
    port = Publisher()
    for number in range(AT_ONCE + 1):
        port.either.stream_opened(str(number))
    port.run(0.01)
    assert [len(topics) for _, topics in port.asked] == [AT_ONCE, 1]
    port.answer()
    assert len(port.used) == AT_ONCE + 1


def test_what_is_revoked_meanwhile_is_not_taken_from_the_common_answer() -> None:
    port = Publisher()
    for topic in "ab":
        port.either.stream_opened(topic)
    port.run(0.01)
    port.either.revoke("a", 1)
    port.answer()
    assert port.used["a"] is None
    assert port.used["b"] is not None
    port.run(0.5)
    assert [topics for _, topics in port.asked] == [["a", "b"], ["a"]]


def test_a_topic_that_has_ended_at_once_is_not_asked_about() -> None:
    port = Publisher()
    port.either.stream_opened("a")
    port.either.stream_opened("b")
    port.either.stream_closed("a")
    port.run(0.01)
    assert [topics for _, topics in port.asked] == [["b"]]
