"""The command `saps clients`: finds clients of the whole mesh by name, user, address, broker or topic filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Annotated, TypeAlias

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from saps.cli.apps import command_app
from saps.cli.look.http_client import WebPort
from saps.cli.look.options import Json, asks
from saps.cli.look.tables import WIDE, console, count, duration, emit, safe, table
from saps.operations.values import MOST_CLIENTS, SORTS, ClientList, ClientRow

app = command_app("clients")

Cell: TypeAlias = Callable[[ClientRow, float], Text | str]

URGENT: dict[str, Cell] = {
    "client": lambda row, at: safe(row.client, "" if row.connected else "dim"),
    "broker": lambda row, at: safe(row.broker),
    "user": lambda row, at: safe(row.user or ""),
    "state": lambda row, at: f"{'here' if row.connected else 'away'} for {duration(max(0.0, at - row.since))}",
}
LESS_URGENT: dict[str, Cell] = {
    "address": lambda row, at: safe(row.address),
    "protocol": lambda row, at: row.protocol,
    "subscriptions": lambda row, at: count(row.subscriptions),
    "in flight": lambda row, at: count(row.inflight),
}
"""Columns that a narrow screen omits."""
NUMBERS: dict[str, Cell] = {
    "in/s": lambda row, at: "" if row.published_rate is None else count(row.published_rate),
    "out/s": lambda row, at: "" if row.delivered_rate is None else count(row.delivered_rate),
    "queued": lambda row, at: count(row.queued),
    "dropped": lambda row, at: count(row.dropped),
}
NARROW = 110


@app.command()
@asks
def clients(
    port: WebPort,
    search: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="A part of the client identifier, user or address.")
    ] = None,
    of_user: Annotated[
        str | None, typer.Option("--of-user", metavar="NAME", help="Only this user's; * is any.")
    ] = None,
    address: Annotated[str | None, typer.Option("--address", metavar="IP", help="Only from there; * is any.")] = None,
    broker: Annotated[str | None, typer.Option("--broker", metavar="NAME", help="Only at this broker.")] = None,
    topic_filter: Annotated[
        str | None,
        typer.Option("--filter", metavar="FILTER", help="Only with a subscription that has a topic of this filter."),
    ] = None,
    state: Annotated[str | None, typer.Option("--state", metavar="connected|away", help="Only those.")] = None,
    sort: Annotated[str, typer.Option("--sort", metavar="|".join(SORTS), help="Sort order.")] = "client",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most clients shown.")] = 50,
    as_json: Json = False,
) -> None:
    """Show clients of all brokers: where, since when, messages a second, what waits. `--sort rate`: who floods."""
    wanted = {"search": search, "user": of_user, "address": address, "broker": broker, "filter": topic_filter}
    wanted |= {"state": state, "sort": sort}
    found = port.get("/v1/clients", ClientList, **wanted, limit=min(limit, MOST_CLIENTS))
    while found.next is not None and (left := limit - len(found.clients)) > 0:
        page = port.get("/v1/clients", ClientList, **wanted, limit=min(left, MOST_CLIENTS), after=found.next)
        found = msgspec.structs.replace(page, clients=found.clients + page.clients)
    if as_json:
        emit(found)
    else:
        out = console()
        out.print(client_table(found.clients, found.at, headline(found), out.width))


def headline(found: ClientList) -> str:
    """Return the numbers of clients found and shown in words, and whether a broker has not answered."""
    shown = f", {len(found.clients)} shown" if len(found.clients) < found.total else ""
    missing = "" if found.complete else "; some broker has not answered"
    return f"{found.total:,} client{'s'[: found.total != 1]}{shown}{missing}"


def client_table(rows: Iterable[ClientRow], at: float, title: str, width: int = WIDE) -> Table:
    """Return a table with a row for each client, for a screen of `width` columns; `at` is in seconds since 1970."""
    cells = URGENT | (LESS_URGENT if width >= NARROW else {}) | NUMBERS
    shown = table(title, cells, [*NUMBERS, "subscriptions", "in flight"])
    for row in rows:
        shown.add_row(*[cell(row, at) for cell in cells.values()])
    return shown


def clock(seconds: float) -> str:
    """Return a time (seconds since 1970) in this machine's time zone, to the second."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")
