"""Which of the OFGates of a domain leads: the one with the lowest name. They greet each other all the time."""

from __future__ import annotations

from typing import Any, Protocol

from saps.agents.api import AgentRegistry, Answers
from saps.overlay.port import Port

HELLO = 1.0
"""Seconds between two looks at who else is an OFGate."""


class Candidate(Protocol):
    """What takes the lead and gives it up (`saps.agents.ofgate.term.Terms`)."""

    @property
    def begun(self) -> bool:
        """Has it taken the lead?"""

    def begin(self) -> None:
        """Take the lead, anew if it has it already."""

    def end(self) -> None:
        """Give up the lead."""


class Leadership:
    """Of one OFGate. `start` it when the others can find it."""

    def __init__(self, name: str, port: Port, registry: AgentRegistry, attribute: str, candidate: Candidate) -> None:
        """`attribute`: of all OFGates of the domain."""
        self._name = name
        self._port = port
        self._registry = registry
        self._attribute = attribute
        self._candidate = candidate
        self._rival = False
        """Another OFGate has led at the same time, on the far side of a partition."""
        self.stopped = False

    def start(self) -> None:
        """Greet the others, from now on."""
        if not self.stopped:
            greeting = self._name, self._candidate.begun
            self._registry.discovery_call(self._attribute, "hello", greeting, self._met)
            self._port.after(HELLO, self.start)

    def stop(self) -> None:
        """Give up the lead for good."""
        self.stopped = True
        self._candidate.end()

    def hello(self, name: str, led: bool) -> list[Any]:
        """`OFGate.hello`: another OFGate is there, which has `led` until now. ``[name, has led until now]``."""
        answer = [self._name, self._candidate.begun]
        if name < self._name:
            self._candidate.end()
        elif name > self._name:
            self._rival |= led
        return answer

    def _met(self, answers: Answers) -> None:
        """Who is there. When two have led, on the two sides of a partition, the lower name begins anew: with that all
        that either has said is taken back, after the other has stepped down."""
        if self.stopped:
            return
        others = [answer for answer in answers if answer.error is None and answer.agent != self._name]
        if any(answer.agent < self._name for answer in others):
            self._rival = False
            self._candidate.end()
            return
        self._rival |= any(answer.value[1] for answer in others)
        if answers.complete and (self._rival or not self._candidate.begun):
            self._rival = False
            self._candidate.begin()
