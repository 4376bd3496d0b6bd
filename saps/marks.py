"""Coverage marks: a rare branch reports that it was reached, and the test of this branch requires the report.

After a change elsewhere, a test's schedule may miss the branch and still pass; the mark reveals that (TigerBeetle's
`marks.zig`). Each mark is hit in one place only and expected by a test (`tests/marks.py`).
"""

from __future__ import annotations

counts: dict[str, int] | None = None
"""Number of hits of each mark while a test counts, else None. Without a test a hit costs one comparison."""


def hit(mark: str) -> None:
    """Count that the branch of this mark was reached."""
    if counts is not None:
        counts[mark] = counts.get(mark, 0) + 1
