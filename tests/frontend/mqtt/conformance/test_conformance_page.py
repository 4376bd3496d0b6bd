"""The statements, the tests' marks and docs/mqtt-conformance.md agree."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.frontend.mqtt.conformance.conforms import VERSIONS, statements
from tests.frontend.mqtt.conformance.report import PAGE, marked, page

CHAPTERS = {
    "5.0": {"1": 5, "2": 7, "3": 175, "4": 60, "6": 4},
    "3.1.1": {"1": 3, "2": 9, "3": 95, "4": 26, "6": 4, "7": 4},
}
"""How many numbered statements the chapters of the standards have."""


@pytest.mark.parametrize("version", VERSIONS)
def test_each_statement_of_the_standard_is_there_once(version: str) -> None:
    numbers = [statement.number for statement in statements(version)]
    assert len(set(numbers)) == len(numbers)
    assert Counter(number.partition(".")[0] for number in numbers) == CHAPTERS[version]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_statement_for_a_server_is_shown_by_a_test_and_what_is_not_applicable_says_why(version: str) -> None:
    shown = {number for marked_version, number in marked() if marked_version == version}
    known = {statement.number: statement for statement in statements(version)}
    assert sorted(shown - set(known)) == []
    assert sorted(n for n, s in known.items() if s.whose == "S" and n not in shown) == []
    assert sorted(n for n, s in known.items() if s.whose == "N" and (n in shown or not s.reason)) == []


def test_the_page_says_what_the_tests_are_marked_with() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.frontend.mqtt.conformance.report"


@pytest.mark.parametrize(("version", "mark"), [("5.0", r"(?<![*=.\d]){}[^\d]"), ("3.1.1", r"(?:=|\*){}[^\d]")])
def test_the_page_has_each_statement_of_each_version_once(version: str, mark: str) -> None:
    written = PAGE.read_text()
    for statement in statements(version):
        assert len(re.findall(mark.format(re.escape(statement.number)), written)) == 1, statement.number
