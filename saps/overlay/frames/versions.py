"""Which version of the protocol a frame needs, so that a broker of an older version is never sent what it cannot read.

It would break the link, as anything malformed. A question that cannot be put to an older broker is answered in its
place: incompletely, and with the word that to ask again is of no use.
"""

from __future__ import annotations

from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Broadcast, Gathered, Locate

SINCE: dict[type, int] = {}
"""The first version that has a kind of frame, of body of a range call, or of its result; not those of the lowest."""


def version_of(frame: Frame, lowest: int) -> int:
    """The lowest version that has the frame, with all that is in it."""
    if not SINCE:
        return lowest
    needed = SINCE.get(type(frame), lowest)
    if isinstance(frame, Locate | Broadcast):
        needed = max(needed, SINCE.get(type(frame.body), lowest))
    elif isinstance(frame, Gathered):
        needed = max([needed, *(SINCE.get(type(result), lowest) for result in frame.results)])
    return needed


def for_version(frame: Frame, version: int) -> Frame | None:
    """The same as far as a version can say it, or None."""
    if isinstance(frame, Gathered):
        known = [result for result in frame.results if SINCE.get(type(result), 0) <= version]
        return Gathered(frame.part, known, complete=False, depth=frame.depth)
    return None


def unanswered(frame: Frame) -> Gathered | None:
    """What whoever asks gets in the place of an answer; None if the frame is no question."""
    if isinstance(frame, Broadcast):
        return Gathered(frame.part, [], complete=False, depth=frame.depth, outdated=True)
    if isinstance(frame, Locate):
        return Gathered(frame.part, [], complete=False, depth=frame.hops, outdated=True)
    return None
