"""Limits how long a client may stay.

The client must send CONNECT in time, and then packets within its keep-alive interval (MQTT 5.0, 3.1.2.10). A client
that is not read, as its output is full, must take some of the output instead. The client may stay until its login ends.
"""

from __future__ import annotations

from math import inf

from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.common import Common
from saps.frontend.mqtt.connection.flow_control import FlowControl
from saps.frontend.mqtt.timers import Timer


class KeepAlive:
    """Closes one connection when its client is silent for too long, or its login ends."""

    __slots__ = ("_common", "_end", "_flow", "_taken", "_timer", "interval")

    def __init__(self, common: Common, flow: FlowControl) -> None:
        self._common = common
        self._flow = flow
        self.interval = 0.0
        """Seconds without a packet after which the client is lost; 0: never."""
        self._timer: Timer | None = common.timers.at(flow.heard + common.limits.connect_timeout, self._late)
        self._end: Timer | None = None
        self._taken: int | None = None
        """What the client had taken at the last check (`Port.taken`), if its output was full then."""

    def begin(self, left: float) -> None:
        """Begin to watch the interval and the end of the login, `left` seconds from now."""
        self.stop()
        timers = self._common.timers
        if self.interval:
            self._timer = timers.at(self._flow.heard + self.interval, self._check)
        if left < inf:
            self._end = timers.at(self._common.clock() + left, self._over)

    def stop(self) -> None:
        """Stop the timers. Call this when a CONNECT is accepted, and when the connection ends."""
        timers = self._common.timers
        timers.cancel(self._timer)
        timers.cancel(self._end)

    def _close(self, reason: Reason, text: str) -> None:
        self._flow.output.owner.close(reason, text)

    def _late(self, now: float) -> None:
        self._close(Reason.MAXIMUM_CONNECT_TIME, "no CONNECT in time")

    def _over(self, now: float) -> None:
        self._close(Reason.NOT_AUTHORIZED, "its login has ended")

    def _check(self, now: float) -> None:
        flow = self._flow
        taken = flow.output.port.taken() if flow.full else None
        waits = flow.reading or (taken is not None and taken == self._taken)
        self._taken = taken
        due = (flow.heard if waits else now) + self.interval
        if due <= now:
            self._close(Reason.KEEP_ALIVE_TIMEOUT, "keep-alive timeout")
        else:
            self._timer = self._common.timers.at(due, self._check)
