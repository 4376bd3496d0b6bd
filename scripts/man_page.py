"""Writes docs/saps.1, what `man saps` shows, from the table of commands.

Usage: python scripts/man_page.py [--check]. With --check it writes nothing; exit status 1 if it would.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from saps.cli.commands import GROUPS, OPTIONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "saps.1"


def lines() -> Iterator[str]:
    """The page, in the macros of man(7)."""
    yield '.TH SAPS 1 "" SAPS "User Commands"'
    yield ".SH NAME"
    yield "saps \\- publish/subscribe brokers without a master"
    yield ".SH SYNOPSIS"
    yield ".B saps\n.I COMMAND\n[OPTIONS]"
    yield ".SH DESCRIPTION"
    yield "Brokers with MQTT at the edge and a Skip Graph overlay between sites."
    yield ".B saps COMMAND \\-\\-help"
    yield "says all that a command takes."
    for title, entries in GROUPS.items():
        yield f".SS {title}"
        for name, entry in entries.items():
            yield f".TP\n.B saps {_plain(name)}\n{_plain(entry.says)}"
    yield ".SH OPTIONS"
    for names, says in OPTIONS.items():
        yield f".TP\n.B {_plain(names)}\n{_plain(says)}"
    yield ".SH EXIT STATUS"
    yield "0: done; 1: it failed; 2: a setting or an option cannot be used, and a line on standard error says why;"
    yield "130: interrupted."
    yield ".SH ENVIRONMENT"
    yield ".TP\n.B SAPS_CONFIG\nThe TOML file of settings, as \\-\\-config."
    yield ".TP\n.B SAPS_NAME, SAPS_MQTT, ...\nAny setting, such as SAPS_OVERLAY__SUSPECT_AFTER."
    yield ".TP\n.B SAPS_URL\nThe Web port that commands ask; else SAPS_WEB."


def _plain(text: str) -> str:
    return text.replace("-", "\\-")


def main() -> None:
    page = "\n".join(lines()) + "\n"
    if "--check" not in sys.argv:
        PAGE.write_text(page)
    elif not PAGE.exists() or PAGE.read_text() != page:
        sys.exit(f"{PAGE.name} is not what the table of commands says: python scripts/man_page.py")


if __name__ == "__main__":
    main()
