"""Decides whether a client is read. The client waits for slow subscribers, the mesh, its rate and its own answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saps.local.token_bucket import TokenBucket

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection
    from saps.frontend.mqtt.frontend import Frontend


class FlowControl:
    """Flow control of one client as a publisher."""

    __slots__ = (
        "_connection",
        "_frontend",
        "_holds",
        "_metered",
        "_postponed",
        "_rate",
        "_throttled",
        "awaiting",
        "busy",
        "reading",
    )

    def __init__(self, connection: Connection, frontend: Frontend) -> None:
        self._connection = connection
        self._frontend = frontend
        self._holds = 0
        """Number of slow subscribers that this publisher waits for."""
        self.busy = False
        """Whether a request of the client is still being handled. The client is not read, and its later input waits."""
        self._postponed = False
        """Whether the rest of the client's input waits."""
        rate = frontend.limits.message_rate
        self._rate = TokenBucket(rate, max(1.0, rate)) if rate else None
        self._metered = 0
        """Number of publications already charged to the rate."""
        self._throttled = False
        self.awaiting = 0
        """Number of publications with QoS 1 that the mesh has not confirmed yet."""
        self.reading = True

    def release(self, gone: Connection) -> None:
        """Refer to `gone` instead of the connection, which has ended."""
        self._connection = gone

    def wait_for_slow(self) -> bool:
        """Wait for the slow subscribers that the current input has met. Returns whether the publisher must wait."""
        blocked = self._frontend.congestion.blocked
        for subscriber in blocked:
            if subscriber is not self._connection.outbound:
                self._holds += subscriber.waiters.add(self)
        if self._holds:
            return True
        blocked.clear()
        return False

    def finished(self) -> None:
        """Go on with the input after the request that kept the client `busy`."""
        self.busy = False
        self._take_up_if_free()
        self.update()

    def postpone(self) -> None:
        """Postpone the rest of the input until the publisher no longer waits and is not `busy`."""
        self._postponed = True

    def released(self) -> None:
        """Count down the subscribers this publisher waits for, and go on without any."""
        self._holds -= 1
        self._take_up_if_free()
        self.update()

    def _take_up_if_free(self) -> None:
        if (
            self._postponed and not self._holds and not self.busy
        ):  # a timer, as this may run during another client's input
            self._frontend.timers.at(self._frontend.clock(), self._take_up)

    def _take_up(self, now: float) -> None:
        """Handle the postponed input."""
        if self._connection.closing or self._holds or self.busy or not self._postponed:
            return
        self._postponed = False
        self._connection.receive(b"")
        self.update()

    def begin_metering(self) -> None:
        """Begin to charge the client's publications; earlier ones of its session are free."""
        self._metered = self._published

    def _meter(self, rate: TokenBucket) -> None:
        """Charge new publications to the rate, and stop reading the client if they exceed it."""
        if self._throttled or self._connection.session is None:
            return
        published, now = self._published, self._frontend.clock()
        rate.spend(published - self._metered, now)
        self._metered = published
        wait = rate.wait(now)
        if wait:
            self._throttled = True
            self.update()
            self._frontend.timers.at(now + wait, self._end_throttle)

    def _end_throttle(self, now: float) -> None:
        self._throttled = False
        self.update()

    @property
    def _published(self) -> int:
        session = self._connection.session
        return 0 if session is None else session.publisher.published

    def after_input(self) -> None:
        """Decide after input whether the client is read on.

        The input may have met slow subscribers or a congested mesh, and the client may not read its answers.
        """
        frontend = self._frontend
        if (
            frontend.congestion.blocked
            or self._holds
            or self._postponed
            or frontend.congestion.paused
            or not self._connection.outbound.writable
        ):
            self.wait_for_slow()
            self.update()
        if self._rate is not None:
            self._meter(self._rate)

    def update(self) -> None:
        """Start or stop reading the client by the current state of everything it waits for."""
        connection = self._connection
        if connection.closing or connection.session is None:
            return
        reading = (
            not self._holds
            and not self.busy
            and not self._postponed
            and connection.outbound.writable
            and self.awaiting <= self._frontend.limits.receive_maximum
            and not self._throttled
            and not (self._frontend.congestion.paused and connection.publishes.holdable)
        )
        if reading != self.reading:
            self.reading = reading
            if reading:
                connection.keep_alive.heard = self._frontend.clock()
                connection.port.resume_reading()
            else:
                connection.port.pause_reading()
