"""Whether a client is read: not while it must wait for a slow subscriber, the mesh, its rate, or its own answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saps.frontend.mqtt.budget import Rate

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection import Connection
    from saps.frontend.mqtt.frontend import Frontend


class Intake:
    """What holds one client back as a publisher."""

    __slots__ = (
        "_connection",
        "_frontend",
        "_holds",
        "_metered",
        "_postponed",
        "_throttled",
        "awaiting",
        "rate",
        "reading",
    )

    def __init__(self, connection: Connection, frontend: Frontend) -> None:
        self._connection = connection
        self._frontend = frontend
        self._holds = 0
        """Slow subscribers this publisher waits for."""
        self._postponed = False
        """The rest of an input that met a slow subscriber waits with this publisher."""
        self.rate = Rate(frontend.limits.message_rate) if frontend.limits.message_rate else None
        self._metered = 0
        """Publications the rate has been charged for."""
        self._throttled = False
        self.awaiting = 0
        """Publications of QoS 1 the mesh has not confirmed yet."""
        self.reading = True

    def wait_for_slow(self) -> bool:
        """Wait for the slow subscribers that this input has met so far. True if there are any that are waited for."""
        blocked = self._frontend.blocked
        for subscriber in blocked:
            if subscriber is not self._connection.outbound:
                self._holds += subscriber.waiters.add(self)
        if self._holds:
            return True
        blocked.clear()
        return False

    def postpone(self) -> None:
        """The rest of the input waits until no slow subscriber is waited for."""
        self._postponed = True

    def released(self) -> None:
        """A subscriber this publisher waited for needs no waiting any more."""
        self._holds -= 1
        if self._postponed and not self._holds:  # it may be in the midst of another client's input
            self._frontend.timers.at(self._frontend.clock(), self._take_up)
        self.update()

    def _take_up(self, now: float) -> None:
        """Go on with the rest of the input that was postponed."""
        if self._connection.closing or self._holds or not self._postponed:
            return
        self._postponed = False
        self._connection.take_up(b"")
        self.update()

    def begin_metering(self) -> None:
        """The client has a session: what it has published so far costs nothing."""
        self._metered = self._published

    def meter(self, rate: Rate) -> None:
        """Charge the rate for what the client has published; stop reading it if that was too much."""
        if self._throttled or self._connection.closing or self._connection.session is None:
            return
        published, now = self._published, self._frontend.clock()
        rate.take(published - self._metered, now)
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
        """Input has been handled: it may have met a slow subscriber, a congested mesh, or a client that does not read
        its answers."""
        frontend = self._frontend
        if frontend.blocked or self._postponed or frontend.publishers_paused or not self._connection.outbound.writable:
            self.wait_for_slow()
            self.update()

    def update(self) -> None:
        """Read from the client, or stop for a while, as the state of the things it depends on asks for."""
        connection = self._connection
        if connection.closing or connection.session is None:
            return
        reading = (
            not self._holds
            and not self._postponed
            and connection.outbound.writable
            and self.awaiting <= self._frontend.limits.receive_maximum
            and not self._throttled
            and not (self._frontend.publishers_paused and connection.publishes_ordinary)
        )
        if reading != self.reading:
            self.reading = reading
            if reading:
                connection.heard()
                connection.port.resume_reading()
            else:
                connection.port.pause_reading()
