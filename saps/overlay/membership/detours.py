"""Detours: a broker that cannot be reached directly is reached through a third one that reaches both.

A failed link between two brokers need not be a failed broker (after the indirect probes of SWIM: Das, Gupta & Motivala
2002, and the one intermediate hop of Andersen, Balakrishnan, Kaashoek & Morris, Resilient Overlay Networks, 2001).

1. A broker that is silent, or whose link broke, is **sought**: a few others are asked to hand it an empty `Relay`. It
   answers (`Reached`) the same way.
2. When it would be declared dead, frames to it are handed to the first of those through which an answer came, its
   **relay**, from then on. So are those to a broker that is dead already, or whose own frames take a detour.
3. In each heartbeat the direct way is tried. When that is answered, frames go directly again.

A detour is like a link session: its frames keep their order, and the way changes only with the loss of what is under
way. The number of its **path** is greater than those of all earlier ones of the sender. The receiver takes a new path,
or a direct link session, for the end of the one before, and reports frames that come later (`Lapsed`). So does a relay
that cannot hand frames on. Each direction between two brokers has its own detour.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple, Protocol

from saps.marks import hit
from saps.overlay.frames.base import Frame, ProtocolError
from saps.overlay.frames.framing import WireError, packed, unpacked
from saps.overlay.frames.ring import Lapsed, Reached, Relay
from saps.overlay.node_port import Driver, NodePort
from saps.overlay.port import Handlers
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.validation.senders import check_sender

logger = logging.getLogger(__name__)

ASKED = 3
"""Most brokers asked in a search. More find a way through more cuts, and cost two frames each."""
AGAIN = 0.25
"""Least seconds between two searches for one broker."""
STALE = 2.0
"""Seconds after which an answer to a search does not count: the broker has answered late, and may be reached."""
KEPT = 60.0
"""Seconds for which a path that is not used is remembered by its relay."""
MOST = 1 << 16
"""Most senders whose paths are remembered."""


class _Search(NamedTuple):
    """The last search for a broker."""

    path: int
    at: float


class Detour(NamedTuple):
    """The way to a broker that is not reached directly."""

    to: BrokerRef
    relay: BrokerRef
    path: int
    found: float


class _Path(NamedTuple):
    """The last path on which a sender's frames came."""

    number: int
    open: bool
    """Whether nothing has come since then in another way."""


class Paths(Protocol):
    """What handles changes of the way to and from other brokers (`saps.overlay.membership.peers`)."""

    def path_started(self, sender: BrokerRef) -> None: ...

    def path_changed(self, peer: BrokerRef) -> None: ...

    def link_down(self, peer: BrokerRef) -> None: ...


