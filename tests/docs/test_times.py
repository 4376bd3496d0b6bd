"""The times that `make` states for the tests, against those of the last run of continuous integration."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "tests" / "times.json"
"""Seconds that `make check` and `make test` took. Written by .ci/run."""
STATED = re.compile(r"^(test|check):.*: about (\d+) minutes? on two processors\.$", re.MULTILINE)


def test_the_times_that_are_stated_are_within_half_of_those_that_were_measured() -> None:
    stated = {name: 60 * int(minutes) for name, minutes in STATED.findall((ROOT / "Makefile").read_text())}
    assert stated.keys() == {"test", "check"}
    if not RECORD.exists():
        pytest.skip("there is no tests/times.json of a run of .ci/run")
    record = json.loads(RECORD.read_text())
    if record["processors"] != 2:
        pytest.skip(f"the last recorded run had {record['processors']} processors")
    for name, seconds in stated.items():
        assert record[name] / 1.5 <= seconds <= record[name] * 1.5, f"make {name} took {record[name]} s"
