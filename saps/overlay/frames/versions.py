"""Determines the protocol version that a frame needs, so that older brokers are never sent frames they cannot read.

An unknown frame would break the link, as any malformed frame does. If a question cannot be sent to an older broker, the
sender's own link answers in its place: with an incomplete answer, marked as `outdated` (asking again is of no use).
"""

from __future__ import annotations

from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Broadcast, Gathered, Locate
from saps.overlay.frames.ring import Lapsed, Reached, Relay

SINCE: dict[type, int] = {Relay: 4, Reached: 4, Lapsed: 4}
"""The first version that has a type of frame, of body or of result. Types of the lowest version are left out."""


def version_of(frame: Frame, lowest: int) -> int:
    """Return the lowest version that has the frame, with its body or results. `lowest` is the lowest version spoken."""
    if not SINCE:
        return lowest
    needed = SINCE.get(type(frame), lowest)
    if isinstance(frame, Locate | Broadcast):
        needed = max(needed, SINCE.get(type(frame.body), lowest))
    elif isinstance(frame, Gathered):
        needed = max([needed, *(SINCE.get(type(result), lowest) for result in frame.results)])
    return needed


def for_version(frame: Frame, version: int) -> Frame | None:
    """Return the frame without the parts that a version does not know, or None if nothing can be sent. The caller must
    know that the frame is too new."""
    if isinstance(frame, Gathered):
        known = [result for result in frame.results if SINCE.get(type(result), 0) <= version]
        return Gathered(frame.part, known, complete=False, depth=frame.depth)
    return None


def unanswered(frame: Frame) -> Gathered | None:
    """Return the answer in place of a broker that does not know the question; None if the frame is not a question."""
    if isinstance(frame, Broadcast):
        return Gathered(frame.part, [], complete=False, depth=frame.depth, outdated=True)
    if isinstance(frame, Locate):
        return Gathered(frame.part, [], complete=False, depth=frame.hops, outdated=True)
    return None
