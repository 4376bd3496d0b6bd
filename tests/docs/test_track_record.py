"""docs/track-record.md names tests that exist, and each bug by one."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/track-record.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| what", "| ---"))
]


def test_each_bug_is_shown_by_a_test_that_exists() -> None:
    assert len(ROWS) >= 30
    for what, shown_by in ROWS:
        assert what, shown_by
        named = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", shown_by)
        assert named, f"{what}: {shown_by}"
        path, name = ROOT / named[1], named[2]
        assert path.is_file(), f"{what}: {path} is not there"
        assert re.search(rf"^ *(async )?def {name}\(", path.read_text(), re.MULTILINE), f"{what}: {name} is not there"


def test_no_bug_stands_there_twice() -> None:
    assert len({what for what, _ in ROWS}) == len(ROWS)
