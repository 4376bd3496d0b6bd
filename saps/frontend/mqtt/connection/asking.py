"""Requests of a client that wait until somebody else has said if their topics are permitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from saps.agents.user import Action, Asker
from saps.frontend.mqtt.timers import Timers

AT_ONCE = 8
"""Questions about one request under way at the same time."""
AGAIN = 0.05
"""Seconds until a question for which there was no room is put again."""


class Asking:
    """One request at a time: `settled` is called with its topics, and again when it has called back."""

    __slots__ = ("_action", "_asker", "_clock", "_found", "_go_on", "_open", "_timers", "_under_way", "_until")

    def __init__(self, timers: Timers, clock: Callable[[], float], action: Action) -> None:
        self._timers = timers
        self._clock = clock
        self._action = action
        self._asker: Asker | None = None
        self._found: dict[str, bool] | None = None
        """By topic of the request that waits; None: none does."""
        self._open: list[str] = []
        """The topics that are to be asked about."""
        self._under_way = 0
        self._until = 0.0
        """When the first of them is given up if there is still no room for it."""

    def settled(self, asker: Asker, topics: Sequence[str], go_on: Callable[[], None]) -> bool:
        """True: what is permitted of the request is settled with the `asker`. False: `go_on` is called when this is to
        be asked again, with the asker of then."""
        if self._found is None:
            known = {topic: asker.known(self._action, topic) for topic in topics}
            self._found = {topic: bool(allowed) for topic, allowed in known.items()}
            self._open = [topic for topic, allowed in known.items() if allowed is None]
            if self._open:
                self._asker, self._go_on = asker, go_on
                self._until = self._clock() + asker.patience
                self._ask_more(0.0)
                return False
        asker.settle(self._action, self._found)
        self._found = self._asker = None
        return True

    def stop(self) -> None:
        """The client is gone: ask nothing more."""
        self._open = []

    def _ask_more(self, now: float) -> None:
        asker = self._asker
        while asker is not None and self._open and self._under_way < AT_ONCE:
            if not asker.ask(self._action, self._open[-1], partial(self._answered, self._open[-1])):
                self._ask_later()
                return
            self._open.pop()
            self._under_way += 1
            self._until = self._clock() + asker.patience

    def _ask_later(self) -> None:
        """There is no room for a question: an answer to another one, or a while, may make some."""
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
