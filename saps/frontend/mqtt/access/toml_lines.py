"""Finds the lines of the values in a TOML text, which `tomllib` does not report.

The text must be valid TOML. The scanner follows its structure (strings, comments, brackets) and does not check it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_KEY = re.compile(r"""[ \t]*((?:[A-Za-z0-9_\-.]+|"[^"\n]*"|'[^'\n]*'|[ \t]*\.[ \t]*)+?)[ \t]*=""")
_HEADER = re.compile(r"[ \t]*\[(\[?)[ \t]*([^\]\n]*?)[ \t]*\]")
_STRING = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'''',
    re.DOTALL,
)


class Place(NamedTuple):
    """The lines of one value."""

    line: int
    """Line of the value's key, from 1."""
    items: tuple[int, ...]
    """Line of each item of an array; empty for other values."""


class TomlLines:
    """The places of all values in a text."""

    def __init__(self, text: str) -> None:
        self.headers: dict[str, list[int]] = {}
        """By name: the lines of the headers ``[name]`` and ``[[name]]``."""
        self._places: dict[tuple[str, int, str], Place] = {}
        self._scan(text)

    def place(self, key: str, table: str = "", index: int = 0) -> Place | None:
        """Return the place of a key in a table, or None if the text has no such key.

        `index` counts the tables of an array ``[[table]]`` from 0.
        """
        return self._places.get((table, index, key))

    def line_of(self, name: str) -> int | None:
        """Return the line of the value with a dotted name, or of the inline table that contains it, or None."""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            for start in range(end):
                place = self.place(".".join(parts[start:end]), ".".join(parts[:start]))
                if place is not None:
                    return place.line
        return None

    def table_line(self, table: str, index: int) -> int | None:
        """Return the line of a table in an array: of its header, or of its item if the array stands in brackets.

        Returns None if the text has no such table.
        """
        lines = self.headers.get(table) or self._inline(table)
        return lines[index] if index < len(lines) else None

    def _inline(self, table: str) -> list[int]:
        place = self.place(table)
        return list(place.items or (place.line,)) if place is not None else []

    def _scan(self, text: str) -> None:
        table, index, pos, line = "", 0, 0, 1
        while pos < len(text):
            if header := _HEADER.match(text, pos):
                table = _bare(header[2])
                seen = self.headers.setdefault(table, [])
                seen.append(line)
                index, pos = len(seen) - 1, header.end()
            elif key := _KEY.match(text, pos):
                end, items = _value(text, key.end(), line)
                self._places[table, index, _bare(key[1])] = Place(line, items)
                line += text.count("\n", pos, end)
                pos = end
            newline = text.find("\n", pos)
            if newline < 0:
                return
            pos, line = newline + 1, line + 1


def _value(text: str, pos: int, line: int) -> tuple[int, tuple[int, ...]]:
    """Return the end of the value that begins at `pos` in `line`, and the lines of its items if it is an array."""
    depth, items, expected, is_array = 0, [], False, False
    while pos < len(text):
        char = text[pos]
        if char == "\n":
            if not depth:
                break
            line += 1
        elif char == "#":
            newline = text.find("\n", pos)
            pos = newline if newline >= 0 else len(text)
            continue
        elif char in "]}":
            depth -= 1
            expected = False
        elif char == ",":
            expected = is_array and depth == 1
        elif char not in " \t\r":
            if expected and depth == 1:
                items.append(line)
                expected = False
            if char in "[{":
                depth += 1
                if depth == 1:
                    is_array = expected = char == "["
            elif char in "\"'" and (string := _STRING.match(text, pos)):
                line += text.count("\n", pos, string.end())
                pos = string.end()
                continue
        pos += 1
    return pos, tuple(items)


def _bare(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))
