"""Formats values for a terminal. Texts from clients and other brokers are shown with control characters escaped."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDE = 200
"""Columns of output that is no terminal. They are many, so that nothing is cut for a screen that does not exist."""


def console() -> Console:
    """Return a console for standard output."""
    return Console(width=None if sys.stdout.isatty() else WIDE, highlight=False, soft_wrap=False)


def emit(value: object) -> None:
    """Write a value as JSON on a line of its own, and flush it."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def safe(text: str, style: str = "") -> Text:
    """Return a text with unprintable characters escaped by number, because a topic may hold terminal control codes."""
    return Text("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text), style)


def counted(number: int, one: str, more: str) -> str:
    """Return the number with its noun: `one` for 1, else `more`."""
    return f"{number} {one if number == 1 else more}"


def table(title: str, columns: Iterable[str], numbers: Iterable[str] = ()) -> Table:
    """Return an empty table. The columns in `numbers` are aligned right."""
    right = set(numbers)
    made = Table(title=safe(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        ends = "right" if column in right else "left"
        made.add_column(column, justify=ends, overflow="fold", no_wrap=column in right)  # type: ignore[arg-type]
    return made


def count(number: float) -> str:
    """Return a short text of a count or rate: ``7``, ``0.4``, ``12,345``."""
    return f"{number:.1f}" if 0 < number < 10 and number != int(number) else f"{number:,.0f}"


def size(number: float) -> str:
    """Return a short text of a number of bytes: ``512 B``, ``1.2 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def duration(seconds: float) -> str:
    """Return a short text of a duration in seconds: ``42 s``, ``3 min``, ``2 h 5 min``, ``4 d 3 h``."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, hours, days = whole // 60 % 60, whole // 3600 % 24, whole // 86400
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def some(names: Iterable[str], most: int = 3) -> str:
    """Return at most `most` names and the number of the others: ``b1, b2, b3 +4``."""
    listed = list(names)
    more = f" +{len(listed) - most}" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
