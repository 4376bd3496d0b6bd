"""Whether a client is there: CONNECT in time, then packets within its keep-alive interval (MQTT 5.0, 3.1.2.10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saps.frontend.mqtt.codec.reasons import Reason

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection


class KeepAlive:
    """Closes one connection when its client has been silent for too long."""

    __slots__ = ("_connection", "_timer", "heard", "interval")

    def __init__(self, connection: Connection) -> None:
        frontend = connection.frontend
        self._connection = connection
        self.heard = frontend.clock()
        """When the client was last heard, or could not be heard."""
        self.interval = 0.0
        """Seconds without a packet after which the client counts as lost; 0: never."""
        self._timer = frontend.timers.at(self.heard + frontend.limits.connect_timeout, self._check)

    def begin(self) -> None:
        """The client has its session: from now on the interval counts."""
        self.stop()
        if self.interval:
            self._timer = self._connection.frontend.timers.at(self.heard + self.interval, self._check)

    def stop(self) -> None:
        """The connection ends."""
        self._connection.frontend.timers.cancel(self._timer)

    def release(self, gone: Connection) -> None:
        """Its connection is over, and `gone` stands for it."""
        self._connection = gone

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
