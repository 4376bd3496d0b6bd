"""The command `saps audit`: shows the latest changes at all brokers, and logins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from saps.cli.apps import command_app
from saps.cli.look.clients import clock
from saps.cli.look.http_client import WebPort
from saps.cli.look.options import Json, asks
from saps.cli.look.tables import console, counted, emit, safe, table
from saps.operations.audit import KEPT, AuditList, Entry

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
    console().print(audit_table(found.entries, f"{title}{missing}"))


def audit_table(entries: Iterable[Entry], title: str) -> Table:
    """Return a table with a row for each entry."""
    shown = table(title, ("when", "who", "from", "at broker", "what", "about", "details"))
    for entry in entries:
        signal = entry.who is None and entry.source == "signal"
        who = ("a signal" if signal else entry.who or "anonymous") + (f" ({entry.role})" if entry.role else "")
        left_out = f"{entry.left_out} more of this address" if entry.left_out else ""
        change = " -> ".join(msgspec.json.encode(each).decode() for each in (entry.before, entry.after) if each)
        details = "; ".join(part for part in (entry.reason, change, left_out) if part)
        texts = (who, "" if signal else entry.source, entry.broker, entry.what, entry.subject, details)
        shown.add_row(clock(entry.at), *[safe(text) for text in texts])
    return shown
