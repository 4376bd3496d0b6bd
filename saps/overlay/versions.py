"""Which version of the protocol a frame needs, so that a broker of an older version is never sent what it cannot read.

It would break the link, as anything malformed. A question that cannot be put to an older broker is answered in its
place: incompletely, and with the word that to ask again is of no use.
"""

from __future__ import annotations

from typing import Any

from saps.overlay.frames import Frame, Gathered, Locate, Spread

FIRST_FRAME, FIRST_BODY, FIRST_RESULT = 41, 10, 9
"""The lowest tags of version 2: of frames, of the bodies of range calls, and of their results."""

_VERSIONS: dict[type[Frame], int] = {}


def version_of(frame: Frame) -> int:
    """The lowest version that has the frame, with all that is in it."""
    known = _VERSIONS.get(type(frame))
    return known if known is not None else _by_content(frame)


def _by_content(frame: Frame) -> int:
    if isinstance(frame, Locate | Spread):
        return 2 if _tag(frame.body) >= FIRST_BODY else 1
    if isinstance(frame, Gathered):
        return 2 if any(_tag(result) >= FIRST_RESULT for result in frame.results) else 1
    return _VERSIONS.setdefault(type(frame), 2 if _tag(frame) >= FIRST_FRAME else 1)


def for_all_versions(frame: Frame) -> Frame | None:
    """The same as far as version 1 can say it, or None."""
    if isinstance(frame, Gathered):
        known = [result for result in frame.results if _tag(result) < FIRST_RESULT]
        return Gathered(frame.part, known, complete=False, depth=frame.depth)
    return None


def unanswered(frame: Frame) -> Gathered | None:
    """What whoever asks gets in the place of an answer; None if the frame is no question."""
    if isinstance(frame, Spread):
        return Gathered(frame.part, [], complete=False, depth=frame.depth, outdated=True)
    if isinstance(frame, Locate):
        return Gathered(frame.part, [], complete=False, depth=frame.hops, outdated=True)
    return None


def _tag(struct: Any) -> int:
    tag = struct.__struct_config__.tag
    assert isinstance(tag, int)
    return tag
