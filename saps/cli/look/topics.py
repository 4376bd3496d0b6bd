"""The command `saps topics`: shows topics with their modes, rates and subscribers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, TypeAlias

import typer
from rich.table import Table
from rich.text import Text

from saps.cli.apps import command_app
from saps.cli.look.http_client import AskError, WebPort
from saps.cli.look.options import Json, asks
from saps.cli.look.tables import WIDE, console, count, emit, safe, size, some, table
from saps.frontend.web.mesh.report import MODES, MOST_ROWS, SORTS, TopicList, TopicRow
from saps.topics import filter_fault

app = command_app("topics")

Sort = Annotated[str, typer.Option("--sort", metavar="|".join(SORTS), help="Sort order.")]
Cell: TypeAlias = Callable[[TopicRow], Text | str]

URGENT: dict[str, Cell] = {
    "topic": lambda row: safe(row.topic),
    "mode": lambda row: safe(row.mode),
    "msg/s": lambda row: count(row.rate),
    "bytes/s": lambda row: size(row.bytes),
    "subscribers": lambda row: count(row.subscribers),
}
LESS_URGENT: dict[str, Cell] = {
    "publishers at": lambda row: safe(some(row.publishers)),
    "subscribers at": lambda row: safe(some(row.brokers)),
    "ms": lambda row: "" if row.latency is None else " / ".join(f"{1e3 * seconds:.3g}" for seconds in row.latency),
    "why": lambda row: safe(row.reason or ""),
}
"""Columns that a narrow screen omits."""
NUMBERS = ("msg/s", "bytes/s", "subscribers", "ms")
NARROW = 110


@app.command()
@asks
def topics(
    port: WebPort,
    wanted: Annotated[
        str | None,
        typer.Argument(metavar="[FILTER]", help="A topic filter, such as air/+/pm25, or a part of the name."),
    ] = None,
    mode: Annotated[str | None, typer.Option("--mode", metavar="|".join(MODES), help="Only those.")] = None,
    sort: Sort = "rate",
    limit: Annotated[int, typer.Option("--limit", min=1, max=MOST_ROWS, help="Greatest number of topics shown.")] = 50,
    as_json: Json = False,
) -> None:
    """Show topics: mode (ALM or OpenFlow tree), rate, subscribers, and the time until all have confirmed."""
    found = chosen(port, wanted, mode, sort, limit)
    if as_json:
        emit(found)
    else:
        out = console()
        out.print(topic_table(found.topics, headline(found), out.width))


def chosen(port: WebPort, wanted: str | None, mode: str | None, sort: str, limit: int) -> TopicList:
    """Return the topics that match the filter `wanted`, or that have it in their names; None: all topics.

    Raises `AskError`."""
    if wanted is None or not ("+" in wanted or "#" in wanted):
        return port.get("/v1/topics", TopicList, search=wanted, mode=mode, sort=sort, limit=limit)
    if (fault := filter_fault(wanted)) is not None:
        raise AskError(f"{wanted!r} is not a topic filter: {fault}")
    return port.get("/v1/topics", TopicList, filter=wanted, mode=mode, sort=sort, limit=limit)


def headline(found: TopicList) -> str:
    """Return the numbers of topics found and shown in words, and whether a broker has not answered."""
    shown = f", {len(found.topics)} shown" if len(found.topics) < found.total else ""
    missing = "" if found.complete else "; some broker has not answered"
    return f"{found.total:,} topic{'s'[: found.total != 1]}{shown}{missing}"


def topic_table(rows: Iterable[TopicRow], title: str, width: int = WIDE) -> Table:
    """Return a table with a row for each topic, for a screen of `width` columns."""
    cells = URGENT | (LESS_URGENT if width >= NARROW else {})
    shown = table(title, cells, NUMBERS)
    for row in rows:
        shown.add_row(*[cell(row) for cell in cells.values()])
    return shown
