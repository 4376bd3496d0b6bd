"""The command `saps client`: shows everything about one client anywhere in the mesh, and disconnects it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated
from urllib.parse import quote

import typer
from rich.table import Table

from saps.cli.apps import command_app
from saps.cli.look.clients import clock
from saps.cli.look.http_client import AskError, WebPort
from saps.cli.look.options import Json, asks
from saps.cli.look.tables import console, count, counted, duration, emit, safe, size, table
from saps.operations.values import Client, Disconnected, MessageRow

app = command_app("client")


@app.command()
@asks
def client(
    port: WebPort,
    name: Annotated[str, typer.Argument(metavar="CLIENT", show_default=False, help="The client identifier.")],
    disconnect: Annotated[bool, typer.Option("--disconnect", help="Close its connection. It may come back.")] = False,
    end_session: Annotated[
        bool, typer.Option("--end-session", help="Also end its session: subscriptions, queue.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show one client: where and since when, session, subscriptions, last will, what is in flight and what waits."""
    path = f"/v1/clients/{quote(name, safe='')}"
    if end_session and not disconnect:
        raise AskError("--end-session goes with --disconnect")
    if disconnect:
        done = port.delete(f"{path}?session=end" if end_session else path, Disconnected)
        if as_json:
            emit(done)
        else:
            console().print(safe(_done(done)))
        return
    found = port.get(path, Client)
    if as_json:
        emit(found)
        return
    out = console()
    for line in lines(found):
        out.print(safe(line))
    if found.subscriptions:
        out.print(subscription_table(found))
    for title, rows in (("In flight", found.inflight), ("Waiting", found.queue)):
        if rows:
            out.print(message_table(title, rows))


def _done(done: Disconnected) -> str:
    was = f"{done.client} was disconnected from" if done.connected else f"{done.client} was not connected to"
    return f"{was} {done.broker}" + ("; its session has ended" if done.session_ended else "")


def lines(found: Client) -> Iterator[str]:
    """Yield the lines that describe a client in words."""
    row = found.row
    of = f" of {row.user}" if row.user is not None else ", anonymous,"
    if row.connected:
        where = f"{row.broker} from {row.address}"
        yield f"{row.client}{of} is connected to {where} since {clock(row.since)}, {row.protocol}"
    else:
        yield f"{row.client}{of} is away from {row.broker} since {clock(row.since)}"
    lasts = "for ever" if found.expiry == 0xFFFFFFFF else f"for {duration(found.expiry)}"
    kept = f"kept {lasts} after the connection" if found.expiry else "ends with the connection"
    ends = f", until {clock(found.ends)}" if found.ends is not None else ""
    yield f"session: {kept}{ends}{', stored' if found.stored else ''}"
    rates = "" if row.published_rate is None else f" ({count(row.published_rate)}/s)"
    rates_out = "" if row.delivered_rate is None else f" ({count(row.delivered_rate)}/s)"
    yield (
        f"messages: {row.published:,} from it{rates}, {row.delivered:,} to it{rates_out}, {row.dropped:,} dropped, "
        f"{row.inflight:,} in flight{_most(found)}, {row.queued:,} waiting ({size(row.queued_bytes)})"
    )
    if found.reading is False:
        yield "it is not read for the moment: what it has published before waits for others"
    if found.keep_alive is not None:
        yield f"keep-alive: lost after {found.keep_alive:g} s of silence"
    if (will := found.will) is not None:
        after = f" {will.delay} s after it is lost" if will.delay else ""
        yield f"last will{after}: {will.topic} {will.text!r}, QoS {will.qos}{', retained' if will.retain else ''}"


def _most(found: Client) -> str:
    return f" of {found.receive_maximum:,}" if found.receive_maximum is not None else ""


def subscription_table(found: Client) -> Table:
    """Return a table with a row for each subscription."""
    title = counted(found.row.subscriptions, "subscription", "subscriptions")
    shown = table(title, ("filter", "QoS", "options"), ("QoS",))
    for each in found.subscriptions:
        options = {
            "no local": each.no_local,
            "retain as published": each.retain_as_published,
            f"identifier {each.identifier}": each.identifier is not None,
            "NOT PERMITTED": not each.permitted,
        }
        shown.add_row(safe(each.filter), str(each.qos), ", ".join(name for name, holds in options.items() if holds))
    return shown


def message_table(title: str, rows: Iterable[MessageRow]) -> Table:
    """Return a table with a row for each message."""
    shown = table(title, ("topic", "QoS", "size", "expires in", "payload"), ("QoS", "size"))
    for row in rows:
        left = "" if row.expires is None else duration(max(0.0, row.expires))
        shown.add_row(safe(row.topic), str(row.qos), size(row.size), left, safe(row.text[:60]))
    return shown
