"""Two lanes between two brokers: priority topics have their own connection, which no other traffic fills.

Each lane keeps its order, and neither waits for the other. Therefore:

- All frames about one topic take one lane.
- A `Publish` uses link ids defined on its own lane; the link ids of the express lane begin above `FIRST`.
- Frames about no topic take the common lane.
- `Leave` and `LeaveAck` concern both lanes: they are sent on each open lane, and count when all lanes brought them.
"""

from __future__ import annotations

from collections.abc import Callable

from saps.overlay.frames.base import Frame
from saps.overlay.frames.delivery import DefineBroker, DefineSlice, HighWater, Nack, OfmAck, Publish, Skip
from saps.overlay.frames.ring import Leave, LeaveAck
from saps.overlay.ring.keys import BrokerRef

FIRST = 1 << 24
"""Boundary of the link ids: those of the express lane are greater, those of the common lane smaller."""

_OF_A_TOPIC = (Skip, Nack, HighWater, OfmAck)
_NUMBERING = (DefineBroker, DefineSlice)
_ENDS = (Leave, LeaveAck)


def by_express(frame: Frame, urgent: Callable[[str], bool]) -> bool:
    """Return whether a frame takes the express lane. `urgent` returns whether a topic has priority."""
    if isinstance(frame, Publish):  # all of its topics have the same priority
        return urgent(frame.parts[0].topic)
    if isinstance(frame, _OF_A_TOPIC):
        return urgent(frame.topic)
    return isinstance(frame, _NUMBERING) and frame.number > FIRST


def ends_a_link(frame: Frame) -> bool:
    """Return whether a frame ends the link (`Leave`, `LeaveAck`): the sender sends nothing after it on any lane."""
    return type(frame) in _ENDS


class Lane:
    """One incoming connection, as its receiver sees it."""

    __slots__ = ("peer", "said")

    def __init__(self) -> None:
        self.peer: BrokerRef | None = None
        """The broker at the other end; None until it has identified itself."""
        self.said: dict[type[Frame], Frame] = {}
        """Ending frames that this lane has brought and the peer's other lanes have not, by type."""


class Endings:
    """Holds back a peer's ending frame until each of its lanes has brought it: the frames still on the other lane were
    sent earlier. A lane whose peer is unknown counts as a lane of every peer."""

    def __init__(self) -> None:
        self._lanes: set[Lane] = set()

    def opened(self, lane: Lane) -> None:
        """Register a new connection."""
        self._lanes.add(lane)

    def closed(self, lane: Lane) -> list[tuple[BrokerRef, Frame]]:
        """Remove a closed connection. Returns the ending frames that need not wait any longer, with their senders."""
        self._lanes.discard(lane)
        return self.released()

    def passed(self, lane: Lane, frames: list[Frame]) -> list[Frame]:
        """Filter frames that a lane has brought. Returns those that may be handled now."""
        return [frame for frame in frames if not ends_a_link(frame) or self._complete(lane, frame)]

    def released(self) -> list[tuple[BrokerRef, Frame]]:
        """Return the ending frames that need not wait any longer, with their senders. Call this after a lane has
        identified its peer."""
        return [
            (lane.peer, frame)
            for lane in list(self._lanes)
            if lane.peer is not None
            for frame in list(lane.said.values())
            if self._complete(lane, frame)
        ]

    def _complete(self, lane: Lane, frame: Frame) -> bool:
        """Record an ending frame. Returns whether all lanes of the peer have brought it; if so, forgets it."""
        kind = type(frame)
        lane.said[kind] = frame
        lanes = [other for other in self._lanes if other.peer is None or other.peer == lane.peer]
        if any(kind not in other.said for other in lanes):
            return False
        for other in lanes:
            del other.said[kind]
        return True
