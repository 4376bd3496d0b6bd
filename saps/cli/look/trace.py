"""The command `saps trace`: shows the way of a message to a topic, broker by broker, with reasons; or what an address
of stateless delivery means."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.tree import Tree

from saps.cli.apps import command_app
from saps.cli.look.http_client import AskError, WebPort, topic_path
from saps.cli.look.options import Json, asks
from saps.cli.look.tables import console, counted, emit, safe, table
from saps.frontend.web.mesh.report import AddressTrace, Trace
from saps.ofm.stateless.address import Receivers, parse
from saps.topics import topic_fault

app = command_app("trace")

COLUMNS = ("bit", "broker", "address", "switch", "port")


@app.command()
@asks
def trace(
    port: WebPort,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            show_default=False,
            help="The topic's name, or an address that names its receivers: ff15:...",
        ),
    ],
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="BROKER", help="The broker it is published at; else one that publishes to it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show where a message to a topic would go now, and why. Nothing is published: each broker on the way is asked.

    Of an address of stateless delivery, as in a packet capture, show the set, the plane, the brokers that its bits name
    and the links to them. The broker asks its controller (web.controller)."""
    try:
        named = parse(topic)
    except ValueError:
        pass
    else:
        _decode(port, named, start, as_json)
        return
    if (fault := topic_fault(topic)) is not None:
        raise AskError(f"{topic!r} is not a topic name: {fault}")
    found = port.get(f"/v1/trace/{topic_path(topic)}", Trace, from_=start)
    if as_json:
        emit(found)
        return
    out = console()
    out.print(drawn(found))
    for reason in found.reasons:
        out.print(safe(f"- {reason}"))
    if not found.complete:
        out.print(safe("- some broker has not answered: there may be more", "bold red"))


def _decode(port: WebPort, named: Receivers, start: str | None, as_json: bool) -> None:
    found = port.get(f"/v1/addresses/{named.address}", AddressTrace, from_=start)
    if as_json:
        emit(found)
        return
    out = console()
    state = "" if found.working else ", which is not in use"
    receivers = table(f"{found.address}: set {found.set}, plane {found.plane}{state}", COLUMNS, ("bit", "port"))
    for each in found.receivers:
        broker = each.broker or ("nobody" if each.address is None else "not in the mesh")
        at = ("not reached", "") if each.dpid is None else (each.dpid, str(each.port))
        receivers.add_row(str(each.position), safe(broker), safe(each.address or ""), *at)
    out.print(receivers)
    way = f"from {found.source} to them" if found.source is not None else "between them"
    out.print(safe(f"{counted(len(found.links), 'link', 'links')} {way}{':' * bool(found.links)}"))
    for link in found.links:
        out.print(safe(f"  {link.a} port {link.a_port} - {link.b} port {link.b_port}"))


def drawn(found: Trace) -> Tree:
    """Return the way as a tree with the publisher's broker at its root."""
    clients = {end.broker: end.clients for end in found.ends}
    crossings = sum(hop.crosses for hop in found.hops)
    messages = counted(len(found.hops), "message", "messages")
    total = f"{messages} between brokers, {crossings} of them between clusters" if found.hops else "local"
    root = Tree(safe(f"{found.topic}: {total}"))
    top = root.add(safe(f"{found.source} (published here){_clients(clients.get(found.source, 0))}", "bold"))
    nodes = {found.source: top}
    for hop in sorted(found.hops, key=lambda hop: hop.depth):
        where = ", to another cluster" if hop.crosses else ""
        label = f"{hop.target} by {hop.by.upper()}{where}{_clients(clients.get(hop.target, 0))}"
        nodes[hop.target] = nodes.get(hop.source, top).add(safe(label))
    return root


def _clients(number: int) -> str:
    return f": {number} client{'s'[: number != 1]}" if number else ""
