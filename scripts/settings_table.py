"""Writes the tables of docs/settings.md, one for each program, from the declarations.

Usage: python scripts/settings_table.py [--check]. With --check it writes nothing; exit status 1 if it would.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from saps.config.knobs import Knob
from saps.config.sources_io import BROKER, TABLES, Program

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
BEGIN = "<!-- settings: written by scripts/settings_table.py -->\n"
END = "<!-- end of settings -->"


def row(program: Program[Any], knob: Knob) -> str:
    """One setting as a row of the table."""
    flag = f"<br>`{program.flag_of(knob.name)}`" if knob.name in program.options else ""
    if knob.default is msgspec.NODEFAULT:
        default = "(required)"
    elif isinstance(knob.default, float):
        default = f"{knob.default:g} {knob.about.unit}".strip()
    elif knob.default in ((), None):
        default = "(none)"
    else:
        default = f"{knob.default} {knob.about.unit}".strip()
    return f"| `{knob.name}`{flag} | {default} | {knob.about.text}. | {knob.about.cost} |\n"


def tables() -> str:
    """All settings in Markdown, under a heading for each program."""
    head = "| setting and flag | default | what it is | raising it costs |\n| --- | --- | --- | --- |\n"
    parts = []
    programs = {"": BROKER} | {f"{table}.": import_module(module).PROGRAM for table, module in TABLES.items()}
    for table, program in programs.items():
        rows = "".join(row(program, knob) for knob in program.knobs.values() if knob.name.startswith(table))
        parts.append(f"\n## {table.removesuffix('.') or 'The broker'}\n\n{head}{rows}")
    return "".join(parts) + "\n"


def main(arguments: list[str]) -> int:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    wanted = before + BEGIN + tables() + END + after
    if "--check" in arguments:
        if wanted != text:
            print("docs/settings.md is out of date: run scripts/settings_table.py", file=sys.stderr)
        return int(wanted != text)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
