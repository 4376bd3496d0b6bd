"""Publishers that wait for a slow subscriber, and how long they do."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.flow_control import FlowControl
    from saps.frontend.mqtt.connection.outbound import Outbound
    from saps.frontend.mqtt.frontend import Frontend

TURN = 0.001
"""Seconds: when two such timers have run, one after the other, all that had arrived from a client has been read."""


class Waiters:
    """The publishers that wait for one client. How long they do in all is limited (`Limits.publisher_wait`)."""

    __slots__ = ("_frontend", "_list", "_outbound", "_spent", "_spent_since", "_waited_since")

    def __init__(self, outbound: Outbound, frontend: Frontend) -> None:
        self._outbound = outbound
        self._frontend = frontend
        self._list: list[FlowControl] | None = None
        self._spent = 0.0
        """Seconds that are used up, since `_spent_since`."""
        self._spent_since = 0.0
        self._waited_since: float | None = None
        """Since when the wait of publishers counts."""

    def add(self, publisher: FlowControl) -> bool:
        """The publisher is to wait until the client can take messages again. False if it need not, or may not."""
        if not self._outbound.behind:
            return False
        waiting = self._begin() if self._list is None else self._list
        if waiting is None or publisher in waiting:
            return False
        waiting.append(publisher)
        return True

    def caught_up(self) -> None:
        """The client may have caught up."""
        if self._list is not None and not self._outbound.behind:
            self.release()

    def release(self) -> None:
        """Let the publishers continue."""
        waiting, self._list = self._list, None
        if self._waited_since is not None:
            self._spent += self._frontend.clock() - self._waited_since
            self._waited_since = None
        for publisher in waiting or ():
            publisher.released()

    def forget(self, gone: Outbound) -> None:
        """The client is gone, and `gone` stands for it."""
        self._outbound = gone

    def _begin(self) -> list[FlowControl] | None:
        """From now on publishers wait for this client, in this list. None if no time is left for it.

        Where only its acknowledgements are missing it has its turn first, which does not count: they may have
        arrived, and not been read as its publishers were served before it.
        """
        now = self._frontend.clock()
        if self._outbound.writable:
            waiting: list[FlowControl] = []
            self._list = waiting
            self._frontend.timers.at(now + TURN, partial(self._in_turn, waiting))
            return waiting
        if self._time_left(now) < TURN:
            return None
        waiting = []
        self._list = waiting
        self._count(waiting, now)
        return waiting

    def _in_turn(self, waiting: list[FlowControl], now: float) -> None:
        self._frontend.timers.at(now + TURN, partial(self._count, waiting))

    def _count(self, waiting: list[FlowControl], now: float) -> None:
        """The wait counts from now on, unless the client has caught up."""
        if waiting is self._list:
            self._waited_since = now
            self._frontend.timers.at(now + self._time_left(now), partial(self._give_up, waiting))

    def _time_left(self, now: float) -> float:
        """Seconds that publishers may wait for the client now."""
        limits = self._frontend.limits
        if now >= self._spent_since + limits.publisher_wait_interval:
            self._spent, self._spent_since = 0.0, now
        return max(0.0, limits.publisher_wait - self._spent)

    def _give_up(self, waiting: list[FlowControl], now: float) -> None:
        if waiting is self._list:
            self.release()
