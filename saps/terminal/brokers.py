"""The command `saps brokers`: every broker of the mesh, as it reports of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from rich.table import Table
from rich.text import Text

from saps.frontend.web.operator import Brokers
from saps.frontend.web.report import Broker
from saps.terminal.asking import WebPort
from saps.terminal.options import Json, asks, command_app
from saps.terminal.shown import WIDE, console, count, duration, emit, safe, size, table

app = command_app("brokers")

Cell: TypeAlias = Callable[[Broker], Text | str]

NAMES: dict[str, Cell] = {"broker": lambda row: safe(row.name), "cluster": lambda row: safe(row.cluster)}
LESS_URGENT: dict[str, Cell] = {
    "version": lambda row: safe(row.version),
    "up": lambda row: duration(row.uptime),
    "queued": lambda row: size(row.queued_bytes),
    "links": lambda row: count(len(row.links)),
}
"""Columns that a narrow screen does without."""
NUMBERS: dict[str, Cell] = {
    "clients": lambda row: count(row.clients),
    "in/s": lambda row: count(row.published_rate),
    "from others/s": lambda row: count(row.received_rate),
    "out/s": lambda row: count(row.delivered_rate),
}
HELD: dict[str, Cell] = {"held by": lambda row: safe(", ".join(row.held_by), "bold red")}
NARROW = 110


@app.command()
@asks
def brokers(port: WebPort, as_json: Json = False) -> None:
    """Show all brokers of the mesh: place, clients, messages a second, and what holds publishers back."""
    found = port.get("/v1/brokers", Brokers)
    if as_json:
        emit(found)
    else:
        out = console()
        out.print(broker_table(sorted(found.brokers, key=lambda b: (b.cluster, b.name)), headline(found), out.width))


def headline(found: Brokers) -> str:
    """How many there are, and whether that is all."""
    clusters = len({broker.cluster for broker in found.brokers})
    missing = "" if found.complete else "; some broker has not answered"
    number, places = len(found.brokers), f"{clusters} cluster{'s'[: clusters != 1]}"
    return f"{number} broker{'s'[: number != 1]} in {places}, seen from {found.seen_from}{missing}"


def broker_table(rows: Iterable[Broker], title: str, width: int = WIDE) -> Table:
    """A broker a line, for a screen of so many columns."""
    cells = NAMES | (LESS_URGENT if width >= NARROW else {}) | NUMBERS | HELD
    shown = table(title, cells, NUMBERS.keys() | LESS_URGENT.keys() - {"version"})
    for row in rows:
        shown.add_row(*[cell(row) for cell in cells.values()])
    return shown
