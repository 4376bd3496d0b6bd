"""OFGate's calls to the controller: of each topic the last one counts, and one that gets lost is made again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from saps.ofm.northbound.schema import OfmState
from saps.overlay.port import Port

PATIENCE = 3.0
"""Seconds after which a call to the controller is taken for lost, and between two attempts to reach it."""

Answered = Callable[[OfmState | None], None]


class Calls:
    """Of one term. `close` it when OFGate does not lead any more: then no answer counts."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._latest: Counter[str] = Counter()
        """By topic the number of the present call: answers to earlier ones count for nothing."""
        self._closed = False

    def close(self) -> None:
        """Take no answer into account any more."""
        self._closed = True

    def make(
        self,
        topic: str,
        call: Callable[[Answered], None],
        answered: Callable[[OfmState], None],
        again: Callable[[], None],
    ) -> None:
        """Make a call to the controller; if it cannot be reached or the answer gets lost, `again`."""
        self._latest[topic] += 1
        number = self._latest[topic]

        def done(state: OfmState | None) -> None:
            if self._counts(topic, number) and state is not None:
                self._latest[topic] += 1
                answered(state)

        self.later(topic, PATIENCE, again)
        call(done)

    def later(self, topic: str, delay: float, step: Callable[[], None]) -> None:
        """Take a step after so many seconds, unless another call has been made or answered by then."""
        number = self._latest[topic]

        def due() -> None:
            if self._counts(topic, number):
                step()

        self._port.after(delay, due)

    def _counts(self, topic: str, number: int) -> bool:
        return self._latest[topic] == number and not self._closed
