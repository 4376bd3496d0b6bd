"""Which test shows which numbered statement of the standards, and the statements themselves."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
VERSIONS = ("5.0", "3.1.1")


def mqtt5(*numbers: str) -> pytest.MarkDecorator:
    """The test shows these statements of MQTT 5.0, such as "3.1.2-1"."""
    return pytest.mark.conforms("5.0", *numbers)


def mqtt311(*numbers: str) -> pytest.MarkDecorator:
    """The test shows these statements of MQTT 3.1.1."""
    return pytest.mark.conforms("3.1.1", *numbers)


class Statement(NamedTuple):
    """One numbered statement, in our words."""

    number: str
    whose: str
    """S: the server's. C: the client's alone. N: not applicable."""
    text: str
    reason: str
    """Why it is not applicable."""


def statements(version: str) -> list[Statement]:
    """All statements of one version of the standard, in its order."""
    lines = (HERE / f"statements-{version}.txt").read_text().splitlines()
    rows = [[part.strip() for part in line.split("|")] for line in lines if line and line[0] != "#"]
    return [Statement(number, whose, text, "".join(reason)) for number, whose, text, *reason in rows]
