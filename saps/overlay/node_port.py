"""What all machines of one broker share: its clock, its outbox, its table of frames, and who is taken for dead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Gone
from saps.overlay.frames.ring import Check, Inserted, LeaveAck, Level, Ping, Pong, RingSplit, Seek, SetLeft
from saps.overlay.membership.failure_detector import Detector, DetectorSettings
from saps.overlay.membership.members import Members, Tell
from saps.overlay.port import Handlers
from saps.overlay.ring.keys import BrokerRef, KeyOrder
from saps.overlay.timers import Action, Timers

NOT_FOLLOWED = frozenset({Ping, Pong, Seek, Level, Gone, Check, RingSplit, SetLeft, LeaveAck})
"""Nobody is watched because such a frame was sent: if one is lost, what it was about is looked at again, or waits for
nobody for long."""


class Driver(Protocol):
    """What drives a node: links and event loop, or the simulator."""

    def wanted(self) -> None:
        """Call `OverlayNode.take` soon, and `OverlayNode.wake` at the `deadline` of the timers, which may have come
        nearer."""

    def given_up(self, broker: BrokerRef) -> None:
        """A broker is taken for dead: what waits to be sent to it is of no use."""


class NodePort:
    """The port of one broker's machines. (A `saps.overlay.delivery.forwarding.Outbox`.)

    Frames to this broker itself are handled after those of others, and before anything is sent: see `run_own`."""

    def __init__(
        self,
        me: BrokerRef,
        order: KeyOrder,
        clock: Callable[[], float],
        driver: Driver,
        settings: DetectorSettings,
        tell: Tell | None,
        dead: Callable[[BrokerRef], None],
    ) -> None:
        """`dead` is called once for each broker given up; `tell` gets lines about other brokers for the log."""
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
        """Brokers that something was sent to since the last look at who must be watched, and when it was."""
        self.members = Members(self, self.timers.wall, tell)
        self.detector = Detector(self, settings, dead, self.members)
        self.reachable = self.detector.reachable
        self.handlers: Handlers = {}
        """By kind of frame: the machine that takes it."""

    @property
    def now(self) -> float:
        return self._clock()

    def after(self, delay: float, action: Action) -> None:
        self.timers.after(delay, action)

    def send(self, to: BrokerRef, frame: Frame) -> None:
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
        if type(frame) is Inserted:  # before the next of many own keys looks for its place there
            self.own.appendleft(frame)
        else:
            self.own.append(frame)
        if len(self.own) == 1 and not self._running:
            self.wanted()

    def dispatch(self, sender: BrokerRef, frame: Frame) -> None:
        """Have a frame handled by the machine that it is for. What only a link has to do with is for none."""
        handler = self.handlers.get(type(frame))
        if handler is not None:
            handler(sender, frame)

    def run_own(self) -> None:
        """Handle the frames that this broker has sent to itself."""
        if self._running:
            return
        self._running = True
        try:
            while self.own:
                self.dispatch(self.me, self.own.popleft())
        finally:
            self._running = False

    def lost(self, broker: BrokerRef) -> bool:
        if broker.name == self.me.name:  # of this broker there is no other life while it is here
            return broker.incarnation != self.me.incarnation
        return self.detector.lost(broker)

    def follow(self, broker: BrokerRef) -> None:
        """Look after a broker as if something had been sent to it."""
        self._addressed.setdefault(broker.name, (broker, self.now))

    def unfollow(self, broker: BrokerRef) -> None:
        """Nothing that was sent to it matters any more."""
        self._addressed.pop(broker.name, None)

    def watch(self, needed: dict[str, BrokerRef]) -> None:
        """Once a heartbeat: watch those whose failure would have to be mended, and those that something was sent to."""
        addressed, self._addressed = self._addressed, {}
        self.detector.tick(needed.values(), addressed.values())
