"""Coverage marks: a rare branch says that it was reached, and a test that is about it asks for that.

A schedule that is to lead to a branch may, after a change elsewhere, lead past it and still pass; the mark tells
(TigerBeetle's `marks.zig`). A mark is hit in one place only and expected by a test (`tests/marks.py`).
"""

from __future__ import annotations

counts: dict[str, int] | None = None
"""Times that each mark was hit, while a test counts; None at all other times, when a hit costs a comparison."""


def hit(mark: str) -> None:
    """The branch in which this stands was reached."""
    if counts is not None:
        counts[mark] = counts.get(mark, 0) + 1
