"""docs/mqtt-conformance.md from the statements and the tests that name them.

`python -m tests.frontend.mqtt.conformance.report` writes it; a test compares.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

import pytest

from tests.frontend.mqtt.conformance.conforms import HERE, VERSIONS, Statement, statements

PAGE = HERE.parents[3] / "docs" / "mqtt-conformance.md"

_HEAD = """\
# Conformance with MQTT

Every numbered statement for a server of [MQTT 5.0][5] and [MQTT 3.1.1][3] (Appendix B), and the tests in
`tests/frontend/mqtt/conformance` that show it. `python -m tests.frontend.mqtt.conformance.report` writes this page from
their marks; the files `statements-5.0.txt` and `statements-3.1.1.txt` there say each statement in our words. `pytest
--mesh 3 tests/frontend/mqtt` runs the tests against a mesh of three brokers.

A number stands for MQTT 5.0, one after = for the same in MQTT 3.1.1, one in italics for MQTT 3.1.1 alone. (c) marks a
duty of the client whose breach the broker answers.

[5]: https://docs.oasis-open.org/mqtt/mqtt/v5.0/mqtt-v5.0.html
[3]: https://docs.oasis-open.org/mqtt/mqtt/v3.1.1/mqtt-v3.1.1.html

| | MQTT 5.0 | MQTT 3.1.1 |
| --- | --- | --- |
"""


def marked() -> dict[tuple[str, str], list[str]]:
    """The tests by (version, number) of the statements that they show, each as ``file::test``."""
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted(HERE.glob("test_conforms_*.py")):
        module = importlib.import_module(f"tests.frontend.mqtt.conformance.{path.stem}")
        for name, function in vars(module).items():
            if name.startswith("test_"):
                for version, number in _marks(function):
                    test = f"{path.stem}::{name}"
                    if test not in found[version, number]:
                        found[version, number].append(test)
    return dict(found)


def _marks(function: object) -> list[tuple[str, str]]:
    """The statements a test shows: by its own marks, and by those of its parameters."""
    marks: list[pytest.Mark] = list(getattr(function, "pytestmark", []))
    for mark in [mark for mark in marks if mark.name == "parametrize"]:
        for row in mark.args[1]:
            marks += [inner.mark if hasattr(inner, "mark") else inner for inner in getattr(row, "marks", ())]
    return [(mark.args[0], number) for mark in marks if mark.name == "conforms" for number in mark.args[1:]]


class Entry(NamedTuple):
    """One statement, of one version or of both, with what shows it."""

    label: str
    whose: str
    reason: str
    tests: tuple[str, ...]


def entries() -> list[Entry]:
    """The statements of MQTT 5.0, with what 3.1.1 has alike, then those of 3.1.1 alone."""
    shown = marked()
    alike: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for row in statements("3.1.1"):
        alike.setdefault(_key(row, shown.get(("3.1.1", row.number), [])), []).append(row.number)
    found = []
    for row in statements("5.0"):
        key = _key(row, shown.get(("5.0", row.number), []))
        label = "=".join((row.number, *alike.get(key, [])[:1]))
        del alike.get(key, [])[:1]
        found.append(_entry(row, label, key[2]))
    for row in statements("3.1.1"):
        key = _key(row, shown.get(("3.1.1", row.number), []))
        if row.number in alike[key]:
            found.append(_entry(row, f"*{row.number}*", key[2]))
    return found


def _key(row: Statement, tests: list[str]) -> tuple[str, str, tuple[str, ...]]:
    return row.whose, row.text.removesuffix("; else close"), tuple(tests)


def _entry(row: Statement, label: str, tests: tuple[str, ...]) -> Entry:
    return Entry(label, row.whose, row.reason, tests)


def page() -> str:
    """The whole document."""
    tables = {version: statements(version) for version in VERSIONS}
    lines = []
    for title, whose in (("shown by a test", "S"), ("client's", "C"), ("not applicable", "N")):
        counts = [sum(row.whose == whose for row in rows) for rows in tables.values()]
        lines.append(f"| {title} | {counts[0]} | {counts[1]} |")
    lines.append(f"| all | {len(tables['5.0'])} | {len(tables['3.1.1'])} |")
    found = entries()
    lines += ["", "## Statements and their tests", "", "| statements | shown by |", "| --- | --- |"]
    lines += _grouped([entry for entry in found if entry.tests])
    alone = ", ".join(entry.label for entry in found if entry.whose == "C" and not entry.tests)
    lines += ["", "## Duties of the client alone", "", fill(f"{alone}.", width=120, break_on_hyphens=False)]
    lines += ["", "## Not applicable", "", "| statements | reason |", "| --- | --- |"]
    reasons: dict[str, list[str]] = {}
    for entry in found:
        if entry.whose == "N":
            reasons.setdefault(entry.reason, []).append(entry.label)
    lines += [f"| {', '.join(labels)} | {reason} |" for reason, labels in reasons.items()]
    return _HEAD + "\n".join(lines) + "\n"


def _grouped(found: list[Entry]) -> Iterator[str]:
    """A row for each set of tests, with the statements it shows."""
    sets: dict[tuple[str, ...], list[str]] = {}
    for entry in found:
        sets.setdefault(entry.tests, []).append(entry.label + "(c)" * (entry.whose == "C"))
    for tests, said in sets.items():
        names = "<br>".join(f"`{test.removeprefix('test_conforms_').replace('::test_', '::')}`" for test in tests)
        yield f"| {', '.join(said)} | {names} |"


if __name__ == "__main__":
    Path(PAGE).write_text(page())
