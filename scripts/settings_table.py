"""Writes the tables of docs/settings.md, one for each program, from the declarations.

Usage: python scripts/settings_table.py [--check]. With --check it writes nothing; exit status 1 if it would.
"""

from __future__ import annotations

import json
import sys
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from saps.config.address import Address
from saps.config.knobs import Knob
from saps.config.sources_io import BROKER, TABLES, Program

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
BEGIN = "<!-- settings: written by scripts/settings_table.py -->\n"
END = "<!-- end of settings -->"
LARGER = {
    "s": ((2 * 86400, 86400, "days"), (3600, 3600, "h")),
    "bytes": ((1 << 30, 1 << 30, "GiB"), (1 << 20, 1 << 20, "MiB"), (1 << 10, 1 << 10, "KiB")),
}
"""For a unit, larger ones: the least value that is said in it, its size, its name."""
BAR = r"\|"
"""A bar within a cell."""
UNITS = {"s": "s", "h": "h", "bytes": "bytes", "1/s": "a second"}
"""As they are written here; others are what the text counts."""


def row(program: Program[Any], knob: Knob) -> str:
    """One setting as a row of the table."""
    flag = f"<br>`{program.flag_of(knob.name)}`" if knob.name in program.options else ""
    default = "(required)" if knob.default is msgspec.NODEFAULT else _default(knob)
    cells = (f"`{knob.name}`{flag}", default, f"{knob.about.text}.", knob.about.cost)
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |\n"


def _default(knob: Knob) -> str:
    """The default as a TOML value, with its unit, the same in a larger unit, and the other values there are."""
    if knob.default in ((), None, ""):
        return ""
    others = [f"`{_toml(value)}`" for value in _choices(knob.type) if value != knob.default]
    text = f"`{_toml(knob.default)}` {UNITS.get(knob.about.unit, '')}".strip()
    return text + _larger(knob.default, knob.about.unit) + (f"; or {', '.join(others)}" if others else "")


def _toml(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1e5 else f"{value:.0f}"
    plain = str(value) if isinstance(value, Address) else value
    return json.dumps(plain)


def _choices(declared: Any) -> tuple[Any, ...]:
    """The values of a `Literal` or an `Enum`."""
    inner = get_args(declared)[0] if get_origin(declared) is Annotated else declared
    if get_origin(inner) is Literal:
        return get_args(inner)
    return tuple(inner) if isinstance(inner, type) and issubclass(inner, Enum) else ()


def _larger(value: Any, unit: str) -> str:
    """`` (24 h)`` for 86,400 s, `` (1 GiB)`` for 2**30 bytes; nothing where the number is small or odd."""
    for least, size, name in LARGER.get(unit, ()):
        if value >= least and not value % size:
            return f" ({value / size:.0f} {name})"
    return ""


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
