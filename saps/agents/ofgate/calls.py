"""OFGate's calls to the controller: only the latest call of a topic counts, and a lost call is made again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from saps.ofm.northbound.schema import OfmState
from saps.overlay.port import Port

TIMEOUT = 3.0
"""Time in seconds after which a call to the controller counts as lost; also the delay between two attempts to reach
it."""

Answered = Callable[[OfmState | None], None]


class Calls:
    """The calls of one term. Call `close` when OFGate stops leading: then no answer counts."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._latest: Counter[str] = Counter()
        """Topic -> number of the present call. Answers to earlier calls do not count."""
        self._closed = False

    def close(self) -> None:
        """Ignore all answers from now on."""
        self._closed = True

    def make(
        self,
        topic: str,
        call: Callable[[Answered], None],
        answered: Callable[[OfmState], None],
        again: Callable[[], None],
    ) -> None:
        """Make a call to the controller. `answered` gets its state. `again` runs after `TIMEOUT` seconds if the
        controller cannot be reached or the answer is lost."""
        self._latest[topic] += 1
        number = self._latest[topic]

        def done(state: OfmState | None) -> None:
            if self._counts(topic, number) and state is not None:
                self._latest[topic] += 1
                answered(state)

        self.later(topic, TIMEOUT, again)
        call(done)

    def later(self, topic: str, delay: float, step: Callable[[], None]) -> None:
        """Run `step` after `delay` seconds, unless another call of the topic has been made or answered by then."""
        number = self._latest[topic]

        def due() -> None:
            if self._counts(topic, number):
                step()

        self._port.after(delay, due)

    def _counts(self, topic: str, number: int) -> bool:
        return self._latest[topic] == number and not self._closed
