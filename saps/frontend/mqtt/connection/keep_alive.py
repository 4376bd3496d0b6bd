"""Limits how long a client may stay.

The client must send CONNECT in time, and then packets within its keep-alive interval (MQTT 5.0, 3.1.2.10). It may stay
until its login ends.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.timers import Timer

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection


class KeepAlive:
    """Closes one connection when its client is silent for too long, or its login ends."""

    __slots__ = ("_connection", "_end", "_timer", "heard", "interval")

    def __init__(self, connection: Connection) -> None:
        frontend = connection.frontend
        self._connection = connection
        self.heard = frontend.clock()
        """Time of the client's last input, or when reading resumed, in seconds on the frontend's clock."""
        self.interval = 0.0
        """Seconds without a packet after which the client is lost; 0: never."""
        self._timer = frontend.timers.at(self.heard + frontend.limits.connect_timeout, self._check)
        self._end: Timer | None = None

    def begin(self) -> None:
        """Begin to watch the interval and the end of the login, once the client has its session."""
        self.stop()
        timers = self._connection.frontend.timers
        if self.interval:
            self._timer = timers.at(self.heard + self.interval, self._check)
        left: float = self._connection.authorizer.left
        if left < inf:
            self._end = timers.at(self._connection.frontend.clock() + left, self._over)

    def stop(self) -> None:
        """Stop the timers. Call this when the connection ends."""
        timers = self._connection.frontend.timers
        timers.cancel(self._timer)
        timers.cancel(self._end)

    def release(self, gone: Connection) -> None:
        """Refer to `gone` instead of the connection, which has ended."""
        self._connection = gone

    def _over(self, now: float) -> None:
        self._connection.close(Reason.NOT_AUTHORIZED, "its login has ended")

    def _check(self, now: float) -> None:
        connection = self._connection
        if connection.closing:
            return
        if connection.opening is not None:
            if not connection.opening.accepted:
                connection.close(Reason.MAXIMUM_CONNECT_TIME, "no CONNECT in time")
            return
        due = (self.heard if connection.flow.reading else now) + self.interval
        if due <= now:
            connection.close(Reason.KEEP_ALIVE_TIMEOUT, "keep-alive timeout")
        else:
            self._timer = connection.frontend.timers.at(due, self._check)
