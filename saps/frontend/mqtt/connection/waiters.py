"""Makes publishers wait for a slow subscriber, and limits the wait."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.flow_control import FlowControl
    from saps.frontend.mqtt.connection.outbound import Outbound
    from saps.frontend.mqtt.frontend import Frontend

TURN = 0.001
"""Delay of a timer in seconds. After two such timers in a row all input that had arrived from a client is read."""


class Waiters:
    """The publishers that wait for one client. `Limits.publisher_wait` limits the total wait."""

    __slots__ = ("_frontend", "_list", "_outbound", "_spent", "_spent_since", "_waited_since")

    def __init__(self, outbound: Outbound, frontend: Frontend) -> None:
        self._outbound = outbound
        self._frontend = frontend
        self._list: list[FlowControl] | None = None
        self._spent = 0.0
        """Seconds of `Limits.publisher_wait` used since `_spent_since`."""
        self._spent_since = 0.0
        self._waited_since: float | None = None
        """Start of the current wait on the frontend's clock; None while no wait counts."""

    def add(self, publisher: FlowControl) -> bool:
        """Make the publisher wait until the client catches up.

        Returns False if it already waits, the client is not behind, or no time is left for waiting.
        """
        if not self._outbound.behind:
            return False
        waiting = self._begin() if self._list is None else self._list
        if waiting is None or publisher in waiting:
            return False
        waiting.append(publisher)
        return True

    def caught_up(self) -> None:
        """Release the publishers if the client has caught up."""
        if self._list is not None and not self._outbound.behind:
            self.release()

    def release(self) -> None:
        """Let the waiting publishers go on."""
        waiting, self._list = self._list, None
        if self._waited_since is not None:
            self._spent += self._frontend.clock() - self._waited_since
            self._waited_since = None
        for publisher in waiting or ():
            publisher.released()

    def forget(self, gone: Outbound) -> None:
        """Refer to `gone` instead of the client's outbound half, as the client has gone."""
        self._outbound = gone

    def _begin(self) -> list[FlowControl] | None:
        """Begin a wait, and return its list of publishers, or None if no time is left.

        If only acknowledgements are missing, the time until the broker has read the client's input does not count. The
        acknowledgements may have arrived already, as the broker has read the publishers before the client.
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
        """Begin to count the wait, unless the client has caught up."""
        if waiting is self._list:
            self._waited_since = now
            self._frontend.timers.at(now + self._time_left(now), partial(self._give_up, waiting))

    def _time_left(self, now: float) -> float:
        """Return the seconds that publishers may still wait for the client."""
        limits = self._frontend.limits
        if now >= self._spent_since + limits.publisher_wait_interval:
            self._spent, self._spent_since = 0.0, now
        return max(0.0, limits.publisher_wait - self._spent)

    def _give_up(self, waiting: list[FlowControl], now: float) -> None:
        if waiting is self._list:
            self.release()
