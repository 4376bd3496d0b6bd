"""The tests' side of coverage marks (`saps.marks`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from saps import marks


@contextmanager
def expect(*names: str) -> Iterator[None]:
    """The block reaches the branches with these marks, in this process, each at least once."""
    outer, marks.counts = marks.counts, {}
    try:
        yield
        missed = [name for name in names if name not in marks.counts]
        assert not missed, f"not reached: {', '.join(missed)}; reached: {', '.join(marks.counts) or 'none'}"
    finally:
        marks.counts = outer
