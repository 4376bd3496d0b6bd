"""Decides whether a client is read. The client waits for slow subscribers, the mesh, its rate and its own answers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from saps.agents.user import PublisherAgent
from saps.frontend.mqtt.common import Common
from saps.routing.token_bucket import TokenBucket

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.outbound import Outbound

TURN = 0.001
"""Delay of a timer in seconds. After two such timers in a row all input that had arrived from a client is read."""


class Waiters:
    """The publishers that wait for one client. `Limits.publisher_wait` limits the total wait."""

    __slots__ = ("_common", "_list", "_outbound", "_spent", "_spent_since", "_waited_since")

    def __init__(self, outbound: Outbound, common: Common) -> None:
        self._outbound = outbound
        self._common = common
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
            self._spent += self._common.clock() - self._waited_since
            self._waited_since = None
        for publisher in waiting or ():
            publisher.released()

    def _begin(self) -> list[FlowControl] | None:
        """Begin a wait, and return its list of publishers, or None if no time is left.

        If only acknowledgements are missing, the time until the broker has read the client's input does not count. The
        acknowledgements may have arrived already, as the broker has read the publishers before the client.
        """
        now = self._common.clock()
        if self._outbound.writable:
            waiting: list[FlowControl] = []
            self._list = waiting
            self._common.timers.at(now + TURN, partial(self._in_turn, waiting))
            return waiting
        if self._time_left(now) < TURN:
            return None
        waiting = []
        self._list = waiting
        self._count(waiting, now)
        return waiting

    def _in_turn(self, waiting: list[FlowControl], now: float) -> None:
        self._common.timers.at(now + TURN, partial(self._count, waiting))

    def _count(self, waiting: list[FlowControl], now: float) -> None:
        """Begin to count the wait, unless the client has caught up."""
        if waiting is self._list:
            self._waited_since = now
            self._common.timers.at(now + self._time_left(now), partial(self._give_up, waiting))

    def _time_left(self, now: float) -> float:
        """Return the seconds that publishers may still wait for the client."""
        limits = self._common.limits
        if now >= self._spent_since + limits.publisher_wait_interval:
            self._spent, self._spent_since = 0.0, now
        return max(0.0, limits.publisher_wait - self._spent)

    def _give_up(self, waiting: list[FlowControl], now: float) -> None:
        if waiting is self._list:
            self.release()


class FlowControl:
    """Flow control of one client as a publisher."""

    __slots__ = (
        "_common",
        "_holds",
        "_metered",
        "_outbound",
        "_postponed",
        "_rate",
        "_throttled",
        "awaiting",
        "busy",
        "heard",
        "ordinary",
        "output",
        "publisher",
        "reading",
    )

    def __init__(self, common: Common, outbound: Outbound) -> None:
        self._common = common
        self._outbound = outbound
        self.output = outbound.output
        self.publisher: PublisherAgent | None = None
        """The client's publisher agent; None before the client has entered its session."""
        self.heard = common.clock()
        """Time of the client's last input, or when reading resumed, in seconds on the frontend's clock."""
        self.ordinary = False
        """Whether the client has published to topics without priority, where the hub has priorities."""
        self._holds = 0
        """Number of slow subscribers that this publisher waits for."""
        self.busy = False
        """Whether a request of the client is still being handled. The client is not read, and its later input waits."""
        self._postponed = False
        """Whether the rest of the client's input waits."""
        rate = common.limits.message_rate
        self._rate = TokenBucket(rate, max(1.0, rate)) if rate else None
        self._metered = 0
        """Number of publications already charged to the rate."""
        self._throttled = False
        self.awaiting = 0
        """Number of publications with QoS 1 that the mesh has not confirmed yet."""
        self.reading = True

    def wait_for_slow(self) -> bool:
        """Wait for the slow subscribers that the current input has met. Returns whether the publisher must wait."""
        blocked = self._common.congestion.blocked
        for subscriber in blocked:
            if subscriber is not self._outbound:
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
            self._common.timers.at(self._common.clock(), self._take_up)

    def _take_up(self, now: float) -> None:
        """Handle the postponed input."""
        if self.output.closing or self._holds or self.busy or not self._postponed:
            return
        self._postponed = False
        self.output.owner.receive(b"")
        self.update()

    def begin(self, publisher: PublisherAgent) -> None:
        """Begin to meter the client's publications; earlier ones of its session are free."""
        self.publisher = publisher
        self._metered = publisher.published

    def _meter(self, rate: TokenBucket) -> None:
        """Charge new publications to the rate, and stop reading the client if they exceed it."""
        if self._throttled or self.publisher is None:
            return
        published, now = self.publisher.published, self._common.clock()
        rate.spend(published - self._metered, now)
        self._metered = published
        wait = rate.wait(now)
        if wait:
            self._throttled = True
            self.update()
            self._common.timers.at(now + wait, self._end_throttle)

    def _end_throttle(self, now: float) -> None:
        self._throttled = False
        self.update()

    def _holdable(self, publisher: PublisherAgent) -> bool:
        """Return whether congested links stop reading the client: it publishes, and not only to priority topics."""
        return publisher.published > 0 and (self.ordinary or publisher.hub.priorities is None)

    @property
    def full(self) -> bool:
        """Whether the client is not read, and its output is full."""
        return not self.reading and not self._outbound.writable

    def after_input(self) -> None:
        """Decide after input whether the client is read on.

        The input may have met slow subscribers or a congested mesh, and the client may not read its answers.
        """
        congestion = self._common.congestion
        if congestion.blocked or self._holds or self._postponed or congestion.paused or not self._outbound.writable:
            self.wait_for_slow()
            self.update()
        if self._rate is not None:
            self._meter(self._rate)

    def update(self) -> None:
        """Start or stop reading the client by the current state of everything it waits for."""
        output, publisher = self.output, self.publisher
        if output.closing or publisher is None:
            return
        reading = (
            not self._holds
            and not self.busy
            and not self._postponed
            and self._outbound.writable
            and self.awaiting <= self._common.limits.receive_maximum
            and not self._throttled
            and not (self._common.congestion.paused and self._holdable(publisher))
        )
        if reading != self.reading:
            self.reading = reading
            if reading:
                self.heard = self._common.clock()
                output.port.resume_reading()
            else:
                output.port.pause_reading()
