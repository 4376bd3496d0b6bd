"""Leader election among the OFGates of a domain: the lowest name leads. The OFGates greet each other all the time."""

from __future__ import annotations

from typing import Protocol

import msgspec

from saps.agents.api import AgentRegistry, Answers
from saps.overlay.port import Port

HELLO = 1.0
"""Interval in seconds between two greetings to the other OFGates."""


class Greeting(msgspec.Struct, frozen=True, array_like=True):
    """An OFGate's answer to the greeting of another."""

    name: str
    led: bool
    """Whether it has led until now."""


class Candidate(Protocol):
    """The part that takes the lead and gives it up (`saps.agents.ofgate.term.Terms`)."""

    @property
    def begun(self) -> bool:
        """Whether the candidate has taken the lead."""

    def begin(self) -> None:
        """Take the lead; if the candidate has it already, begin a new term."""

    def end(self) -> None:
        """Give up the lead."""


class Leadership:
    """The leader election of one OFGate. Call `start` once the other OFGates can find it."""

    def __init__(self, name: str, port: Port, registry: AgentRegistry, attribute: str, candidate: Candidate) -> None:
        """`attribute` is the attribute of all OFGates of the domain."""
        self._name = name
        self._port = port
        self._registry = registry
        self._attribute = attribute
        self._candidate = candidate
        self._rival = False
        """Whether another OFGate has led at the same time, on the far side of a partition."""
        self.stopped = False

    def start(self) -> None:
        """Greet the other OFGates, now and every `HELLO` seconds."""
        if not self.stopped:
            greeting = self._name, self._candidate.begun
            self._registry.discovery_call(self._attribute, "hello", greeting, self._met)
            self._port.after(HELLO, self.start)

    def stop(self) -> None:
        """Give up the lead for good."""
        self.stopped = True
        self._candidate.end()

    def hello(self, name: str, led: bool) -> Greeting:
        """Handle the greeting of another OFGate, which has `led` until now, and answer it (`OFGate.hello`)."""
        answer = Greeting(self._name, self._candidate.begun)
        if name < self._name:
            self._candidate.end()
        elif name > self._name:
            self._rival |= led
        return answer

    def _met(self, answers: Answers) -> None:
        """Handle the answers of the other OFGates. If two have led on the two sides of a partition, the lower name
        begins a new term after the other has stepped down. The new term takes back everything that either has said."""
        if self.stopped:
            return
        others = [greeting for name, greeting in answers.of(Greeting) if name != self._name]
        if any(greeting.name < self._name for greeting in others):
            self._rival = False
            self._candidate.end()
            return
        self._rival |= any(greeting.led for greeting in others)
        if answers.complete and (self._rival or not self._candidate.begun):
            self._rival = False
            self._candidate.begin()
