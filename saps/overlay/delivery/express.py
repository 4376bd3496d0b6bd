"""Two lanes from one broker to another: priority topics have a connection of their own, which nothing else fills up.

Each lane keeps its order, none waits for the other. So everything about one topic goes by one lane, and the numbers
that `Publish` uses are given by the lane it goes by: those of the express lane begin at `FIRST`. What concerns no topic
goes by the common lane. Only the end of a broker concerns both: `Leave` and `LeaveAck` go by each lane that is open,
and count when they have come by all.
"""

from __future__ import annotations

from collections.abc import Callable

from saps.overlay.frames.base import Frame
from saps.overlay.frames.delivery import DefineBroker, DefineSlice, HighWater, Nack, OfmAck, Publish, Skip
from saps.overlay.frames.ring import Leave, LeaveAck
from saps.overlay.ring.keys import BrokerRef

FIRST = 1 << 24
"""Numbers of brokers and slices given on the express lane are greater than this, all others smaller."""

_OF_A_TOPIC = (Skip, Nack, HighWater, OfmAck)
_NUMBERING = (DefineBroker, DefineSlice)
_ENDS = (Leave, LeaveAck)


def by_express(frame: Frame, urgent: Callable[[str], bool]) -> bool:
    """Does a frame go by the express lane? `urgent` says whether a topic has priority."""
    if isinstance(frame, Publish):  # all of its topics have the same priority
        return urgent(frame.parts[0].topic)
    if isinstance(frame, _OF_A_TOPIC):
        return urgent(frame.topic)
    return isinstance(frame, _NUMBERING) and frame.number > FIRST


def ends_a_link(frame: Frame) -> bool:
    """Is this the last that the sender has to say, by whatever lane?"""
    return type(frame) in _ENDS


class Lane:
    """The receiver's view of one connection to it."""

    __slots__ = ("peer", "said")

    def __init__(self) -> None:
        self.peer: BrokerRef | None = None
        """Who is at the other end; None until it has said so."""
        self.said: dict[type[Frame], Frame] = {}
        """Ends that have come by this lane, and not yet by the peer's others."""


class Endings:
    """Holds back the end of a peer until it has come by each of its lanes: what the other lane still brings was sent
    before. A lane that has not said whose it is could be anyone's."""

    def __init__(self) -> None:
        self._lanes: set[Lane] = set()

    def opened(self, lane: Lane) -> None:
        """Somebody has connected."""
        self._lanes.add(lane)

    def closed(self, lane: Lane) -> list[tuple[BrokerRef, Frame]]:
        """The connection is gone. Returns the ends that need not wait any longer."""
        self._lanes.discard(lane)
        return self.released()

    def passed(self, lane: Lane, frames: list[Frame]) -> list[Frame]:
        """Frames have come by a lane. Returns those that may be handed on."""
        return [frame for frame in frames if not ends_a_link(frame) or self._complete(lane, frame)]

    def released(self) -> list[tuple[BrokerRef, Frame]]:
        """The ends that need not wait any longer, after a lane has said whose it is."""
        return [
            (lane.peer, frame)
            for lane in list(self._lanes)
            if lane.peer is not None
            for frame in list(lane.said.values())
            if self._complete(lane, frame)
        ]

    def _complete(self, lane: Lane, frame: Frame) -> bool:
        """It has come by all of the peer's lanes; then it is forgotten."""
        kind = type(frame)
        lane.said[kind] = frame
        lanes = [other for other in self._lanes if other.peer is None or other.peer == lane.peer]
        if any(kind not in other.said for other in lanes):
            return False
        for other in lanes:
            del other.said[kind]
        return True
