"""The command `saps audit`: shows the latest changes at all brokers, and logins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from saps.cli.apps import command_app
from saps.cli.look.clients import NARROW, clock
from saps.cli.look.http_client import WebPort
from saps.cli.look.options import Json, asks
from saps.cli.look.tables import WIDE, console, counted, emit, safe, table
from saps.operations.audit import KEPT, SIGNAL, AuditList, Entry

app = command_app("audit")


@app.command()
@asks
def audit(
    port: WebPort,
    search: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="What a line must contain: a user, a client, an address.")
    ] = None,
    logins: Annotated[bool, typer.Option("--logins", help="With logins and refused logins.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=KEPT, help="Most lines shown.")] = 50,
    as_json: Json = False,
) -> None:
    """Show who changed what, the latest first: bans, disconnected clients, drains, reloads. For administrators."""
    found = port.get("/v1/audit", AuditList, search=search, logins="true" if logins else None, limit=limit)
    if as_json:
        emit(found)
        return
    missing = "" if found.complete else "; some broker has not answered"
    title = counted(len(found.entries), "entry", "entries")
    out = console()
    out.print(audit_table(found.entries, f"{title}{missing}", out.width))


def audit_table(entries: Iterable[Entry], title: str, width: int = WIDE) -> Table:
    """Return a table with a row for each entry, for a screen of `width` columns."""
    cells = CELLS if width >= NARROW else FEWER_CELLS
    shown = table(title, cells)
    for entry in entries:
        shown.add_row(*[safe(cell(entry)) for cell in cells.values()])
    return shown


def _who(entry: Entry) -> str:
    return f"a {SIGNAL}" if entry.source == SIGNAL else entry.who or "anonymous"


def _when(seconds: float) -> str:
    """Return a time in this machine's time zone, which is left out."""
    return clock(seconds)[: len("2026-01-31 12:00:00")]


def _what(entry: Entry) -> str:
    return f"{entry.what} {entry.subject}".rstrip()


def _details(entry: Entry) -> str:
    left_out = f"{entry.left_out} more of this address" if entry.left_out else ""
    return "; ".join(part for part in (entry.reason, *_changes(entry.before, entry.after), left_out) if part)


def _changes(before: Any, after: Any) -> Iterator[str]:
    """Yield what an action has changed, such as ``rules 1 -> 2``. Values that say nothing are left out."""
    old, new = (each if isinstance(each, dict) else {"": each} for each in (before, after))
    for name in {**old, **new}:
        was, now = _value(name, old.get(name)), _value(name, new.get(name))
        if was != now:
            yield f"{name} {f'{was} -> {now}' if was and now else now or f'was {was}'}".strip()


def _value(name: str, value: Any) -> str:
    """Return a value as a text, empty for None, False and what is empty."""
    if value is None or value is False or value == "":
        return ""
    if name == "until" and isinstance(value, int | float):
        return _when(value)
    if value is True:
        return "yes"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


CELLS: dict[str, Callable[[Entry], str]] = {
    "when": lambda entry: _when(entry.at),
    "who": lambda entry: _who(entry) + (f" ({entry.role})" if entry.role else ""),
    "from": lambda entry: "" if entry.source == SIGNAL else entry.source,
    "at broker": lambda entry: entry.broker,
    "what": _what,
    "details": _details,
}
FEWER_CELLS: dict[str, Callable[[Entry], str]] = {
    "when": lambda entry: _when(entry.at)[len("2026-") :],
    "who": _who,
    "from": CELLS["from"],
    "what": lambda entry: ": ".join(part for part in (_what(entry), _details(entry)) if part),
}
"""The columns of a narrow screen."""
