"""The state that all machines of one broker share: clock, outbox, table of handlers, and failure detection."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Gone
from saps.overlay.frames.ring import (
    Check,
    Inserted,
    Lapsed,
    LeaveAck,
    Level,
    Ping,
    Pong,
    Reached,
    Relay,
    RingSplit,
    Seek,
    SetLeft,
)
from saps.overlay.membership.failure_detector import Detector, DetectorSettings
from saps.overlay.membership.members import Members, Tell
from saps.overlay.port import Handlers
from saps.overlay.ring.keys import BrokerRef, KeyOrder
from saps.overlay.timers import Action, Timers

NOT_FOLLOWED = frozenset({Ping, Pong, Relay, Reached, Lapsed, Seek, Level, Gone, Check, RingSplit, SetLeft, LeaveAck})
"""Types of frames whose receivers need not be watched: a lost frame is repaired by a later check, or delays nothing for
long."""


class Driver(Protocol):
    """Drives a node: implemented by the event loop with its links, and by the simulator."""

    def wanted(self) -> None:
        """Schedule a call of `OverlayNode.take` soon, and of `OverlayNode.wake` at the `deadline` of the timers, which
        may be earlier than before."""

    def given_up(self, broker: BrokerRef) -> None:
        """Drop what waits to be sent to a broker that was declared dead."""


class NodePort:
    """The port of one broker's machines; implements `saps.overlay.delivery.forwarding.Outbox`.

    Frames to this broker itself are handled after those from others, and before anything is sent (`run_own`).
    """

    def __init__(
        self,
        me: BrokerRef,
        order: KeyOrder,
        clock: Callable[[], float],
        driver: Driver,
        settings: DetectorSettings,
        tell: Tell | None,
        detour: Callable[[BrokerRef], bool],
        dead: Callable[[BrokerRef], None],
    ) -> None:
        """`detour` and `dead` are called by the failure detector; `tell` with log lines about other brokers."""
        self.me = me
        self.order = order
        self.grace = 2 * settings.heartbeat
        self.wanted = driver.wanted
        self._clock = clock
        self.timers = Timers(clock, driver.wanted)
        self.outbox: list[tuple[BrokerRef, Frame]] = []
        self.own: deque[Frame] = deque()
        """Frames to this broker that have not been handled yet."""
        self._running = False
        self._addressed: dict[str, tuple[BrokerRef, float]] = {}
        """Brokers that frames were sent to since the last `watch`, with the time of the last one, by name."""
        self.members = Members(self, self.timers.wall, tell)
        self.detector = Detector(self, settings, detour, dead, self.members)
        self.reachable = self.detector.reachable
        self.first_heard = self.detector.first_heard
        self.handlers: Handlers = {}
        """The handler of each type of frame."""

    @property
    def now(self) -> float:
        return self._clock()

    def after(self, delay: float, action: Action) -> None:
        self.timers.after(delay, action)

    def send(self, to: BrokerRef, frame: Frame) -> None:
        """Queue a frame, and have its receiver watched. A frame to another incarnation of this broker is dropped."""
        if to.name == self.me.name:
            if to.incarnation == self.me.incarnation:
                self._send_to_itself(frame)
            return
        self.outbox.append((to, frame))
        if type(frame) not in NOT_FOLLOWED:
            self._addressed[to.name] = to, self._clock()
        if len(self.outbox) == 1:
            self.wanted()

    def _send_to_itself(self, frame: Frame) -> None:
        if type(frame) is Inserted:  # first, so that the next of many own keys finds this one in place
            self.own.appendleft(frame)
        else:
            self.own.append(frame)
        if len(self.own) == 1 and not self._running:
            self.wanted()

    def dispatch(self, sender: BrokerRef, frame: Frame) -> None:
        """Pass a frame to its handler. Frames that concern only the link have none and are ignored."""
        handler = self.handlers.get(type(frame))
        if handler is not None:
            handler(sender, frame)

    def run_own(self) -> None:
        """Handle the frames that this broker has sent to itself, including those sent meanwhile."""
        if self._running:
            return
        self._running = True
        try:
            while self.own:
                self.dispatch(self.me, self.own.popleft())
        finally:
            self._running = False

    def lost(self, broker: BrokerRef) -> bool:
        """Return whether the broker is declared dead, or the reference names another incarnation of this broker."""
        if broker.name == self.me.name:  # while this broker runs, no other incarnation of it is alive
            return broker.incarnation != self.me.incarnation
        return self.detector.lost(broker)

    def concerned(self, broker: BrokerRef) -> bool:
        """Return whether the broker has been heard, is watched, or has just been sent frames that matter here."""
        return broker.name in self._addressed or self.detector.knows(broker)

    def follow(self, broker: BrokerRef) -> None:
        """Watch a broker as if a frame had been sent to it."""
        self._addressed.setdefault(broker.name, (broker, self.now))

    def unfollow(self, broker: BrokerRef) -> None:
        """Stop watching a broker for frames that were sent to it, as they do not matter any more."""
        self._addressed.pop(broker.name, None)

    def watch(self, needed: dict[str, BrokerRef]) -> None:
        """Watch the `needed` brokers, whose failure would need repair, and those that frames were sent to. Call this
        once per heartbeat."""
        addressed, self._addressed = self._addressed, {}
        self.detector.tick(needed.values(), addressed.values())
