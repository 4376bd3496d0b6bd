"""The command `saps brokers`: shows every broker of the mesh by its own report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Annotated, TypeAlias
from urllib.parse import quote

import typer
from rich.table import Table
from rich.text import Text

from saps.cli.apps import command_app
from saps.cli.look.http_client import WebPort
from saps.cli.look.options import Json, asks
from saps.cli.look.tables import WIDE, console, count, duration, emit, safe, size, table
from saps.frontend.web.mesh.report import Broker, Brokers, Forgotten

app = command_app("brokers")

Forget = Annotated[str | None, typer.Option("--forget", metavar="BROKER", help="Forget this broker, which is away.")]
Cell: TypeAlias = Callable[[Broker], Text | str]

NAMES: dict[str, Cell] = {"broker": lambda row: safe(row.name), "cluster": lambda row: safe(row.cluster)}
LESS_URGENT: dict[str, Cell] = {
    "version": lambda row: safe(row.version),
    "up": lambda row: duration(row.uptime),
    "queued": lambda row: size(row.queued_bytes),
    "links": lambda row: count(len(row.links)),
}
"""Columns that a narrow screen omits."""
NUMBERS: dict[str, Cell] = {
    "clients": lambda row: count(row.clients),
    "in/s": lambda row: count(row.published_rate),
    "from others/s": lambda row: count(row.received_rate),
    "out/s": lambda row: count(row.delivered_rate),
}
HELD: dict[str, Cell] = {"held by": lambda row: safe(", ".join([*row.held_by, *_upstream(row)]), "bold red")}
NARROW = 110


@app.command()
@asks
def brokers(port: WebPort, as_json: Json = False, forget: Forget = None) -> None:
    """Show all brokers of the mesh: place, clients, messages a second, what holds publishers back; and who is away."""
    if forget is not None:
        port.delete(f"/v1/brokers/{quote(forget, safe='')}", Forgotten)
    found = port.get("/v1/brokers", Brokers)
    if as_json:
        emit(found)
    else:
        out = console()
        rows = sorted(found.brokers, key=lambda broker: (broker.cluster, broker.name))
        out.print(broker_table(rows, headline(found), out.width))
        if found.away:
            out.print(away_table(found))


def _upstream(row: Broker) -> list[str]:
    return ["upstream is away"] if row.upstream == "away" and "upstream" not in row.held_by else []


def headline(found: Brokers) -> str:
    """Return the number of brokers in words, and whether a broker has not answered."""
    clusters = len({broker.cluster for broker in found.brokers})
    missing = "" if found.complete else "; some broker has not answered"
    number, places = len(found.brokers), f"{clusters} cluster{'s'[: clusters != 1]}"
    away = f", {len(found.away)} away" if found.away else ""
    return f"{number} broker{'s'[: number != 1]} in {places}{away}, seen from {found.seen_from}{missing}"


def away_table(found: Brokers) -> Table:
    """Return a table of the brokers that are away, and for how long."""
    shown = table("Away: considered dead", ("broker", "cluster", "address", "since", "for"))
    for away in found.away:
        since = datetime.fromtimestamp(away.since).astimezone().isoformat(" ", "seconds")
        names = safe(away.name, "red"), safe(away.cluster), safe(away.address)
        shown.add_row(*names, since, duration(max(0.0, found.at - away.since)))
    return shown


def broker_table(rows: Iterable[Broker], title: str, width: int = WIDE) -> Table:
    """Return a table with a row for each broker, for a screen of `width` columns."""
    cells = NAMES | (LESS_URGENT if width >= NARROW else {}) | NUMBERS | HELD
    shown = table(title, cells, NUMBERS.keys() | LESS_URGENT.keys() - {"version"})
    for row in rows:
        shown.add_row(*[cell(row) for cell in cells.values()])
    return shown
