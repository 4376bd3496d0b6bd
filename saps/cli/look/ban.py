"""The command `saps ban`: lists the bans of the mesh, bans clients, users and addresses, and lifts bans."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated
from urllib.parse import quote

import typer
from rich.table import Table

from saps.cli.apps import command_app
from saps.cli.look.clients import clock
from saps.cli.look.http_client import AskError, WebPort
from saps.cli.look.options import Json, asks
from saps.cli.look.tables import console, emit, safe, table
from saps.operations.bans import KINDS, Ban, BanList, Banned, BanOrder

app = command_app("ban")

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


@app.command()
@asks
def ban(
    port: WebPort,
    kind: Annotated[
        str | None, typer.Argument(metavar="[client|user|address]", help="What is banned; left out: all are listed.")
    ] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Client identifier, user, or IP address or network.")
    ] = None,
    lasts: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="90s, 30m, 12h or 7d; else until it is lifted.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; for those who read it later.")] = "",
    lift: Annotated[bool, typer.Option("--lift", help="End the ban.")] = False,
    as_json: Json = False,
) -> None:
    """Ban a client, user or address at all brokers, also after restarts; without arguments list the bans.

    For administrators. Who is connected is disconnected.
    """
    if kind is None:
        found = port.get("/v1/bans", BanList)
        if as_json:
            emit(found)
        else:
            console().print(ban_table(found.bans))
        return
    if kind not in KINDS:
        raise AskError(f"{kind!r} is not one of {', '.join(KINDS)}")
    if name is None:
        raise AskError(f"say which {kind} is banned")
    if lift:
        done = port.delete(f"/v1/bans/{kind}/{quote(name, safe='')}", Banned)
    else:
        order = BanOrder(kind=kind, name=name, seconds=seconds(lasts), reason=reason)  # type: ignore[arg-type]
        done = port.post("/v1/bans", order, Banned)
    if as_json:
        emit(done)
    else:
        console().print(safe(said(done)))


def seconds(text: str | None) -> float | None:
    """Return the seconds of a duration such as ``90s``, ``30m``, ``12h`` or ``7d``; None stays None.

    Raises `AskError` for any other text, and for zero."""
    if text is None:
        return None
    found = _DURATION.fullmatch(text)
    if found is None or not float(found[1]):
        raise AskError(f"--for: {text!r} is not of the form 90s, 30m, 12h or 7d")
    return float(found[1]) * _UNITS[found[2]]


def said(done: Banned) -> str:
    """Return the outcome of an order in words."""
    ban, missing = done.ban, "" if done.complete else "; some broker has not answered, and learns of it soon"
    brokers = f"{done.brokers} broker{'s'[: done.brokers != 1]}"
    if ban.lifted:
        return f"the {ban.kind} {ban.name} is banned no more, at {brokers}{missing}"
    until = "until it is lifted" if ban.until is None else f"until {clock(ban.until)}"
    return f"the {ban.kind} {ban.name} is banned at {brokers} {until}; {done.disconnected} disconnected{missing}"


def ban_table(bans: Iterable[Ban]) -> Table:
    """Return a table with a row for each ban."""
    rows = list(bans)
    shown = table(
        f"{len(rows)} ban{'s'[: len(rows) != 1]}", ("kind", "name", "until", "reason", "by", "at broker", "since")
    )
    for row in rows:
        until = "lifted" if row.until is None else clock(row.until)
        texts = (row.name, until, row.reason, row.by, row.broker)
        shown.add_row(row.kind, *[safe(text) for text in texts], clock(row.at))
    return shown
