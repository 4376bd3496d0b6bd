"""Whether a client is read: not while it must wait for a slow subscriber, the mesh, its rate, or its own answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saps.local.token_bucket import TokenBucket

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection
    from saps.frontend.mqtt.frontend import Frontend


class FlowControl:
    """What holds one client back as a publisher."""

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
        """Slow subscribers this publisher waits for."""
        self.busy = False
        """A request of the client is worked on in slices: what it sent behind it waits, and it is not read."""
        self._postponed = False
        """The rest of an input that met a slow subscriber waits with this publisher."""
        rate = frontend.limits.message_rate
        self._rate = TokenBucket(rate, max(1.0, rate)) if rate else None
        self._metered = 0
        """Publications the rate has been charged for."""
        self._throttled = False
        self.awaiting = 0
        """Publications of QoS 1 the mesh has not confirmed yet."""
        self.reading = True

    def release(self, gone: Connection) -> None:
        """Its connection is over, and `gone` stands for it."""
        self._connection = gone

    def wait_for_slow(self) -> bool:
        """Wait for the slow subscribers that this input has met so far. True if there are any that are waited for."""
        blocked = self._frontend.congestion.blocked
        for subscriber in blocked:
            if subscriber is not self._connection.outbound:
                self._holds += subscriber.waiters.add(self)
        if self._holds:
            return True
        blocked.clear()
        return False

    def finished(self) -> None:
        """The request that kept it `busy` does no more."""
        self.busy = False
        self._take_up_if_free()
        self.update()

    def postpone(self) -> None:
        """The rest of the input waits until no slow subscriber is waited for."""
        self._postponed = True

    def released(self) -> None:
        """A subscriber this publisher waited for needs no waiting any more."""
        self._holds -= 1
        self._take_up_if_free()
        self.update()

    def _take_up_if_free(self) -> None:
        if self._postponed and not self._holds and not self.busy:  # it may be in the midst of another's input
            self._frontend.timers.at(self._frontend.clock(), self._take_up)

    def _take_up(self, now: float) -> None:
        """Go on with the rest of the input that was postponed."""
        if self._connection.closing or self._holds or self.busy or not self._postponed:
            return
        self._postponed = False
        self._connection.receive(b"")
        self.update()

    def begin_metering(self) -> None:
        """The client has a session: what it has published so far costs nothing."""
        self._metered = self._published

    def _meter(self, rate: TokenBucket) -> None:
        """Charge the rate for what the client has published; stop reading it if that was too much."""
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
        """Input has been handled: it may have met a slow subscriber, a congested mesh, or a client that does not read
        its answers."""
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
        """Read from the client, or stop for a while, as the state of the things it depends on asks for."""
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
