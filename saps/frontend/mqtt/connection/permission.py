"""Delays a client's requests until an `Asker` has decided on their topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from saps.agents.user import Action, Asker
from saps.frontend.mqtt.timers import Timers

AT_ONCE = 8
"""Most simultaneous questions about one request."""
AGAIN = 0.05
"""Seconds until the next attempt at a question that the asker had no room for."""


class PermissionRequest:
    """Settles the rights for a client's requests, one request at a time.

    The caller calls `settled` with the topics of a request. If that returns False, the caller calls `settled` again
    when it gets the callback.
    """

    __slots__ = ("_action", "_asker", "_clock", "_found", "_go_on", "_open", "_timers", "_under_way", "_until")

    def __init__(self, timers: Timers, clock: Callable[[], float], action: Action) -> None:
        self._timers = timers
        self._clock = clock
        self._action = action
        self._asker: Asker | None = None
        self._found: dict[str, bool] | None = None
        """By topic of the waiting request: whether it is permitted. None if no request waits."""
        self._open: list[str] = []
        """Topics without a question yet."""
        self._under_way = 0
        self._until = 0.0
        """Time limit for the next question to find room, in seconds on the frontend's clock."""

    def settled(self, asker: Asker, topics: Sequence[str], go_on: Callable[[], None]) -> bool:
        """Settle the rights to the topics of a request.

        Returns True if the `asker` has them settled; the rights then hold for this request. Otherwise returns False,
        and calls `go_on` later; the caller must then call this again, with the current asker.
        """
        if self._found is None:
            known = {topic: asker.known(self._action, topic) for topic in topics}
            self._found = {topic: bool(allowed) for topic, allowed in known.items()}
            self._open = [topic for topic, allowed in known.items() if allowed is None]
            if self._open:
                self._asker, self._go_on = asker, go_on
                self._until = self._clock() + asker.timeout
                self._ask_more(0.0)
                return False
        asker.settle(self._action, self._found)
        self._found = self._asker = None
        return True

    def stop(self) -> None:
        """Ask no more questions. Call this when the connection ends."""
        self._open = []

    def _ask_more(self, now: float) -> None:
        asker = self._asker
        while asker is not None and self._open and self._under_way < AT_ONCE:
            if not asker.ask(self._action, self._open[-1], partial(self._answered, self._open[-1])):
                self._ask_later()
                return
            self._open.pop()
            self._under_way += 1
            self._until = self._clock() + asker.timeout

    def _ask_later(self) -> None:
        """Retry a question that found no room, after the next answer or, without open questions, after `AGAIN`."""
        if self._under_way:
            return
        now = self._clock()
        if now < self._until:
            self._timers.at(now + AGAIN, self._ask_more)
        else:
            self._open = []
            self._go_on()

    def _answered(self, topic: str, allowed: bool) -> None:
        self._under_way -= 1
        if self._found is not None:
            self._found[topic] = allowed
        if self._open:
            self._ask_more(0.0)
        elif not self._under_way:
            self._go_on()
