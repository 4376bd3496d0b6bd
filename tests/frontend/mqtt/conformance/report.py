"""docs/mqtt-conformance.md from the statements and the tests that name them.

`python -m tests.frontend.mqtt.conformance.report` writes it; a test compares.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from pathlib import Path

import pytest

from tests.frontend.mqtt.conformance.conforms import HERE, VERSIONS, Statement, statements

PAGE = HERE.parents[3] / "docs" / "mqtt-conformance.md"

_HEAD = """\
# Conformance with MQTT

Every numbered statement of the two OASIS standards (Appendix B of [MQTT 5.0][5] and of [MQTT 3.1.1][3]), for a server,
in our words, with the tests that show it, in `tests/frontend/mqtt/conformance`. They give the broker's connection
machine real bytes, or talk to it through a real socket. The tables are written by
`python -m tests.frontend.mqtt.conformance.report` from the marks of the tests. A test compares, so that the page and
the tests cannot part.

`pytest --mesh 3 tests/frontend/mqtt` runs the same tests against a mesh of three brokers, to which connections are
dealt in turn: simulated ones, and for other people's clients real ones. What is of one broker says so (`one_broker`).

*client*: what a client must do; a test is named where the broker can see a breach, and says what it answers.
*not applicable*: with the reason.

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


def page() -> str:
    """The whole document."""
    shown = marked()
    tables = {version: statements(version) for version in VERSIONS}
    lines = []
    for title, whose in (("shown by a test", "S"), ("client's", "C"), ("not applicable", "N")):
        counts = [sum(row.whose == whose for row in rows) for rows in tables.values()]
        lines.append(f"| {title} | {counts[0]} | {counts[1]} |")
    lines.append(f"| all | {len(tables['5.0'])} | {len(tables['3.1.1'])} |")
    for version, rows in tables.items():
        lines += ["", f"## MQTT {version}", "", "| statement | what it asks for | shown by |", "| --- | --- | --- |"]
        lines += [_row(row, shown.get((version, row.number), [])) for row in rows]
    return _HEAD + "\n".join(lines) + "\n"


def _row(row: Statement, tests: list[str]) -> str:
    names = "<br>".join(f"`{test.removeprefix('test_conforms_').replace('::test_', ': ')}`" for test in tests)
    prefix = {"S": "", "C": "*client* ", "N": f"*not applicable*: {row.reason}"}[row.whose]
    return f"| MQTT-{row.number} | {row.text} | {(prefix + names).strip()} |"


if __name__ == "__main__":
    Path(PAGE).write_text(page())
