"""Coverage marks: each is hit in one place, and expected by a test."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from saps.marks import hit
from tests import marks

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r'\bhit\(\s*"([^"]+)"')
EXPECTED = re.compile(r"\bmarks\.expect\(([^)]*)\)")


def sources(folder: str) -> list[str]:
    return [path.read_text() for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)]


def test_each_mark_has_one_place_and_a_test() -> None:
    hits = Counter(mark for text in sources("saps") for mark in MARK.findall(text))
    calls = [call for text in sources("tests") for call in EXPECTED.findall(text)]
    expected = {name for call in calls for name in re.findall('"(.+?)"', call)}
    assert [mark for mark, count in hits.items() if count > 1] == []
    assert hits.keys() == expected


def test_a_mark_that_is_not_hit_is_named() -> None:
    hit("there")  # nobody counts
    with pytest.raises(AssertionError, match="not reached: there; reached: elsewhere"), marks.expect("there"):
        hit("elsewhere")
    with marks.expect("there"):
        hit("there")