class Detours:
    """The detours of one broker: as their sender, their receiver and their relay."""

    def __init__(
        self,
        port: NodePort,
        driver: Driver,
        paths: Paths,
        receive: Callable[[BrokerRef, Iterable[Frame]], None],
        others: Callable[[], Iterable[BrokerRef]],
    ) -> None:
        """`receive` is `saps.overlay.node.OverlayNode.receive`. `others` yields the brokers that may hand frames on,
        those that are linked to this one first."""
        self._port = port
        self._driver = driver
        self._paths = paths
        self._receive = receive
        self._others = others
        self._numbers = 0
        """Number of paths so far."""
        self.ways: dict[BrokerRef, Detour] = {}
        """By the broker that is reached: the detours in use."""
        self._sought: dict[BrokerRef, _Search] = {}
        self._found: dict[BrokerRef, Detour] = {}
        """Detours that are not in use, as the brokers may yet be heard."""
        self._tried: dict[BrokerRef, int] = {}
        """By broker that has a detour: the path number of the last attempt to reach it directly."""
        self._came: dict[BrokerRef, _Path] = {}
        """By sender."""
        self._handed: dict[tuple[BrokerRef, BrokerRef], tuple[int, float]] = {}
        """By sender and receiver of frames that were handed on: the path, and the time of the last one."""

    @property
    def handlers(self) -> Handlers:
        return {Relay: self._on_relay, Reached: self._on_reached, Lapsed: self._on_lapsed}

    def relays(self) -> dict[str, BrokerRef]:
        """Return the relays in use by name, whose failure must be noticed."""
        return {detour.relay.name: detour.relay for detour in self.ways.values()}

    # --- the sender ---------------------------------------------------------------------------------------

    def way(self, to: BrokerRef, frame: Frame) -> tuple[BrokerRef, Frame]:
        """Return the broker to which a frame is to be sent, and the frame, wrapped if it takes a detour."""
        detour = self.ways.get(to)
        if detour is None or isinstance(frame, Relay | Reached | Lapsed):
            return to, frame
        return detour.relay, Relay(to, self._port.me, detour.path, [packed(frame)])

    def seek(self, broker: BrokerRef) -> None:
        """Look for a way to a broker that is not reached directly, unless that is being done."""
        now, search = self._port.now, self._sought.get(broker)
        if broker in self.ways or (search is not None and now - search.at < AGAIN):
            return
        self._numbers += 1
        self._sought[broker] = _Search(self._numbers, now)
        for other in self._candidates(broker):
            self._port.send(other, Relay(broker, self._port.me, self._numbers, []))

    def _candidates(self, broker: BrokerRef) -> list[BrokerRef]:
        """Return some brokers that are reached directly, others for each search."""
        found = [
            other
            for other in dict.fromkeys(self._others())
            if other != broker and other not in self.ways and self._port.reachable(other)
        ]
        first = self._numbers % len(found) if len(found) > ASKED else 0
        return list(islice([*found[first:], *found[:first]], ASKED))

    def watch(self, silent: Iterable[BrokerRef]) -> None:
        """Seek the brokers that are `silent`, and try the direct way to those that have a detour; once a heartbeat."""
        now = self._port.now
        self._found = {to: detour for to, detour in self._found.items() if now - detour.found < STALE}
        for broker in silent:
            self.seek(broker)
        for to in self.ways:
            self._try(to)
        self._tried = {to: number for to, number in self._tried.items() if to in self.ways}
        self._sought = {to: search for to, search in self._sought.items() if now - search.at < STALE}
        self._handed = {ends: last for ends, last in self._handed.items() if now - last[1] < KEPT}

    def _on_reached(self, sender: BrokerRef, frame: Reached) -> None:
        """Take the way that an answer has come, or hand the answer on to the broker that searches."""
        to = frame.origin
        if frame.to != self._port.me:
            self._hand_on(sender, frame)
            return
        if sender == to:
            if to in self.ways and frame.path == self._tried.get(to):
                hit("reached directly again")
                self._end(to)
                self._port.members.heard(to)
                self._paths.path_changed(to)
            return
        search = self._sought.get(to)
        if search is None or search.path != frame.path or to in self.ways or self._port.now - search.at >= STALE:
            return
        del self._sought[to]
        self._found[to] = Detour(to, sender, frame.path, self._port.now)
        if self._port.lost(to) or self._comes_by_detour(to):
            self.take(to)

    def take(self, to: BrokerRef) -> bool:
        """Reach a broker through the relay that was found in the last search. Return False if there was none."""
        detour = self._found.pop(to, None)
        if detour is None or self._port.now - detour.found >= STALE or not self._port.reachable(detour.relay):
            return False
        hit("reached through another broker")
        logger.debug("%s is reached through %s", to.name, detour.relay.name)
        self._driver.given_up(to)
        self.ways[to] = detour
        self._receive(to, [])
        self._port.members.detoured(to)
        self._paths.path_changed(to)
        return True

    def _end(self, to: BrokerRef) -> bool:
        """End the detour to a broker; return whether there was one. What is sent directly from now on begins a new link
        session, from which the broker learns that what was under way is lost."""
        if self.ways.pop(to, None) is None:
            return False
        self._driver.given_up(to)
        self._try(to)
        return True

    def _try(self, to: BrokerRef) -> None:
        """Try to reach a broker directly. It takes this for the end of all earlier paths."""
        self._numbers += 1
        self._tried[to] = self._numbers
        self._port.send(to, Relay(to, self._port.me, self._numbers, []))

    def _on_lapsed(self, sender: BrokerRef, frame: Lapsed) -> None:
        """Handle the notice that frames on a path do not arrive."""
        detour = self.ways.get(frame.origin)
        if frame.to != self._port.me:
            self._hand_on(sender, frame)
        elif detour is not None and detour.path == frame.path:
            self._lapse(detour)

    def _lapse(self, detour: Detour) -> None:
        if self._end(detour.to):
            hit("detour lapsed")
            self._paths.link_down(detour.to)

    # --- the receiver -------------------------------------------------------------------------------------

    def session_started(self, sender: BrokerRef) -> None:
        """Handle a direct link session from a broker: a path from it has ended."""
        if self._comes_by_detour(sender):
            self._came[sender] = self._came[sender]._replace(open=False)

    def _comes_by_detour(self, sender: BrokerRef) -> bool:
        return (path := self._came.get(sender)) is not None and path.open

    def _on_relay(self, sender: BrokerRef, frame: Relay) -> None:
        """Hand frames on to their receiver, or take them."""
        if frame.to != self._port.me:
            if self._hand_on(sender, frame):
                self._handed[frame.origin, frame.to] = frame.path, self._port.now
            else:
                self._port.send(sender, Lapsed(sender, frame.to, frame.path))
        elif self._port.lost(frame.origin) and self._port.detector.stale_incarnation(frame.origin):
            return
        elif frame.frames:
            self._take(sender, frame)
        else:
            self._port.send(sender, Reached(frame.origin, self._port.me, frame.path))
            if sender == frame.origin:
                self._note(sender, frame.path, False)
            elif not self._port.reachable(frame.origin):
                self.seek(frame.origin)

    def _take(self, sender: BrokerRef, frame: Relay) -> None:
        origin, path = frame.origin, self._came.get(frame.origin, _Path(0, False))
        if frame.path < path.number or (frame.path == path.number and not path.open):
            self._port.send(sender, Lapsed(origin, self._port.me, frame.path))
            return
        if frame.path > path.number:
            self._note(origin, frame.path, True)
            self._paths.path_started(origin)
            if origin not in self.ways and not self.take(origin):  # as a rule the direct way back is cut as well
                self.seek(origin)
        try:
            frames = [unpacked(raw) for raw in frame.frames]
            check_sender(origin, frames, self._port.order)
            self._receive(origin, frames)
        except (WireError, ProtocolError) as error:
            logger.warning("path from %s through %s closed: %s", origin.name, sender.name, error)
            self._note(origin, frame.path, False)

    def _note(self, sender: BrokerRef, number: int, is_open: bool) -> None:
        """Remember the last path of a sender."""
        before = self._came.pop(sender, None)
        self._came[sender] = _Path(max(number, 0 if before is None else before.number), is_open)
        if len(self._came) > MOST:
            del self._came[next(iter(self._came))]

    # --- the relay ----------------------------------------------------------------------------------------

    def _hand_on(self, sender: BrokerRef, frame: Relay | Reached | Lapsed) -> bool:
        """Hand a frame on from its origin to its receiver. Return False if that is not reached directly."""
        if sender != frame.origin or frame.to in self.ways or not self._port.reachable(frame.to):
            return False
        self._port.send(frame.to, frame)
        return True

    # --- what happens to brokers ----------------------------------------------------------------------------

    def link_down(self, peer: BrokerRef) -> bool:
        """Handle a broken link: detours over it lapse, and senders of frames over it are told. Return whether that is
        all: frames to the broker take a detour, or it matters only to those senders."""
        if peer in self.ways:
            return True
        for detour in [each for each in self.ways.values() if each.relay == peer]:
            self._lapse(detour)
        handed = [ends for ends in self._handed if ends[1] == peer]
        for origin, to in handed:
            path, _ = self._handed.pop((origin, to))
            self._port.send(origin, Lapsed(origin, to, path))
        return bool(handed) and not self._port.concerned(peer)

    def forget(self, broker: BrokerRef) -> None:
        """Forget a broker that is dead or has left."""
        for found in (self.ways, self._sought, self._found):
            found.pop(broker, None)
        self.link_down(broker)
